"""Answers, row by row, on the command line and in Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.inference import predict
from tests.command_line import facts, refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")


def predicted(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict]:
    capsys.readouterr()
    assert main(["predict", *map(str, words)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [json.loads(line) for line in out.splitlines()]


def test_rows_keep_their_order_and_what_else_they_have(tuned: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(predict.predict, "__defaults__", (None, None, 7))  # several pieces
    given = rows(30, 5)
    result = predicted(capsys, tuned, write(tmp_path / "rows.jsonl", given))
    assert [one["number"] for one in result] == [one["number"] for one in given]
    assert [one["given_label"] for one in result] == [one["label"] for one in given]
    assert sum(one["label"] == one["given_label"] for one in result) >= 27
    assert all(abs(sum(one["scores"].values()) - 1) < 1e-6 for one in result)
    alone = cw.load(tuned).predict([one["text"] for one in given])
    assert [one["label"] for one in alone] == [one["label"] for one in result]
    assert alone[3]["scores"]["warm"] == pytest.approx(result[3]["scores"]["warm"], abs=1e-5)


def test_out_is_what_standard_output_would_be(tuned: Path, tmp_path: Path, capsys):
    file, out = write(tmp_path / "rows.jsonl", rows(20, 6)), tmp_path / "predictions.jsonl"
    assert main(["predict", str(tuned), str(file)]) == 0
    printed = capsys.readouterr().out
    assert main(["predict", str(tuned), str(file), "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert out.read_text(encoding="utf-8") == printed


def test_other_formats(tuned: Path, tmp_path: Path, capsys):
    (tmp_path / "lines.txt").write_text("the red fox\n\na blue hen\n")
    plain = predicted(capsys, tuned, tmp_path / "lines.txt", "--text")
    assert [one["text"] for one in plain] == ["the red fox", "a blue hen"]
    assert [one["label"] for one in plain] == ["warm", "cold"]
    (tmp_path / "rows.csv").write_text("id,review\n1,the red fox\n2,a blue hen\n")
    result = predicted(capsys, tuned, tmp_path / "rows.csv", "--columns", "text=review")
    assert [(one["id"], one["label"]) for one in result] == [("1", "warm"), ("2", "cold")]


def test_an_empty_text_is_predicted_like_any_other(tuned: Path, road: Path, tmp_path: Path, capsys):
    (tmp_path / "rows.csv").write_text('id,text\n1,the red fox\n2,""\n3,a blue hen\n')
    answers = predicted(capsys, tuned, tmp_path / "rows.csv")
    assert [one["id"] for one in answers] == ["1", "2", "3"]
    assert answers[1]["label"] in ("warm", "cold")
    capsys.readouterr()
    assert main(["encode", str(road / "run"), str(tmp_path / "rows.csv")]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()][1] == ""


def test_texts_in_another_script_are_warned_of(tuned: Path, road: Path, tmp_path: Path, capsys):
    """Once, on standard error, by all that read texts; the output stays as it is."""
    given = [{"text": f"今天天气很好 {n}" if n % 3 else f"the red fox {n}", "label": "ab"[n % 2]} for n in range(40)]
    file = write(tmp_path / "rows.jsonl", given)
    for words in (["predict", tuned, file, "--batch-size", "9"], ["encode", road / "run", file]):
        capsys.readouterr()
        assert main([*map(str, words)]) == 0
        out, err = capsys.readouterr()
        assert err.count("% of the tokens are [UNK]") == err.count("\n") == 1
        assert [json.loads(line)["text"] for line in out.splitlines()] == [row["text"] for row in given]
    words = ["finetune", "classify", "--model", road / "run", "--train", file, "--dry-run"]
    assert sum("% of the tokens are [UNK]" in note for note in facts(capsys, *words)["notes"]) == 1


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
