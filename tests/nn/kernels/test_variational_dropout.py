"""One mask a text: the same at all of its tokens, its own in each text, row, step and site."""

import pytest
import torch

from clozeworks.core.context import Context
from clozeworks.core.dropout import DropoutKey
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.kernels.documents import owners
from clozeworks.nn.kernels.variational_dropout import drop_variationally
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.nn.stack import Stack
from tests.toys import packed

WIDTH, RATE = 50, 0.4
ROWS = [[3, 4], [1, 2, 2], [7], [5]]


def keyed(lengths: list[list[int]] = ROWS, step: int = 1, first: int = 0, **more) -> Context:
    key = DropoutKey.make(0, step, rows=range(first, first + len(lengths)))
    return packed(lengths, 7, "causal", key=key, **more)


def masks(context: Context) -> torch.Tensor:
    return drop_variationally(torch.ones(*context.query.position.shape, WIDTH), RATE, context)


def test_a_unit_is_missing_at_all_tokens_of_a_text_or_at_none():
    context = keyed()
    result = masks(context).flatten(0, 1)
    starts, owner = owners(context.layout, torch.device("cpu"))
    firsts = result[starts]
    assert torch.equal(result, firsts[owner])
    assert len(torch.unique(firsts, dim=0)) == len(starts), "each text has a mask of its own"
    assert result.unique().tolist() == pytest.approx([0.0, 1 / (1 - RATE)])
    lengths = [3, 4, 1, 2, 2, 2, 7, 5, 2]  # padding too
    assert owner.tolist() == [text for text, length in enumerate(lengths) for _ in range(length)]


def test_rows_of_one_text_each_take_the_short_way_to_the_same():
    plain, other = keyed([[7]] * 3), keyed([[7], [7], [5]])
    assert plain.layout.plain
    assert not other.layout.plain
    assert torch.equal(masks(plain)[:2], masks(other)[:2])
    assert torch.equal(masks(plain)[2, :5], masks(other)[2, :5])


def test_other_steps_and_sites_have_other_masks_and_the_same_step_the_same():
    assert torch.equal(masks(keyed()), masks(keyed()))
    assert not torch.equal(masks(keyed()), masks(keyed(step=2)))
    assert not torch.equal(masks(keyed().at(0)), masks(keyed().at(1)))


def test_the_rows_beside_it_have_no_say():
    whole = masks(keyed())
    for row, lengths in enumerate(ROWS):
        assert torch.equal(masks(keyed([lengths], first=row))[0], whole[row])


def test_some_places_are_dropped_as_among_all():
    context, places = keyed(), torch.tensor([1, 2, 8, 13, 20])
    whole = masks(context).flatten(0, 1)
    some = drop_variationally(torch.ones(5, WIDTH), RATE, context.replace(positions=places))
    assert torch.equal(some, whole[places])


def test_nothing_is_dropped_without_a_key_and_nothing_on_average():
    x = torch.randn(4, 7, WIDTH)
    assert drop_variationally(x, RATE, packed(ROWS, 7, "causal")) is x
    mean = torch.stack([masks(keyed(step=step)) for step in range(300)]).mean()
    assert float(mean) == pytest.approx(1.0, abs=0.02)


def test_the_last_layer_drops_so_whether_all_tokens_are_asked_for_or_some():
    torch.manual_seed(0)
    block = Block(LSTM(width=8), None, norm=None, residual=False, dropout=0.0)
    module = Stack(1, block, dropout=0.5, variational=True).build(6)
    x, places = torch.randn(4, 7, 6), torch.tensor([0, 5, 9, 27])
    raw = module(x, packed(ROWS, 7, "causal")).last
    whole = module(x, keyed(), layers=True)
    torch.testing.assert_close(whole.layers[-1], raw)
    share = torch.where(raw == 0, 0.0, whole.last / raw).flatten(0, 1)
    _, owner = owners(packed(ROWS, 7).layout, torch.device("cpu"))
    for text in range(int(owner.max()) + 1):
        assert len(share[owner == text].round(decimals=3).unique(dim=0)) == 1
    some = module(x, keyed(positions=places)).last.flatten(0, 1)
    assert torch.equal(some[places], whole.last.flatten(0, 1)[places])


def test_whole_words_are_missing_wherever_a_step_has_them():
    torch.manual_seed(0)
    embed = Embed(None, segments=0, norm=None, dropout=0.0, word_dropout=RATE).build(6, 300)
    tokens = torch.randint(0, 300, (8, 40))
    results = []
    for step in (1, 2):
        key = DropoutKey.make(0, step, rows=range(8))
        context = packed([[40]] * 8, 40, "causal", key=key)
        x = embed(tokens, context.query, context)
        share = x / embed.words(tokens)
        by_word = torch.full((300, 6), -1.0)
        for token, own in zip(tokens.flatten(), share.flatten(0, 1), strict=True):
            assert bool((by_word[token] < 0).all()) or torch.allclose(by_word[token], own), "one fate a word"
            by_word[token] = own.detach()
        seen = by_word[by_word[:, 0] >= 0]
        assert torch.allclose(seen, seen[:, :1].expand_as(seen), atol=1e-4), "of all its units"
        gone = float((seen[:, 0] == 0).float().mean())
        assert gone == pytest.approx(RATE, abs=0.1)
        assert torch.allclose(seen[seen > 0], torch.tensor(1 / (1 - RATE)), atol=1e-4)
        results.append(by_word)
        part = packed([[40]] * 3, 40, "causal", key=DropoutKey.make(0, step, rows=range(5, 8)))
        assert torch.equal(embed(tokens[5:], part.query, part), x[5:]), "the same in any cut of the step"
    assert not torch.equal(*results)
    quiet = packed([[40]] * 8, 40, "causal")
    assert torch.equal(embed(tokens, quiet.query, quiet), embed.words(tokens))
