"""The word that follows, both ways by one softmax, of all words or of a few."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from clozeworks.core.batch import Hidden
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.embed import Embed
from clozeworks.objectives.losses.candidates import Candidates, sampled
from clozeworks.objectives.losses.next_word import NextWord, NextWordLayer
from tests.toys import batch_of, packed

VOCAB, WIDTH = 60, 5


def head(samples: int | None = None) -> NextWordLayer:
    torch.manual_seed(0)
    embed = Embed(positions=None, segments=0, norm=None).build(WIDTH, VOCAB)
    made = NextWord(samples=samples).build(2 * WIDTH, embed)
    with torch.no_grad():
        made.bias.normal_()
        made.head.weight.normal_()
    return made.double()


def case() -> tuple[Hidden, object]:
    torch.manual_seed(1)
    batch = batch_of(packed([[6], [4]], 6, "causal"), torch.zeros(2, 6, dtype=torch.long))
    batch.targets, batch.labels = torch.tensor([0, 1, 5, 6, 9]), torch.tensor([3, 59, 0, 7, 3])
    return Hidden(torch.randn(2, 6, WIDTH, dtype=torch.double, requires_grad=True)), batch


def test_all_words_is_the_cross_entropy():
    hidden, batch = case()
    made = head()
    assert made.head.weight.shape == (VOCAB, WIDTH), "one way is half of what a stack with two gives"
    loss, metrics = made(hidden, batch)
    logits = made.head(hidden.last.flatten(0, 1)[batch.targets]) + made.bias
    torch.testing.assert_close(loss, F.cross_entropy(logits, batch.labels, reduction="sum"))
    assert int(metrics["next_accuracy"]) == int((logits.argmax(-1) == batch.labels).sum())


def test_candidates_are_used_in_training_alone():
    hidden, batch = case()
    made, whole = head(20), head()
    hidden.key = DropoutKey.make(1, 2, rows=range(2))
    loss, metrics = made(hidden, batch)
    assert not metrics
    assert not math.isclose(loss.item(), whole(hidden, batch)[0].item())
    assert loss.item() == made(hidden, batch)[0].item(), "the same step, the same candidates"
    with torch.no_grad():
        torch.testing.assert_close(made(hidden, batch)[0], whole(hidden, batch)[0])
    hidden.key = DropoutKey.make(1, 3, rows=range(2))
    assert made(hidden, batch)[0].item() != loss.item()
    assert head(VOCAB).samples is None, "as many as there are is all"


def test_the_formula_by_hand():
    torch.manual_seed(0)
    x, table, bias = torch.randn(3, 4).double(), torch.randn(9, 4).double(), torch.randn(9).double()
    labels, candidates = torch.tensor([2, 5, 8]), Candidates(torch.tensor([0, 2, 3, 7]), 6)
    chance = [math.log((k + 2) / (k + 1)) / math.log(10) for k in range(9)]
    off = torch.tensor([math.log(1 - (1 - p) ** 6) for p in chance], dtype=torch.double)
    logits = x @ table.t() + bias - off
    total = 0.0
    for row, label in enumerate(labels.tolist()):
        others = [k for k in candidates.ids.tolist() if k != label]
        total += float(torch.logsumexp(logits[row, [label, *others]], 0) - logits[row, label])
    assert float(sampled(x, table, bias, labels, candidates)) == pytest.approx(total, rel=1e-12)


def test_words_are_drawn_as_often_as_the_formula_says():
    vocab, count, runs = 40, 6, 3000
    there, expected = np.zeros(vocab), np.zeros(vocab)
    for run in range(runs):
        actual = Candidates.draw(DropoutKey.make(run), count, vocab)
        assert len(set(actual.ids.tolist())) == count
        there[actual.ids.numpy()] += 1
        expected += actual.expected(torch.arange(vocab), vocab).exp().numpy()
    # Given the number of tries the chance is a guess, good to a few hundredths; frequent words come more often.
    assert np.abs(there - expected).max() / runs < 0.04
    assert there[0] > there[5] > there[39] > 0


def test_the_more_candidates_the_nearer_to_all_words():
    """Losses and gradients, over many draws: three words of four are nearer than one of eight."""
    hidden, batch = case()
    whole = head()
    exact, _ = whole(hidden, batch)
    (gradient,) = torch.autograd.grad(exact, hidden.last, retain_graph=True)
    off, far = [], []
    for samples in (8, 24, 48):
        made, losses, gradients = head(samples), [], []
        for draw in range(150):
            hidden.key = DropoutKey.make(7, draw)
            loss, _ = made(hidden, batch)
            losses.append(loss.item())
            gradients.append(torch.autograd.grad(loss, hidden.last, retain_graph=True)[0])
        off.append(np.sqrt(np.mean((np.array(losses) - exact.item()) ** 2)))
        far.append(float((torch.stack(gradients).mean(0) - gradient).norm() / gradient.norm()))
    assert off[0] > 1.5 * off[1] > 1.5 * 1.5 * off[2]
    assert off[2] < 0.1 * exact.item()
    assert far[0] > far[1] > far[2]
    assert far[2] < 0.05


def test_a_number_of_candidates_below_one_is_refused():
    with pytest.raises(RecipeError, match="1 or more"):
        check(NextWord(samples=0))
