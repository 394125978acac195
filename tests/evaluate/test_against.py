"""Two models on the same examples."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tables import read_table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.against import compare_answers, compare_text, renumber, row_losses, token_ids, unit_batches
from clozeworks.evaluate.text import evaluate_text
from clozeworks.inference.text_encoder import load
from tests.labelled import rows


def disturbed(path: Path, size: float):
    encoder = load(path)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    return encoder


def test_rows_add_up_to_what_evaluate_says(road: Path):
    encoder, text = load(road / "run"), Corpus.open(road / "data", "heldout")
    tokenizer = Tokenizer.load(road / "data")
    result = row_losses(encoder.model, unit_batches(encoder, text, tokenizer), "masked_lm")
    known = evaluate_text(encoder, road / "data")
    assert result.mean == pytest.approx(known["masked_lm"], rel=1e-5)
    assert result.counts.sum() == known["count"]
    assert len(result.counts) > 10


def test_a_model_differs_from_itself_by_nothing_and_from_a_worse_one_by_its_loss(road: Path):
    encoder, text = load(road / "run"), Corpus.open(road / "data", "heldout")
    same = compare_text(encoder, load(road / "run"), text)
    assert same.differences["loss"] == (0.0, 0.0, 0.0)
    worse = compare_text(disturbed(road / "run", 0.2), encoder, text)
    difference = worse.differences["loss"]
    assert difference.value == pytest.approx(worse.ours["loss"] - worse.theirs["loss"])
    assert 0 < difference.low < difference.value < difference.high


def test_tokens_have_other_numbers_in_a_smaller_vocabulary(road: Path):
    encoder, text = load(road / "run"), Corpus.open(road / "data", "heldout")
    read = Tokenizer.load(road / "data")

    class Trimmed:
        fingerprint, size = "other", read.size - 1

        def id(self, token: str) -> int | None:
            return None if token == read.token(read.size - 1) else (read.id(token) or 0)

        def need(self, role: str) -> int:
            return read.need(role)

    class Other:
        tokenizer, recipe = Trimmed(), encoder.recipe

    ids = token_ids(read, Other())
    assert ids is not None
    assert ids[:-1].tolist() == list(range(read.size - 1))
    assert int(ids[-1]) == read.need("unk")
    before, after = (list(renumber(unit_batches(encoder, text, read), each)) for each in (None, ids))
    assert all(torch.equal(ids[one.tokens], other.tokens) for one, other in zip(before, after, strict=True))
    assert all(torch.equal(ids[one.labels], other.labels) for one, other in zip(before, after, strict=True))
    Trimmed.size = read.size + 5  # tokens that the text knows nothing of
    with pytest.raises(InputError, match="another tokenizer"):
        token_ids(read, Other())


def test_answers_by_every_metric_of_the_task(tuned: Path):
    task = load(tuned).recipe.task
    table = read_table(rows(40, 3), task.columns, task.truth).table
    right = [{"label": row["label"], "scores": {"warm": 0.5, "cold": 0.5}} for row in table.rows]
    flip = {"warm": "cold", "cold": "warm"}
    wrong = [{**answer, "label": flip[answer["label"]]} if at < 8 else answer for at, answer in enumerate(right)]
    result = compare_answers(task, wrong, right, table)
    assert result.ours["accuracy"] == pytest.approx(0.8)
    difference = result.differences["accuracy"]
    assert difference.value == pytest.approx(-0.2)
    assert -0.4 < difference.low < -0.2 < difference.high < 0
    assert (result.only_ours, result.only_theirs) == (0, 8)
    assert result.p == pytest.approx(2 * 0.5**8)
    assert {"f1", "mcc"} <= result.differences.keys()
    assert np.isfinite([each for one in result.differences.values() for each in one]).all()
