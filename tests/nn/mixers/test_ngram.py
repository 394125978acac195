"""Windows of words: what they see, in which order, and what a model of them computes."""

import math

import pytest
import torch

from clozeworks.core.batch import from_padded
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.block import Block
from clozeworks.nn.mixers.ngram import Ngram
from clozeworks.nn.stack import Stack
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.toys import packed


def test_the_newest_word_comes_first_and_before_the_beginning_is_nothing():
    mixer = Ngram(4, hidden=2, direct=True).build(2)
    x = torch.arange(1.0, 11).view(1, 5, 2)
    out, _ = mixer(x, None, packed([[3, 2]], 5, "causal"))
    assert out[0, :, :6].tolist() == [
        [1, 2, 0, 0, 0, 0],
        [3, 4, 1, 2, 0, 0],
        [5, 6, 3, 4, 1, 2],
        [7, 8, 0, 0, 0, 0],  # the other document is not read
        [9, 10, 7, 8, 0, 0],
    ]
    torch.testing.assert_close(out[0, :, 6:], torch.tanh(mixer.hidden(out[0, :, :6])))


@pytest.mark.parametrize("order", [2, 3, 5])
def test_no_word_beyond_the_window_is_read(order: int):
    mixer = Ngram(order, hidden=7, direct=True).build(4)
    x = torch.randn(1, 9, 4, requires_grad=True)
    out, _ = mixer(x, None, packed([[9]], 9, "causal"))
    for i in range(9):
        (gradient,) = torch.autograd.grad((out[0, i] * torch.randn(out.shape[-1])).sum(), x, retain_graph=True)
        touched = (gradient[0].abs().sum(-1) > 0).nonzero()[:, 0].tolist()
        assert touched == list(range(max(0, i - order + 2), i + 1))


@pytest.mark.parametrize("direct", [True, False])
def test_a_model_is_the_formula_word_by_word(direct: bool):
    """y = b + W x + U tanh(d + H x), and its loss and gradients, by a loop over words in double precision."""
    r = recipe("nnlm")
    r.encoder.vocab, r.encoder.width, r.encoder.init = 11, 3, 0.5
    r.encoder.stack.block = Block(Ngram(4, 5, direct), None, norm=None, dropout=0.0, residual=False)
    model = build(r).double()
    torch.nn.init.normal_(model.heads["next_token"].bias)
    parameters = dict(model.named_parameters())
    words = [[1, 4, 2, 9, 9, 3, 10], [7, 2, 5]]
    rows = torch.tensor([words[0][:-1], [*words[1][:-1], 0, 0, 0, 0]])
    batch = from_padded(rows, torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0]]), kind="causal")
    batch.targets, batch.labels = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]), torch.tensor([*words[0][1:], *words[1][1:]])
    loss = model(batch).losses["next_token"]
    actual = torch.autograd.grad(loss, list(parameters.values()))

    vectors, hidden = parameters["encoder.embed.words.table.weight"], "encoder.stack.blocks.0.mixer.hidden"
    matrix, d = parameters[f"{hidden}.weight"], parameters[f"{hidden}.bias"]
    out, b = parameters["heads.next_token.head.weight"], parameters["heads.next_token.bias"]
    expected = torch.zeros((), dtype=torch.float64)
    for text in words:
        for t in range(1, len(text)):
            read = [text[t - k] if t >= k else None for k in (1, 2, 3)]
            x = torch.cat([torch.zeros(3).double() if word is None else vectors[word] for word in read])
            y = b + out[:, -5:] @ torch.tanh(d + matrix @ x)
            if direct:
                y = y + out[:, :9] @ x
            expected = expected - y.log_softmax(0)[text[t]]
    torch.testing.assert_close(loss, expected)
    for name, one, other in zip(
        parameters, actual, torch.autograd.grad(expected, list(parameters.values())), strict=True
    ):
        torch.testing.assert_close(one, other, msg=name)


def test_a_row_of_the_table_is_the_product_with_one_hot():
    embed = build(recipe("nnlm")).encoder.embed
    ids = torch.tensor([[3, 77]])
    context = packed([[2]], 2, "causal")
    chosen = torch.nn.functional.one_hot(ids, 16_383).float() @ embed.words.table.weight
    torch.testing.assert_close(embed(ids, context.query, context), chosen)


def test_another_width_is_not_added_to_the_old_one():
    r = recipe("nnlm")
    r.encoder.stack.block_at(0).residual = True
    message = r"nnlm\.encoder\.stack\.block\.residual = True: width 290 cannot be added to width 60; use false, or"
    with pytest.raises(RecipeError, match=message):
        check(r, "nnlm")


def test_widths_follow_from_block_to_block():
    stack = Stack(3, Block(Ngram(3, 10, direct=True), None, residual=False))
    assert [wide for _, wide in stack.layers(4)] == [4, 18, 46]
    assert stack.out_width(4) == 102
    module = stack.build(4)
    assert module(torch.randn(2, 5, 4), packed([[5], [5]], 5, "causal")).last.shape == (2, 5, 102)


@pytest.mark.parametrize(("field", "message"), [("order", "2 or more"), ("hidden", "1 or more")])
def test_windows_that_are_none_are_refused(field: str, message: str):
    spec = Ngram(5, 50)
    setattr(spec, field, 0)
    with pytest.raises(RecipeError, match=message):
        check(spec, "mixer")


def test_fresh_weights_say_that_any_word_may_follow():
    r = recipe("nnlm")
    r.encoder.vocab = 50
    batch = from_padded(torch.randint(50, (4, 30)), kind="causal")
    batch.targets, batch.labels = torch.arange(120), torch.randint(50, (120,))
    assert build(r)(batch).losses["next_token"].item() / 120 == pytest.approx(math.log(50), rel=0.01)
