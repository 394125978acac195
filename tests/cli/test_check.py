"""clozeworks prepare --check, as its users meet it."""

import json
import shlex
from pathlib import Path

import pytest

from clozeworks.cli.main import main
from tests.data.checks.test_check import chinese, prose


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GOMP_SPINCOUNT", "10000")
    monkeypatch.setenv("COLUMNS", "300")


def test_good_text(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(prose()))
    assert main(["prepare", "a.txt", "--check", "--vocab", "256"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "30 documents" in out
    assert "wrong" not in out.replace("a wrong encoding", "")
    assert out.splitlines()[-1].split(maxsplit=1) == ["next", "clozeworks prepare a.txt --out data --vocab 256"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_the_gravest_comes_first_and_the_command_mends_it(tmp_path, capsys):
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


def test_json(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text('{"body": "One. Two."}\n')
    assert main(["prepare", "a.jsonl", "--check", "--json"]) == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    told = json.loads(out)
    assert told["wrong"] == sum(finding["kind"] == "wrong" for finding in told["findings"]) > 0
    assert told["facts"]["documents"] == 0
    assert main(["prepare", "a.jsonl", "--check", "--json", "--field", "body"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["facts"]["documents"] == 1
    assert "--field body" in told["command"]


def test_bad_arguments_are_one_sentence(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("One.")
    for words in (["none.txt"], ["a.txt", "--tokenizer", "nowhere"], ["a.txt", "--encoding", "x"], []):
        assert main(["prepare", *words, "--check"]) == 2
        assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.slow
def test_the_embedded_corpus(capsys):
    assert main(["prepare", "--corpus", "en", "--check", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["facts"]["documents"] > 10
    assert "--corpus en" in told["command"]
