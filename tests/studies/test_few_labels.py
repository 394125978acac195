"""What few labelled rows are worth, in miniature."""

import json
from pathlib import Path

import pytest

from studies import few_labels
from tests.labelled import rows, write


@pytest.mark.slow
def test_every_way_learns_the_same_rows(road: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("accelerate")
    train, test = write(tmp_path / "train.jsonl", rows(60)), write(tmp_path / "test.jsonl", rows(12, 1))
    words = ["--model", str(road / "hf"), "--train", str(train), "--test", str(test), "--max-length", "16"]
    assert few_labels.main([*words, "--seeds", "0,1", "--epochs", "1", "--limit", "32"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["rows"], report["measured"]) == (32, 12)
    assert report["accuracy"].keys() == {"tfidf_words", *few_labels.OURS, *few_labels.THEIRS}
    assert all(len(each) == 2 for each in report["accuracy"].values())
