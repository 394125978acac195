"""The experiment about pretrained weights by number of rows, in miniature."""

import json
from pathlib import Path

import pytest

from studies import worth
from tests.labelled import rows, write


@pytest.mark.slow
def test_both_starts_are_measured_at_every_size(road: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    train, test = write(tmp_path / "train.jsonl", rows(40)), write(tmp_path / "test.jsonl", rows(10, 1))
    words = ["--model", str(road / "run"), "--train", str(train), "--test", str(test), "--max-length", "16"]
    picture = tmp_path / "worth.svg"
    words += ["--set", "finetune.epochs=1"]
    assert worth.main([*words, "--sizes", "8,all", "--seeds", "0,1", "--plot", str(picture)]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["metric"], report["measured"]) == ("accuracy", 10)
    assert {
        size: {start: len(each) for start, each in starts.items()} for size, starts in report["scores"].items()
    } == {size: {"pretrained": 2, "fresh": 2} for size in ("8", "all")}
    assert picture.is_file()
    assert worth.main([*words, "--set", "epochs"]) == 2
    assert "PATH=VALUE is needed" in capsys.readouterr().err
    assert worth.main([*words, "--sizes", "few"]) == 2
    assert "whole numbers from 2 on" in capsys.readouterr().err
