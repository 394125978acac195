"""Every format and every mask trains: a few real steps, and the loss falls."""

import json
from pathlib import Path

import pytest

from clozeworks.core import spec
from clozeworks.data.shards.prepare import prepare
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.mask import MaskNgrams, MaskPhrases, MaskSpans, MaskTokens, MaskWholeWords
from clozeworks.objectives.segments import (
    DocSentences,
    FullSentences,
    Pairs,
    SegmentPair,
    SentenceOrder,
    SentencePair,
    Stream,
)
from clozeworks.train.pretrain import pretrain
from tests.train.conftest import documents

MASKS = [MaskTokens(), MaskWholeWords(), MaskNgrams(), MaskSpans(), MaskPhrases(stage="entity"), MaskTokens(copies=2)]
# A few steps, none of them measured on held-out text or saved but the last: only that the loss falls is looked at.
SHORT = {"steps": 24, "learning_rate": 1e-2, "evaluate_every": 24, "save_every": 24}
FORMATS = [SegmentPair(32), SentencePair(32), FullSentences(32), DocSentences(32), SentenceOrder(32), Stream(32, 4)]


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [" ".join(document.sentences or ()) for document in documents(150, 1)]
    rows = [{"text": text, "entities": [[0, text.index(" ", 8)]]} for text in texts]
    out = tmp_path_factory.mktemp("annotated") / "data"
    prepare(rows, out, vocab=400, heldout=0.1)
    return out


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"a": sentence, "b": sentence[::-1]} for d in documents(60, 2) for sentence in d.sentences or ()]
    out = tmp_path_factory.mktemp("pairs") / "data"
    prepare(rows, out, vocab=400, heldout=0.1, pairs=("a", "b"))
    return out


def falls(recipe, data: Path, run: Path) -> list[str]:
    spec.check(recipe, recipe.name)
    notes = pretrain(recipe, [(data, 1.0)], run, progress=False).notes
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "split" not in row]
    assert rows[-1]["masked_lm"] < rows[0]["masked_lm"] - 0.3
    assert rows[-1]["step"] == recipe.train.steps
    return notes


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: f"{type(mask).__name__}-{mask.copies}")
def test_every_mask_trains(mask, annotated, tiny, tmp_path):
    r = tiny(**SHORT)
    r.objective.corruption = mask
    falls(r, annotated, tmp_path / "run")


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: type(format).__name__)
def test_every_format_trains(format, annotated, tiny, tmp_path):
    r = tiny(**SHORT)
    r.objective.segments = format
    r.objective.losses = (MaskedLM(), *([SentenceRelation()] if "pair_label" in format.writes else []))
    falls(r, annotated, tmp_path / "run")


def test_two_sided_text_trains_and_tells_what_is_cut(pairs, tiny, tmp_path):
    r = tiny(**SHORT)
    r.objective.segments, r.objective.losses = Pairs(16, 8), (MaskedLM(),)
    assert any("longer than their room" in note for note in falls(r, pairs, tmp_path / "run"))


def test_a_model_without_segment_types_takes_pairs_as_they_are(annotated, tiny, tmp_path):
    r = tiny(**SHORT)
    r.encoder.embed.segments = 1
    falls(r, annotated, tmp_path / "run")
