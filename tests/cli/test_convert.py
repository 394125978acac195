"""clozeworks convert: a run for short texts becomes a model for long ones, which is trained on."""

import json
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.cli.main import main
from tests.command_line import SMALL, facts, refused

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def long(road: Path) -> Path:
    out = road / "long"
    words = [
        "convert",
        road / "run",
        "--to",
        "longformer",
        "--max-length",
        1024,
        "--attention-window",
        64,
        "--out",
        out,
    ]
    assert main([str(word) for word in words]) == 0
    return out


def test_a_run_becomes_a_model_for_long_texts(road, long, tmp_path, capsys):
    short, made = cw.load(road / "run"), cw.load(long)
    assert made.longest == 1024
    text = "the small fox runs near the [MASK]"
    a, b = (each.fill_mask(text)[0]["score"] for each in (short, made))
    assert a == pytest.approx(b, abs=1e-6)
    assert made.encode(["the red hen " * 400]).shape == (1, 128)
    report = facts(
        capsys, "convert", road / "hf", "--max-length", 600, "--attention-window", 32, "--out", tmp_path / "other"
    )
    assert report["windows"] == [32, 32]
    assert report["length"] == 600
    assert report["parameters"] == sum(p.numel() for p in cw.load(tmp_path / "other").model.parameters())


def test_it_says_what_comes_next_and_that_works(road, long, tmp_path, capsys):
    words = ["convert", road / "run", "--max-length", 512, "--attention-window", 16, "--out", tmp_path / "again"]
    assert main([str(word) for word in words]) == 0
    output = capsys.readouterr().out
    assert f"clozeworks pretrain {tmp_path}/again --from {tmp_path}/again --data DATA --out RUN" in output
    assert "--refresh-global" in output
    run = tmp_path / "run"
    words = ["pretrain", long, "--from", long, "--data", road / "data", "--out", run, *SMALL]
    assert main([str(word) for word in words]) == 0
    words = ["convert", run, "--refresh-global", "--out", tmp_path / "new"]
    assert main([str(word) for word in words]) == 0
    assert "clozeworks export" in capsys.readouterr().out
    before, after = (
        [block.mixer for block in cw.load(path).model.encoder.stack.blocks] for path in (run, tmp_path / "new")
    )
    for old, new in zip(before, after, strict=True):
        assert torch.equal(old.key.weight, new.key.weight)
        assert not torch.equal(old.key.weight, old.key_global.weight)
        assert torch.equal(new.key.weight, new.key_global.weight)
    assert main(["export", str(tmp_path / "new"), "--to", "hf", "--out", str(tmp_path / "hf")]) == 0
    output = capsys.readouterr().out.replace("\n", "").replace(" ", "")
    assert f"clozeworkspretrain{tmp_path / 'new'}--from{tmp_path / 'hf'}" in output, "its recipe has no name of ours"
    assert json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())["model_max_length"] == 1024


def test_mistakes(road, long, tmp_path, capsys):
    out = tmp_path / "none"
    assert "window: 7; an even number" in refused(
        capsys, "convert", road / "run", "--attention-window", 7, "--out", out
    )
    assert "has 512 positions already" in refused(capsys, "convert", road / "run", "--max-length", 100, "--out", out)
    assert "to copy them: --refresh-global" in refused(capsys, "convert", long, "--out", out)
    assert "no layer of it has global tokens" in refused(
        capsys, "convert", road / "run", "--refresh-global", "--out", out
    )
    message = refused(capsys, "convert", long, "--refresh-global", "--max-length", 2048, "--out", out)
    assert "stay as they are" in message
    assert "longformer" in refused(capsys, "convert", road / "run", "--to", "reformer", "--out", out)
    assert not out.exists()
