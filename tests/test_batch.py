import pytest
import torch

from clozeworks.batch import Context, Side, from_padded, verify, visible
from tests.toys import packed


def test_the_rule_of_visibility_case_by_case():
    document = torch.tensor([[0, 0, 0, 1, 1, -1]])
    position = torch.tensor([[0, 1, 2, 0, 1, 0]])
    full = Side.make(position, document, "full")
    assert visible(full, full)[0].int().tolist() == [
        [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1],
    ]  # fmt: skip
    causal = Side.make(position, document, "causal")
    assert visible(causal, causal)[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1],
    ]  # fmt: skip
    # a prefix of two source tokens, then two targets
    nought = torch.zeros(1, 4, dtype=torch.long)
    steps = torch.tensor([[0, 0, 1, 2]])
    prefix = Side(torch.arange(4)[None], nought, steps, steps)
    assert visible(prefix, prefix)[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    # permutation order 3, 1, 2 over tokens 0 1 2; the query stream does not see itself
    rank = torch.tensor([[2, 3, 1]])
    content = Side(torch.arange(3)[None], nought[:, :3], rank, rank)
    query = Side(torch.arange(3)[None], nought[:, :3], rank, rank - 1)
    assert visible(content, content)[0].int().tolist() == [[1, 0, 1], [1, 1, 1], [0, 0, 1]]
    assert visible(query, content)[0].int().tolist() == [[0, 0, 1], [1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["full", "causal"])
def test_verify_accepts_what_constructors_make(kind):
    context = packed([[3, 4], [2], [9]], 9, kind)
    verify(context)
    verify(from_padded(torch.ones(2, 5), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), kind=kind).context())


def test_verify_catches_a_broken_promise():
    context = packed([[5]], 5, "causal")
    moved = Side(context.query.position, context.query.document, context.query.appears, context.query.sees - 1)
    with pytest.raises(AssertionError, match="causal"):
        verify(Context(moved, context.memory, "causal", None))
    with pytest.raises(AssertionError, match="distances"):
        far = Side.make(context.query.position * 2, context.query.document, "full")
        verify(Context(far, far, "full", 0))
    narrowed = context.narrow(sees=context.query.sees - 1)
    assert narrowed.kind == "order"
    assert narrowed.borders is None
    verify(narrowed)
    assert not bool(narrowed.mask()[0, 0].diagonal().any())


def test_forgotten_memory_is_seen_by_nobody():
    side = packed([[4], [4]], 4).query
    past = side.forget(torch.tensor([True, False]))
    seen = visible(side, past)
    assert not bool(seen[0].any())
    assert bool(seen[1].any())


def test_borders_by_length_cover_every_token_once():
    borders = packed([[3, 4], [2], [9]], 9).borders
    assert borders is not None
    index, groups = borders.by_length
    assert sorted(index.tolist()) == list(range(27))
    assert sum(count * length for count, length in groups) == 27
    assert not borders.plain
    assert packed([[4], [4]], 4).borders.plain  # pyright: ignore[reportOptionalMemberAccess]
