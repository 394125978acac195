"""Figures of a fine-tuned model on labelled rows, as its users ask for them."""

from pathlib import Path

import pytest

from clozeworks.cli.main import main
from tests.command_line import facts, refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    given = rows(40, 3)
    given[5]["label"] = "cold" if given[5]["label"] == "warm" else "warm"
    return write(tmp_path / "test.jsonl", given)


def test_figures_with_intervals_classes_and_mistakes(tuned: Path, test_file: Path, capsys):
    report = facts(capsys, "evaluate", tuned, "--test", test_file)
    assert (report["task"], report["rows"]) == ("classify", 40)
    counts = report["confusion"]["counts"]
    assert report["confusion"]["labels"] == ["cold", "warm"]
    assert report["accuracy"] == pytest.approx((counts[0][0] + counts[1][1]) / 40)
    assert report["intervals"]["accuracy"][0] <= report["accuracy"] <= report["intervals"]["accuracy"][1]
    assert {"f1", "mcc", "f1_warm"} <= report.keys()
    assert sum(each["support"] for each in report["classes"].values()) == 40
    assert len(report["worst"]) == min(10, 40 - counts[0][0] - counts[1][1])
    assert any(each["where"].endswith("line 6") for each in report["worst"])
    assert report == facts(capsys, "evaluate", tuned, "--test", test_file)
    assert max(report["most_frequent"].values()) >= 0.5


def test_it_is_reported_and_written_as_a_page(tuned: Path, test_file: Path, tmp_path: Path, capsys):
    assert main(["evaluate", str(tuned), "--test", str(test_file), "--report", str(tmp_path / "report.html")]) == 0
    out = capsys.readouterr().out
    assert "40 rows of" in out
    assert "accuracy of always saying" in out
    assert "right \\ predicted" in out
    assert "line 6" in " ".join(out.split())  # wherever the length of the path breaks the line
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 2


def test_what_does_not_go_together_is_refused(tuned: Path, road: Path, test_file: Path, tmp_path: Path, capsys):
    assert "labelled rows show how well" in refused(capsys, "evaluate", tuned, "--data", road / "data")
    assert "text without labels" in refused(capsys, "evaluate", tuned, "--test", test_file, "--context", "8")
    assert "one HTML page" in refused(capsys, "evaluate", tuned, "--test", test_file, "--report", "report.pdf")
    message = refused(capsys, "evaluate", road / "run", "--data", road / "data", "--report", tmp_path / "r.html")
    assert "the model has no task" in message
    write(tmp_path / "other.jsonl", [{"text": "the fox", "label": "odd"}])
    assert "label 'odd'" in refused(capsys, "evaluate", tuned, "--test", tmp_path / "other.jsonl")
    message = refused(capsys, "evaluate", road / "run", "--test", test_file)
    assert "a model without a task; labelled rows show" in message
    assert "clozeworks finetune" in message


def test_two_models_on_the_same_rows_and_masks(tuned: Path, road: Path, test_file: Path, capsys):
    alone = facts(capsys, "evaluate", tuned, "--test", test_file)
    both = facts(capsys, "evaluate", tuned, "--test", test_file, "--against", tuned)
    assert both["accuracy"] == both["against_metrics"]["accuracy"] == alone["accuracy"]
    assert both["differences"]["accuracy"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert both["right"] == {"only_model": 0, "only_against": 0, "p": 1.0}
    text = facts(capsys, "evaluate", road / "run", "--data", road / "data", "--against", road / "hf")
    assert text["loss"] == pytest.approx(text["against_metrics"]["loss"], abs=1e-5)
    assert text["count"] > text["examples"] > 1
    assert main(["evaluate", str(tuned), "--test", str(test_file), "--against", str(tuned)]) == 0
    out = capsys.readouterr().out
    assert "95 % paired interval" in out
    assert "may be chance" in out
    assert "must be of one kind" in refused(capsys, "evaluate", tuned, "--test", test_file, "--against", road / "run")
