"""Answers, row by row, on the command line and in Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.inference import predict
from tests.command_line import refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")


def told(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict]:
    capsys.readouterr()
    assert main(["predict", *map(str, words)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [json.loads(line) for line in out.splitlines()]


def test_rows_keep_their_order_and_what_else_they_have(tuned: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(predict.predict, "__defaults__", (None, None, 7))  # several pieces
    given = rows(30, 5)
    found = told(capsys, tuned, write(tmp_path / "rows.jsonl", given))
    assert [one["number"] for one in found] == [one["number"] for one in given]
    assert [one["given_label"] for one in found] == [one["label"] for one in given]
    assert sum(one["label"] == one["given_label"] for one in found) >= 27
    assert all(abs(sum(one["scores"].values()) - 1) < 1e-6 for one in found)
    alone = cw.load(tuned).predict([one["text"] for one in given])
    assert [one["label"] for one in alone] == [one["label"] for one in found]
    assert alone[3]["scores"]["warm"] == pytest.approx(found[3]["scores"]["warm"], abs=1e-5)


def test_out_is_what_standard_output_would_be(tuned: Path, tmp_path: Path, capsys):
    file, out = write(tmp_path / "rows.jsonl", rows(20, 6)), tmp_path / "predictions.jsonl"
    assert main(["predict", str(tuned), str(file)]) == 0
    printed = capsys.readouterr().out
    assert main(["predict", str(tuned), str(file), "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert out.read_text(encoding="utf-8") == printed


def test_other_formats(tuned: Path, tmp_path: Path, capsys):
    (tmp_path / "lines.txt").write_text("the red fox\n\na blue hen\n")
    plain = told(capsys, tuned, tmp_path / "lines.txt", "--text")
    assert [one["text"] for one in plain] == ["the red fox", "a blue hen"]
    assert [one["label"] for one in plain] == ["warm", "cold"]
    (tmp_path / "rows.csv").write_text("id,review\n1,the red fox\n2,a blue hen\n")
    found = told(capsys, tuned, tmp_path / "rows.csv", "--columns", "text=review")
    assert [(one["id"], one["label"]) for one in found] == [("1", "warm"), ("2", "cold")]


def test_python_takes_texts_and_rows(tuned: Path, tmp_path: Path):
    encoder = cw.load(tuned)
    one = encoder.predict("the red fox")
    assert one == encoder.predict({"text": "the red fox"}) == encoder.predict([{"text": "the red fox"}])
    assert encoder.predict([]) == []
    file = write(tmp_path / "rows.jsonl", [{"review": "the red fox"}])
    assert encoder.predict(file, columns={"text": "review"}) == one


def test_what_cannot_be_answered_is_refused(tuned: Path, road: Path, tmp_path: Path, capsys):
    file = write(tmp_path / "rows.jsonl", rows(3))
    assert "a model without a task" in refused(capsys, "predict", road / "run", file)
    assert "no such path" in refused(capsys, "predict", tuned, tmp_path / "row.jsonl")
    write(tmp_path / "bad.jsonl", [{"text": "fox"}, {"txt": "hen"}])
    assert "bad.jsonl, line 2" in refused(capsys, "predict", tuned, tmp_path / "bad.jsonl")


def test_whoever_reads_may_leave(tuned: Path):
    command = f"{sys.executable} -m clozeworks predict {tuned} --text | head -1"
    given = "the red fox\n" * 3000
    done = subprocess.run(command, shell=True, input=given, capture_output=True, text=True)
    assert json.loads(done.stdout)["label"] == "warm"
    assert done.stderr == ""
