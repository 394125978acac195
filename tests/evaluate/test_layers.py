"""Distance and cosine of each layer, held against the vectors themselves."""

import numpy as np
import pytest
import torch

from clozeworks.core.batch import from_padded
from clozeworks.evaluate.layers import Changes, measure, open_text
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.objectives.mask import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.recipe import build
from clozeworks.recipes.bert import bert_tiny


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    r = bert_tiny()
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth = 50, 32, 3
    return TextEncoder(build(r).eval(), None, r)


def test_means_over_tokens_by_hand(encoder: TextEncoder):
    ids = torch.randint(5, 50, (2, 7), generator=torch.Generator().manual_seed(0))
    result = measure(encoder.model.encoder, [from_padded(ids)])
    states = [layer.numpy().reshape(14, 32) for layer in encoder.forward(ids).hidden_states]
    assert result.tokens == 14
    assert len(result.distance) == len(result.cosine) == 3
    for layer in range(3):
        before, after = states[layer].astype(np.float64), states[layer + 1].astype(np.float64)
        cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(before, after, strict=True)]
        assert result.distance[layer] == pytest.approx(np.linalg.norm(after - before, axis=1).mean(), rel=1e-5)
        assert result.cosine[layer] == pytest.approx(np.mean(cosines), rel=1e-5)


def test_padding_is_no_token_and_a_batch_is_no_unit(encoder: TextEncoder):
    draw = torch.Generator().manual_seed(1)
    long, short = torch.randint(5, 50, (1, 9), generator=draw), torch.randint(5, 50, (1, 4), generator=draw)
    apart = measure(encoder.model.encoder, [from_padded(long), from_padded(short)])
    padded = torch.cat([long, torch.nn.functional.pad(short, (0, 5))])
    mask = torch.ones_like(padded)
    mask[1, 4:] = 0
    together = measure(encoder.model.encoder, [from_padded(padded, mask)])
    assert apart.tokens == together.tokens == 13
    assert together.distance == pytest.approx(apart.distance, rel=1e-5)
    assert together.cosine == pytest.approx(apart.cosine, rel=1e-5)


def test_deviation_is_how_uneven_the_layers_are():
    assert Changes(1, [2.0, 2.0], [0.5, 0.5]).deviation == (0.0, 0.0)
    assert Changes(1, [1.0, 3.0], [0.5, 0.9]).deviation == pytest.approx((1.0, 0.2))


def test_text_is_read_with_nothing_replaced():
    objective = Objective(FullSentences(64), MaskTokens(), bert_tiny().objective.losses)
    result = open_text(objective)
    assert (result.segments, result.corruption, result.losses) == (objective.segments, None, ())
