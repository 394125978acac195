"""clozeworks generate, and the other commands with a model that reads one way."""

from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.cli.main import main
from tests.command_line import SMALL, facts, refused

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = ["--set", "encoder.width=32", "--set", "encoder.stack.block.mixer.heads=2", "--set", "encoder.stack.depth=2"]


@pytest.fixture(scope="module")
def run(road: Path) -> Path:
    words = ["pretrain", "gpt_mini", "--data", road / "data", "--out", road / "gpt", *SMALL, *TINY]
    words += ["--set", "encoder.stack.block.ffn.inner=128"]
    assert main([str(word) for word in words]) == 0
    return road / "gpt"


def test_texts_begin_with_the_prompt_and_follow_the_seed(run, capsys):
    words = ("generate", run, "the small fox", "--max-new-tokens", 6, "--count", 3)
    report = facts(capsys, *words)["texts"]
    assert len(report) == 3
    assert len({tuple(one["tokens"]) for one in report}) > 1
    assert all(one["text"].startswith("the small fox") for one in report)
    assert all(0 < len(one["tokens"]) <= 6 and one["score"] < 0 for one in report)
    assert facts(capsys, *words)["texts"] == report
    assert facts(capsys, *words, "--seed", 1)["texts"] != report


def test_the_likeliest_and_beams(run, capsys):
    greedy = facts(capsys, "generate", run, "the", "--temperature", 0, "--max-new-tokens", 5)["texts"][0]
    beams = facts(
        capsys, "generate", run, "the", "--beams", 4, "--count", 2, "--max-new-tokens", 5, "--length-penalty", 0
    )
    assert len(beams["texts"]) == 2
    assert beams["texts"][0]["score"] >= max(greedy["score"], beams["texts"][1]["score"])
    assert main(["generate", str(run), "the", "--max-new-tokens", "3"]) == 0
    assert "--seed 1" in capsys.readouterr().out
    assert facts(capsys, "generate", run, "--max-new-tokens", 2)["texts"], "without a prompt it begins a text"


def test_mistakes(run, road, capsys):
    assert "predicts the next token is needed" in refused(capsys, "generate", road / "run", "the")
    assert "0 or more is needed" in refused(capsys, "generate", run, "the", "--temperature", -1)
    assert "above 0, 1 at most" in refused(capsys, "generate", run, "the", "--top-p", 2)
    assert "draws nothing" in refused(capsys, "generate", run, "the", "--beams", 2, "--top-k", 3)
    assert "for each beam at most" in refused(capsys, "generate", run, "the", "--beams", 2, "--count", 3)
    assert "512 positions" in refused(capsys, "generate", run, "the " * 600)
    assert "MaskedLM or PermutedLM is needed" in refused(capsys, "fill-mask", run, "the [MASK]")


def test_evaluate_and_export(run, road, tmp_path, capsys):
    report = facts(capsys, "evaluate", run, "--data", road / "data")
    assert {"next_token", "next_accuracy", "perplexity", "bits_per_character", "unigram_loss"} <= set(report)
    assert 0 < report["bits_per_character"] < report["next_token"] / 0.6931
    assert main(["evaluate", str(run), "--data", str(road / "data")]) == 0
    output = capsys.readouterr().out
    assert "next-token accuracy" in output
    assert "clozeworks generate" in output
    assert facts(capsys, "export", run, "--out", tmp_path / "hf")["files"]
    one, other = (facts(capsys, "generate", path, "the", "--temperature", 0) for path in (run, tmp_path / "hf"))
    assert one["texts"] == other["texts"]


def test_nobody_sees_what_comes(run):
    """By gradient: the loss at a place depends on no later token, in rows of several documents too."""
    encoder = cw.load(run)
    model, table = encoder.model, encoder.model.encoder.embed.words.table
    ids = torch.randint(5, table.num_embeddings, (2, 12), generator=torch.Generator().manual_seed(0))
    seen = []
    table.register_forward_hook(lambda module, given, made: (made.retain_grad(), seen.append(made))[0])
    model.train()
    out = encoder.forward(ids, logits=True)
    weights = torch.randn(out.logits.shape[-1], generator=torch.Generator().manual_seed(1))
    (out.logits[:, 5] @ weights).sum().backward()
    reached = seen[0].grad.abs().sum(-1)
    assert (reached[:, :6] > 0).all()
    assert (reached[:, 6:] == 0).all()


def test_a_window_slides_over_the_text(run, road, capsys):
    words = ("evaluate", run, "--data", road / "data", "--max-tokens", 60)
    slid = facts(capsys, *words, "--context", 8)
    assert slid["tokens"] == 60
    assert slid["window"]["count"] == 59
    assert slid["window"]["stride"] == 1
    assert {"loss", "perplexity", "bits_per_character", "seconds_per_token"} <= set(slid["window"])
    assert "memory" not in slid
    assert facts(capsys, *words, "--context", 8, "--stride", 4)["window"]["loss"] != slid["window"]["loss"]
    assert main([str(word) for word in (*words, "--context", 8)]) == 0
    assert "window of 8, by 1" in capsys.readouterr().out
    assert "512 positions" in refused(capsys, *words, "--context", 513)
    assert "1 to 8 are within the window" in refused(capsys, *words, "--context", 8, "--stride", 9)
    assert "it is about a sliding window" in refused(capsys, *words)
    assert "reads both ways" in refused(capsys, "evaluate", road / "run", "--data", road / "data", "--context", 8)
