"""A pair is worth the same packed, padded and alone; a text is translated the same in any company."""

import numpy as np
import pytest
import torch

from clozeworks.core.errors import InputError
from clozeworks.data.batches.rows import Row, Rows, Source, collate
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.pair_text import PairText
from clozeworks.inference.translate import translate
from clozeworks.model import Model
from clozeworks.objectives import Translate
from clozeworks.objectives.segments import Pairs
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.pairs import pairs

TOKENIZER = Tokenizer.train([side for pair in pairs(200) for side in pair], "wordpiece", 120)
SEGMENTS = Pairs(length=40, target_length=20)


@pytest.fixture(scope="module")
def model() -> Model:
    r = recipe("transformer_mini")
    assert r.decoder is not None
    r.encoder.width, r.encoder.vocab = 32, TOKENIZER.size
    r.encoder.stack.depth = r.decoder.stack.depth = 2
    return build(r).eval()


def rows(count: int) -> list[Row]:
    made = Rows(Source(PairText(TOKENIZER, pairs(60)), SEGMENTS, Translate(), TOKENIZER.vocabulary(), 0))
    return [made.next() for _ in range(count)]


@torch.no_grad()
def loss(model: Model, *some: Row) -> float:
    return float(model(collate(list(some))).losses["next_token"])


def test_packed_is_padded_is_alone(model: Model):
    packed = rows(5)
    single = [Row(row.epoch, np.array([index])) for row in packed for index in row.index]
    assert len(single) > 2 * len(packed)
    alone = [loss(model, one) for one in single]
    assert loss(model, *packed) == pytest.approx(sum(alone), rel=1e-5)
    assert loss(model, *single) == pytest.approx(sum(alone), rel=1e-5)
    assert len({round(value, 3) for value in alone}) > len(alone) // 2


def test_a_target_depends_on_its_own_source_alone(model: Model):
    batch = collate(rows(3))
    assert batch.source is not None
    other = collate(rows(3))
    assert other.source is not None
    changed = other.source.token_info.document == 1
    other.source.tokens = torch.where(changed, other.source.tokens.flip(1), other.source.tokens)
    with torch.no_grad():
        before, after = (model.read(each, model.specs).last for each in (batch, other))
    mine = batch.token_info.document == 1
    real = batch.token_info.document >= 0
    torch.testing.assert_close(before[real & ~mine], after[real & ~mine])
    assert not torch.allclose(before[mine], after[mine])


def test_company_changes_no_translation(model: Model):
    texts = [a for a, _ in pairs(4, seed=4)]
    together = translate(model, TOKENIZER, texts, beams=3)
    for text, one in zip(texts, together, strict=True):
        assert translate(model, TOKENIZER, [text], beams=3)[0].tokens == one.tokens
    assert [one.source for one in together] == texts
    few = translate(model, TOKENIZER, texts, beams=3, batch_tokens=1)
    assert [one.tokens for one in few] == [one.tokens for one in together]


def test_blank_texts_stay_blank_and_progress_is_reported(model: Model):
    calls: list[tuple[int, int]] = []
    texts = translate(model, TOKENIZER, ["a cat.", "", "  "], beams=1, progress=lambda *now: calls.append(now))
    assert [bool(one.tokens) for one in texts] == [True, False, False]
    assert (texts[1].text, texts[1].score) == ("", 0.0)
    assert calls[-1] == (3, 3)
    assert translate(model, TOKENIZER, [], beams=1) == []


def test_specials_are_never_written(model: Model):
    for one in translate(model, TOKENIZER, [a for a, _ in pairs(10, seed=5)], beams=2):
        assert not set(one.tokens[:-1]) & TOKENIZER.special_ids
        assert one.tokens[-1] == TOKENIZER.sep or len(one.tokens) > 50


def test_a_text_without_room_is_cut_and_says_so(model: Model):
    text = " ".join(["fox"] * 12)
    result = translate(model, TOKENIZER, [text, "a cat."], beams=1, longest=8)
    assert [one.cut for one in result] == [5, 0]
    assert result[0].tokens == translate(model, TOKENIZER, [" ".join(["fox"] * 7)], beams=1)[0].tokens


def test_an_encoder_alone_cannot_translate():
    r = recipe("bert_tiny")
    r.encoder.vocab = TOKENIZER.size
    with pytest.raises(InputError, match="an encoder alone; a decoder writes translations"):
        translate(build(r), TOKENIZER, ["x"])
