"""The next token by clusters, beside the definition, torch's own class and the plain softmax."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from clozeworks.core import spec
from clozeworks.core.batch import Hidden
from clozeworks.core.errors import RecipeError
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.embed import Embed
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.reversible import Reversible
from clozeworks.nn.words import Adaptive, AdaptiveLayer
from clozeworks.objectives.losses import MaskedLM
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextToken, AdaptiveNextTokenLayer
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.segments import FullSentences
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from clozeworks.train.resources.cost import measure_cost
from tests.toys import batch_of, packed

VOCAB, WIDTH, CUTS = 30, 16, (5, 12)
SHAPES = [(1, 16), (1, 8), (2, 16), (2, 8)]  # divide, width of the first table


def made(divide: int = 2, inner: int = WIDTH, own: tuple[int, ...] = (0,), cuts: tuple[int, ...] = CUTS):
    torch.manual_seed(0)
    embed = Embed(None, 0, None, 0.0, width=inner, words=Adaptive(cuts, divide)).build(WIDTH, VOCAB)
    head = AdaptiveNextToken(own=own).build(WIDTH, embed)
    with torch.no_grad():
        for parameter in (*embed.parameters(), *head.parameters()):
            parameter.normal_(0, 0.7)
    assert isinstance(embed.words, AdaptiveLayer)
    return embed.words, head


def asked(count: int = 60):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, count, WIDTH, generator=generator, requires_grad=True)
    batch = batch_of(packed([[count]], count, "causal"), torch.zeros(1, count, dtype=torch.long))
    batch.targets, batch.labels = torch.arange(count), torch.randint(0, VOCAB, (count,), generator=generator)
    return x, batch, batch.labels


def by_definition(head: AdaptiveNextTokenLayer, words, x):
    """[T, V] log-probabilities, word by word."""
    begins = (0, *words.ends)
    rows = []
    for h in x:
        z = []
        for k, table in enumerate(words.weights):
            project = head.projections[str(k)].weight if str(k) in head.projections else words.projection(k)
            a = h if project is None else project.T @ h
            z.append(table @ a + head.bias[begins[k] : begins[k + 1]])
            if k == 0 and head.clusters is not None:
                z[0] = torch.cat([z[0], head.clusters.weight @ a + head.clusters.bias])
        first = z[0] - z[0].logsumexp(0)
        size = len(words.weights[0])
        rest = [first[size + k - 1] + z[k] - z[k].logsumexp(0) for k in range(1, len(z))]
        rows.append(torch.cat([first[:size], *rest]))
    return torch.stack(rows)


@pytest.mark.parametrize(("divide", "inner"), SHAPES)
@pytest.mark.parametrize("own", [(), (0,), (0, 2), (1,)])
def test_it_is_the_definition(divide, inner, own):
    words, head = made(divide, inner, own)
    x, batch, labels = asked()
    expected = by_definition(head, words, x[0])
    torch.testing.assert_close(head.logits(x)[0], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(expected.exp().sum(-1), torch.ones(len(expected)))
    wanted = -expected.gather(1, labels[:, None]).sum()
    loss, metrics = head(Hidden(x), batch)
    torch.testing.assert_close(loss, wanted)
    assert metrics["next_accuracy"].item() == (expected.argmax(-1) == labels).sum().item()
    leaves = [x, *words.parameters(), *head.parameters()]
    actual = torch.autograd.grad(loss, leaves, allow_unused=True)
    for mine, other in zip(actual, torch.autograd.grad(wanted, leaves, allow_unused=True), strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_accuracy_where_every_label_is_the_best_word():
    words, head = made()
    x, batch, _ = asked(200)
    best = by_definition(head, words, x[0]).argmax(-1)
    assert len(set((torch.bucketize(best, torch.tensor(words.ends), right=True)).tolist())) == 3
    for labels, right in ((best, 200), ((best + 1) % VOCAB, 0)):
        batch.labels = labels
        assert head(Hidden(x), batch)[1]["next_accuracy"].item() == right


def test_it_is_the_class_of_torch_where_the_two_coincide():
    """Theirs has narrower tails, but no bias inside them and no projection of the first cluster."""
    words, head = made(2, WIDTH, ())
    other = torch.nn.AdaptiveLogSoftmaxWithLoss(WIDTH, VOCAB, list(CUTS), div_value=2.0, head_bias=True)
    with torch.no_grad():
        first, clusters = words.projection(0), head.clusters
        assert first is not None
        assert clusters is not None
        first.copy_(torch.eye(WIDTH))
        head.bias[5:].zero_()
        other.head.weight.copy_(torch.cat([words.weights[0], clusters.weight]))
        other.head.bias.copy_(torch.cat([head.bias[:5], clusters.bias]))
        for k, tail in enumerate(other.tail, 1):
            for theirs, ours in zip(tail.parameters(), (words.projections[k].weight.T, words.weights[k]), strict=True):
                theirs.copy_(ours)
    x, batch, labels = asked()
    torch.testing.assert_close(head.logits(x)[0], other.log_prob(x[0]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(head(Hidden(x), batch)[0], other(x[0], labels).loss * len(labels))


@pytest.mark.parametrize("cuts", [(30,), (100, 200)])
def test_with_one_cluster_it_is_the_plain_softmax(cuts):
    words, head = made(1, WIDTH, cuts=cuts)
    assert head.clusters is None
    x, batch, labels = asked()
    expected = F.cross_entropy(F.linear(x[0], words.weights[0], head.bias), labels, reduction="sum")
    torch.testing.assert_close(head(Hidden(x), batch)[0], expected)


def test_only_labels_of_a_cluster_meet_its_words(monkeypatch):
    from clozeworks.objectives.losses import cross_entropy

    met = []
    plain = cross_entropy.compared
    monkeypatch.setattr(cross_entropy, "compared", lambda x, *rest: met.append(len(x)) or plain(x, *rest))
    _, head = made()
    x, batch, _ = asked(10)
    batch.labels = torch.tensor([0, 1, 2, 3, 4, 0, 5, 11, 29, 2])
    head(Hidden(x), batch)
    assert met == [10, 2, 1]


def test_without_predictions_it_is_nought():
    _, head = made()
    x, batch, _ = asked(4)
    batch.targets = batch.labels = torch.zeros(0, dtype=torch.long)
    loss, metrics = head(Hidden(x), batch)
    assert (loss.item(), metrics["next_accuracy"].item()) == (0.0, 0)


def clustered(cutoffs: tuple[int, ...] = (40, 80), divide: int = 2):
    r = recipe("gpt_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth = 120, 32, 1
    r.encoder.embed.words = Adaptive(cutoffs, divide)
    r.objective.losses = (AdaptiveNextToken(),)
    return r


def test_it_generates_and_gives_logits():
    r = clustered()
    model = build(r).eval()
    ids = torch.randint(0, 120, (2, 7), generator=torch.Generator().manual_seed(0))
    logits = TextEncoder(model, None, r).forward(ids).logits
    assert logits is not None
    torch.testing.assert_close(logits.exp().sum(-1), torch.ones(2, 7))
    assert len(sample(IncrementalReader(model), [3, 4], 5, Sampling(0))[0].tokens) == 5


def test_its_cost_is_known_before_it_is_built():
    plain = recipe("gpt_mini")
    plain.encoder = clustered().encoder
    plain.encoder.embed.words = None
    for r in (clustered((4000, 8000)), plain):
        r.encoder.vocab = 20_000
    saved = measure_cost(clustered((4000, 8000))).arithmetic["heads.next_token"]
    assert 0 < saved < measure_cost(plain).arithmetic["heads.next_token"]


@pytest.mark.parametrize(
    ("losses", "words", "message"),
    [
        ((NextToken(),), Adaptive((40,)), "one table, and encoder.embed.words has clusters; use AdaptiveNextToken"),
        ((MaskedLM(),), Adaptive((40,)), "one table, and encoder.embed.words has clusters"),
        ((AdaptiveNextToken(),), None, "by clusters, and there is one table; use NextToken"),
        ((AdaptiveNextToken(own=(-1,)),), Adaptive((40,)), r"own\.0 = -1"),
    ],
)
def test_a_head_for_other_words_is_refused(losses, words, message):
    r = clustered()
    r.encoder.embed.words, r.objective.losses = words, losses
    with pytest.raises(RecipeError, match=message):
        spec.check(r, r.name)


def test_vectors_wider_than_the_words_are_refused():
    r = clustered()
    block = dataclasses.replace(r.encoder.stack.block_at(0), place="pre")
    r.encoder.stack = Reversible(2, block, norm=LayerNorm())
    r.objective.segments = FullSentences()
    wide = r.encoder.width
    with pytest.raises(RecipeError, match=rf"words are as wide as the model, {wide}, and its stack gives {2 * wide}"):
        spec.check(r, r.name)
