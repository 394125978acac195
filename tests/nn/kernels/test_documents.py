"""Documents of packed rows as columns."""

import torch

from clozeworks.core.context import Context
from clozeworks.nn.kernels.documents import Documents, documents_of, find_documents
from tests.toys import packed

LENGTHS = [[3, 4], [1, 2, 2], [6]]


def test_the_longest_comes_first_and_time_before_document():
    context = packed(LENGTHS, 7)
    documents = documents_of(context)
    assert documents.lengths.tolist() == [6, 4, 3, 2, 2, 2, 1, 1]  # padding of 2 and of 1 among them
    assert documents.first.tolist() == [14, 3, 0, 8, 10, 12, 7, 20]
    assert documents.counts.tolist() == [8, 6, 3, 2, 1, 1]
    assert documents.order[:9].tolist() == [14, 3, 0, 8, 10, 12, 7, 20, 15]


def test_without_borders_the_tokens_tell():
    context = packed(LENGTHS, 7)
    assert find_documents(context.query) == context.layout
    asked = documents_of(Context.make(context.query, context.memory))
    assert torch.equal(asked.order, documents_of(context).order)


def test_there_and_back():
    context = packed(LENGTHS, 7)
    documents, x = documents_of(context), torch.randn(3, 7, 2)
    assert torch.equal(documents.unpack(documents.pack(x)), x)
    grid = documents.grid(documents.pack(x))
    assert grid.shape == (8, 6, 2)
    assert torch.equal(grid[1, :4], x[0, 3:])
    assert not bool(grid[1, 4:].any())
    assert torch.equal(documents.ungrid(grid), documents.pack(x))


def test_rows_are_documents_in_their_order():
    x = torch.randn(3, 4, 2)
    assert torch.equal(Documents.rows(x).pack(x), x.transpose(0, 1).flatten(0, 1))


def test_partners_have_a_row_and_a_number_in_common_and_padding_has_none():
    target, source = packed([[3, 2], [4]], 6), packed([[1, 4], [5]], 7)
    here, there = documents_of(target), documents_of(source)
    partner = here.partners(target.query, there, source.query)
    named = {one: None if at < 0 else there.names(source.query)[at]
             for one, at in zip(here.names(target.query), partner.tolist(), strict=True)}  # fmt: skip
    assert named == {(0, 0): (0, 0), (0, 1): (0, 1), (1, 2): (1, 2), (0, -1): None, (1, -1): None}
