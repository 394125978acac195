"""Our fine-tuning beside the Trainer, in miniature."""

import json
from pathlib import Path

import pytest

from studies import beside
from tests.labelled import rows, write


def one(accuracy: float, seconds: float) -> dict[str, float]:
    return {"accuracy": accuracy, "seconds": seconds, "cpu_seconds": seconds}


def test_means_are_compared_by_pooled_errors():
    result = beside.summary({"ours": [one(0.8, 1), one(0.9, 2)], "theirs": [one(0.7, 3), one(0.9, 3)]})
    assert result["difference"] == pytest.approx(0.05)
    assert result["two_pooled_errors"] == pytest.approx(2 * (0.005 / 2 + 0.02 / 2) ** 0.5, abs=1e-4)
    assert result["times_faster"]["seconds"] == {"median": 2.25, "lowest": 1.5, "highest": 3.0}


@pytest.mark.slow
def test_both_learn_the_same_rows(road: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("accelerate")
    train, test = write(tmp_path / "train.jsonl", rows(40)), write(tmp_path / "test.jsonl", rows(10, 1))
    words = ["--model", str(road / "hf"), "--train", str(train), "--test", str(test), "--max-length", "16"]
    assert beside.main([*words, "--seeds", "0,1", "--epochs", "1", "--limit", "32"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["rows"], report["measured"]) == (32, 10)
    assert [len(each) for each in report["accuracy"].values()] == [2, 2]
    assert beside.main([*words, "--task", "tag"]) == 2
