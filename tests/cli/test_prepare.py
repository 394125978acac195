"""clozeworks prepare: what it reports, what it leaves behind, and what --check finds."""

import json
import shlex
from pathlib import Path

import pytest

from clozeworks.cli.main import main
from tests.command_line import facts, refused, size
from tests.data.checks.test_check import chinese, prose

pytestmark = pytest.mark.usefixtures("one_thread")


def test_prepare_tells_what_it_counted(road, tmp_path, capsys):
    report = facts(capsys, "prepare", road / "corpus.txt", "--out", tmp_path / "data", "--vocab", "120")
    assert sum(split["documents"] for split in report["splits"].values()) == 150
    assert report["tokenizer"]["size"] == size(tmp_path / "data") <= 120
    assert main(["prepare", str(road / "corpus.txt"), "--out", str(tmp_path / "again"), "--vocab", "120"]) == 0
    output = capsys.readouterr().out
    assert "documents" in output
    assert f"clozeworks examples bert_mini --data {tmp_path}/again" in output


def test_bad_input_leaves_nothing_behind(road, tmp_path, capsys):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes("na\xefve text.\n".encode("latin-1"))
    (tmp_path / "rows.jsonl").write_text('{"body": "some text"}\n')
    assert "an empty file" in refused(capsys, "prepare", tmp_path / "empty.txt", "--out", tmp_path / "out")
    assert "--errors replace" in refused(capsys, "prepare", tmp_path / "latin.txt", "--out", tmp_path / "out")
    assert "the fields are body" in refused(capsys, "prepare", tmp_path / "rows.jsonl", "--out", tmp_path / "out")
    assert "it holds prepared text" in refused(capsys, "prepare", road / "corpus.txt", "--out", road / "data")
    assert not (tmp_path / "out").exists()


# ---- --check


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide lines, and paths as short as their names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")


@pytest.mark.usefixtures("here")
def test_check_good_text(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(prose()))
    assert main(["prepare", "a.txt", "--check", "--vocab", "256"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "30 documents" in out
    assert "wrong" not in out.replace("a wrong encoding", "")
    assert out.splitlines()[-1].split(maxsplit=1) == ["next", "clozeworks prepare a.txt --out data --vocab 256"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.usefixtures("here")
def test_check_the_gravest_comes_first_and_the_command_mends_it(tmp_path, capsys):
    texts = [*chinese(200), *chinese(50)]
    (tmp_path / "my text.txt").write_bytes("\n\n".join(texts).encode("gb18030"))
    asked = ["prepare", "my text.txt", "--vocab", "300", "--heldout", "0.1", "--segmenter", "none"]
    assert main([*asked, "--check"]) == 2
    out, _ = capsys.readouterr()
    kinds = [line.split()[0] for line in out.splitlines() if line.startswith(("wrong", "note", "fine"))]
    assert kinds == sorted(kinds, key=["wrong", "note", "fine"].index)
    command = shlex.split(out.splitlines()[-1].split(maxsplit=1)[1])
    assert command[:5] == ["clozeworks", "prepare", "my text.txt", "--out", "data"]
    assert {"--encoding", "gb18030", "--dedupe", "--heldout", "0.1"} <= set(command)
    assert main([*command[1:], "--check"]) == 0
    assert main(command[1:]) == 0
    manifest = json.loads(Path("data/manifest.json").read_text())
    assert manifest["dropped"]["copies"] == 50
    assert manifest["read"]["encodings"] == {"gb18030": 1}


@pytest.mark.usefixtures("here")
def test_check_json(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"body": "One. Two."}\n')
    assert main(["prepare", "a.jsonl", "--check", "--json"]) == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["wrong"] == sum(finding["kind"] == "wrong" for finding in report["findings"]) > 0
    assert report["facts"]["documents"] == 0
    assert main(["prepare", "a.jsonl", "--check", "--json", "--field", "body"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["facts"]["documents"] == 1
    assert "--field body" in report["command"]


@pytest.mark.usefixtures("here")
def test_check_bad_arguments_are_one_sentence(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("One.")
    for words in (["none.txt"], ["a.txt", "--tokenizer", "nowhere"], ["a.txt", "--encoding", "x"], []):
        assert main(["prepare", *words, "--check"]) == 2
        assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_check_the_embedded_corpus(capsys):
    assert main(["prepare", "--corpus", "en", "--check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["facts"]["documents"] > 10
    assert "--corpus en" in report["command"]
