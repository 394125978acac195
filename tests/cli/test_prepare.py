"""clozeworks prepare: what it tells, and what it leaves behind."""

import pytest

from clozeworks.cli.main import main
from tests.command_line import facts, refused, size

pytestmark = pytest.mark.usefixtures("one_thread")


def test_prepare_tells_what_it_counted(road, tmp_path, capsys):
    found = facts(capsys, "prepare", road / "corpus.txt", "--out", tmp_path / "data", "--vocab", "120")
    assert sum(split["documents"] for split in found["splits"].values()) == 150
    assert found["tokenizer"]["size"] == size(tmp_path / "data") <= 120
    assert main(["prepare", str(road / "corpus.txt"), "--out", str(tmp_path / "again"), "--vocab", "120"]) == 0
    told = capsys.readouterr().out
    assert "documents" in told
    assert f"clozeworks examples bert_mini --data {tmp_path}/again" in told


def test_bad_input_leaves_nothing_behind(road, tmp_path, capsys):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes("na\xefve text.\n".encode("latin-1"))
    (tmp_path / "rows.jsonl").write_text('{"body": "some text"}\n')
    assert "an empty file" in refused(capsys, "prepare", tmp_path / "empty.txt", "--out", tmp_path / "out")
    assert "--errors replace" in refused(capsys, "prepare", tmp_path / "latin.txt", "--out", tmp_path / "out")
    assert "the fields are body" in refused(capsys, "prepare", tmp_path / "rows.jsonl", "--out", tmp_path / "out")
    assert "it holds prepared text" in refused(capsys, "prepare", road / "corpus.txt", "--out", road / "data")
    assert not (tmp_path / "out").exists()
