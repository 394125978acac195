"""Both models are trained and asked alike, and what they say of two words is what the claim says."""

import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from clozeworks.core.examples import NOTHING
from clozeworks.data.batches.rows import Source
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from studies import independence
from studies.corpora.compounds import ARTICLE, COMPOUNDS, WORDS
from studies.independence import IDEAL, LENGTH, places, recipe_for, surprise
from studies.study import mean_interval


@pytest.fixture(scope="module")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return independence.texts(tmp_path_factory.mktemp("compounds"), documents=20)[1]


def source(heldout: Path, kind: str, corrupted: bool) -> Source:
    objective = recipe_for(kind, 0, 1, 1e-3).objective
    vocabulary = Tokenizer.load(heldout).vocabulary()
    return Source(Corpus.open(heldout), objective.segments, objective.corruption if corrupted else None, vocabulary, 0)


def test_both_have_the_same_size_steps_and_predictions(heldout: Path):
    masked, permuted = (recipe_for(kind, 4, 70, 2e-3) for kind in ("masked", "permuted"))
    assert masked.train == permuted.train
    assert masked.objective.segments == permuted.objective.segments
    for r in (masked, permuted):
        block = r.encoder.stack.block_at(0)
        assert (r.encoder.width, r.encoder.stack.depth, block.mixer.heads, block.ffn.inner) == (64, 2, 4, 256)
        assert (r.train.seed, r.train.steps, r.train.learning_rate) == (4, 70, 2e-3)
    for kind in ("masked", "permuted"):
        epoch = source(heldout, kind, corrupted=True).epoch(0)
        ragged = epoch.examples(np.arange(50))
        assert set(np.bincount(ragged.example[ragged.labels != NOTHING])) == {3}


def test_one_compound_of_each_row_is_asked_for(heldout: Path):
    tokenizer = Tokenizer.load(heldout)
    article = tokenizer.id(ARTICLE)
    assert article is not None
    tokens, first = places(source(heldout, "masked", corrupted=False), article)
    assert tokens.shape[1] == LENGTH
    halves = set()
    for row, at in zip(tokens.tolist(), first.tolist(), strict=True):
        words = [tokenizer.token(token) for token in row]
        assert (words[0], words[-1]) == ("[CLS]", "[SEP]")
        assert (words[at], words[at + 1]) in COMPOUNDS
        halves.add((at - 1) // WORDS)
    assert halves == {0, 1}


def test_who_knows_the_text_by_heart_reaches_the_ideal():
    """One that knows all compounds: certain with the partner in sight, else any of them."""
    first = torch.tensor([3, 5, 1])

    def knowing(tokens: Tensor, turns: Tensor, at: Tensor) -> Tensor:
        partner = torch.where(at == first, first + 1, first)
        own, other = (turns.gather(1, each[:, None])[:, 0] for each in (at, partner))
        return torch.where(other < own, 0.0, -math.log(len(COMPOUNDS)))

    result = surprise(knowing, torch.zeros(3, LENGTH, dtype=torch.long), first)
    assert result == pytest.approx(IDEAL)
    assert list(IDEAL.values()) == pytest.approx([2 * math.log(32), math.log(32), 0])


def test_a_mean_has_the_interval_of_its_seeds():
    assert mean_interval([1.0, 2.0, 3.0]) == (2.0, pytest.approx(4.303 / math.sqrt(3), abs=1e-4))
    assert mean_interval([5.0]) == (5.0, None)
    assert mean_interval([0.0, 1.0] * 10)[1] == pytest.approx(2.262 * 0.513 / math.sqrt(20), abs=1e-3)


@pytest.mark.slow
def test_it_prints_one_object_and_draws(
    heldout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(independence, "texts", lambda folder: (heldout.parent / "train", heldout))
    monkeypatch.setattr(independence, "run", functools.partial(independence.run, rates=(1e-3,)))
    words = ["--seeds", "3", "--steps", "2", "--plot", str(tmp_path / "figure.svg")]
    assert independence.main(words) == 0
    results = json.loads(capsys.readouterr().out)
    assert (results["seeds"], results["compounds"]) == ([3], len(COMPOUNDS))
    assert list(results["surprise"]) == list(results["heldout_loss_by_rate"]) == ["masked", "permuted"]
    for asked in results["surprise"].values():
        assert {name: len(values) for name, values in asked.items()} == {"at once": 1, "in turn": 1, "one hidden": 1}
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str]):
    assert independence.main(["--steps", "0"]) == 2
    assert "--steps: 0; whole numbers from 1 on" in capsys.readouterr().err


@pytest.mark.slow
def test_two_hidden_words_cost_twice_where_they_are_asked_at_once():
    """Yang et al. 2019, 2.6; and whichever model is asked in turn pays once."""
    result = independence.run(seeds=(0,), steps=600, rates=(3e-3,))["surprise"]
    for asked in result.values():
        (once,), (turn,), (one,) = asked.values()
        assert IDEAL["at once"] - 0.1 < once < IDEAL["at once"] + 1
        assert IDEAL["in turn"] - 0.1 < turn < IDEAL["in turn"] + 0.8
        assert one < 0.5
