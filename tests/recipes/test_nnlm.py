"""The paper's count of parameters, and a model that learns, is measured and writes by the ordinary road."""

import json
import math
import random
from pathlib import Path

import pytest
import torch

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.inference.generation import IncrementalReader
from clozeworks.nn.mixers.ngram import Ngram
from clozeworks.recipes import recipe


def counted(vocab: int, order: int, width: int, hidden: int, direct: bool) -> int:
    r = recipe("nnlm")
    r.encoder.vocab, r.encoder.width = vocab, width
    r.encoder.stack.block_at(0).mixer = Ngram(order, hidden, direct)
    return cw.count_parameters(r)


def test_counts_are_published_ones():
    assert cw.count_parameters(recipe("nnlm")) == 5_762_483
    assert counted(16_383, 5, 60, 50, direct=False) == 1_830_563


@pytest.mark.parametrize(("v", "n", "m", "h"), [(17_964, 6, 60, 100), (100, 3, 30, 1), (9, 2, 4, 7)])
def test_the_formula_of_section_2(v: int, n: int, m: int, h: int):
    assert counted(v, n, m, h, direct=True) == v * (1 + n * m + h) + h * (1 + (n - 1) * m)
    assert counted(v, n, m, h, direct=False) == v * (1 + m + h) + h * (1 + (n - 1) * m)


def test_it_learns_words_from_shards_is_measured_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each word follows from the one three before it, which a model of order 5 reads and frequencies do not know."""
    draw, names = random.Random(0), ["ox", "elk", "hen", "ape"]
    text, data, out = (str(tmp_path / name) for name in ("text.txt", "data", "run"))
    lines = [" ".join(draw.choices(names, k=3) * 8) for _ in range(150)]
    Path(text).write_text("\n\n".join(lines))
    small = {"train.steps": 60, "train.batch_tokens": 512, "train.learning_rate": 0.02, "train.precision": "fp32"}
    changed = [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    assert main(["prepare", text, "--out", data, "--tokenizer", "words", "--vocab", "64", "--heldout", "0.1"]) == 0
    assert main(["pretrain", "nnlm", "--data", data, "--out", out, *changed]) == 0
    capsys.readouterr()
    assert main(["evaluate", out, "--data", data, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["perplexity"] < 1.8 < 3 < math.exp(report["unigram_loss"])
    encoder = cw.load(out)
    ids = torch.tensor([encoder.tokenizer.encode(["ox elk hen ox"])[0].ids.tolist()])
    cached, again, logits = (
        IncrementalReader(encoder.model),
        IncrementalReader(encoder.model, cache=False),
        torch.zeros(1, 64),
    )
    for at in range(4):
        logits = cached.read(ids[:, at : at + 1])
        torch.testing.assert_close(logits, again.read(ids[:, at : at + 1]), atol=1e-5, rtol=1e-5)
    assert encoder.tokenizer.decode([int(logits.argmax())]) == "elk"
