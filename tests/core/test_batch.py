import dataclasses

import pytest
import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.context import Context
from clozeworks.core.token_info import TokenInfo, visible
from tests.promises import verify_promises
from tests.toys import packed


def test_the_rule_of_visibility_case_by_case():
    document = torch.tensor([[0, 0, 0, 1, 1, -1]])
    position = torch.tensor([[0, 1, 2, 0, 1, 0]])
    full = TokenInfo.make(position, document, "full")
    assert visible(full, full)[0].int().tolist() == [
        [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1],
    ]  # fmt: skip
    causal = TokenInfo.make(position, document, "causal")
    assert visible(causal, causal)[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1],
    ]  # fmt: skip
    # a prefix of two source tokens, then two targets
    nought = torch.zeros(1, 4, dtype=torch.long)
    steps = torch.tensor([[0, 0, 1, 2]])
    prefix = TokenInfo(torch.arange(4)[None], nought, steps, steps)
    assert visible(prefix, prefix)[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    # permutation order 3, 1, 2 over tokens 0 1 2; the query stream does not see itself
    rank = torch.tensor([[2, 3, 1]])
    content = TokenInfo(torch.arange(3)[None], nought[:, :3], rank, rank)
    query = TokenInfo(torch.arange(3)[None], nought[:, :3], rank, rank - 1)
    assert visible(content, content)[0].int().tolist() == [[1, 0, 1], [1, 1, 1], [0, 0, 1]]
    assert visible(query, content)[0].int().tolist() == [[0, 0, 1], [1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["full", "causal"])
def test_verify_accepts_what_constructors_make(kind):
    context = packed([[3, 4], [2], [9]], 9, kind)
    verify_promises(context)
    verify_promises(
        from_padded(torch.ones(2, 5), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), kind=kind).context()
    )


def test_verify_catches_a_broken_promise():
    context = packed([[5]], 5, "causal")
    moved = TokenInfo(context.query.position, context.query.document, context.query.appears, context.query.sees - 1)
    with pytest.raises(AssertionError, match="causal"):
        verify_promises(Context.make(moved, context.memory, "causal", None))
    with pytest.raises(AssertionError, match="distances"):
        far = TokenInfo.make(context.query.position * 2, context.query.document, "full")
        verify_promises(Context.make(far, far, "full", 0))
    narrowed = context.narrow(sees=context.query.sees - 1)
    assert narrowed.kind == "order"
    assert narrowed.layout is None
    verify_promises(narrowed)
    assert not bool(narrowed.mask()[0, 0].diagonal().any())


def test_forgotten_memory_is_seen_by_nobody():
    side = packed([[4], [4]], 4).query
    past = side.forget(torch.tensor([True, False]))
    seen = visible(side, past)
    assert not bool(seen[0].any())
    assert bool(seen[1].any())


def test_borders_by_length_cover_every_token_once():
    borders = packed([[3, 4], [2], [9]], 9).layout
    assert borders is not None
    index, groups = borders.by_length
    assert sorted(index.tolist()) == list(range(27))
    assert sum(count * length for count, length in groups) == 27
    assert not borders.plain
    assert packed([[4], [4]], 4).layout.plain  # pyright: ignore[reportOptionalMemberAccess]


def test_what_was_read_earlier_stands_before_what_follows_and_is_seen_by_all_of_it():
    now = packed([[4], [4]], 4, "causal").query
    past = now.earlier(4).cat(now.earlier(4)).tail(3)
    assert past.position[0].tolist() == [-3, -2, -1]
    verify_promises(Context.make(now, past.cat(now), "causal", offset=3))
    rank = TokenInfo(now.position, now.document, torch.tensor([[0, 2, 1, 0]] * 2), torch.tensor([[0, 2, 1, 0]] * 2))
    assert bool(visible(rank, past).all())


def test_rows_read_from_their_end_have_distances_of_the_other_sign():
    now = packed([[4], [4]], 4).query
    backward = torch.tensor([False, True])
    turned = dataclasses.replace(now, position=torch.where(backward[:, None], -now.position, now.position))
    past = turned.earlier(4, backward)
    assert past.position.tolist() == [[-4, -3, -2, -1], [4, 3, 2, 1]]
    verify_promises(Context.make(turned, past.cat(turned), "full", offset=4, backward=backward))
    with pytest.raises(AssertionError, match="distances"):
        verify_promises(Context.make(turned, past.cat(turned), "full", offset=4))
