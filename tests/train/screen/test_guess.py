"""What the model makes of a masked token."""

import itertools
from pathlib import Path

import pytest
import torch

from clozeworks.core.batch import Batch
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.recipe import Recipe, build
from clozeworks.train.loop import fit
from clozeworks.train.pretrain import fit_to_data, open_data
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.screen.guess import first_example, guess_token
from tests.train.conftest import tiny_recipe
from tests.train.test_segment_memory import remembering

Made = tuple[Model, Tokenizer, list[Batch]]


def make_batches(recipe: Recipe, data: Path, steps: int) -> Made:
    """A model of this recipe, and the first micro-batch of each of its first steps."""
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = fit_to_data(recipe, tokenizer)
    batches = iter(PretrainingBatches(recipe, corpora, tokenizer.vocabulary()))
    return build(recipe), tokenizer, [micro[0] for micro in itertools.islice(batches, steps)]


@pytest.fixture
def made(data: Path) -> Made:
    return make_batches(tiny_recipe(), data, 3)


def test_a_step_hands_over_its_first_micro_batch(made: Made):
    model, _, (first, second, _) = made
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    steps = list(fit(model, [[first, second], [second]], optimizer, lambda _: 0.0, steps=2))
    assert [step.batch for step in steps] == [first, second]


def test_the_guess_is_that_of_the_whole_batch(made: Made):
    """Alone or packed with others, an example gives the same vectors."""
    model, tokenizer, batches = made
    for batch in batches:
        guess = guess_token(model, tokenizer, batch)
        assert guess is not None
        one = first_example(batch)
        assert one is not None
        chosen = len(one.targets) // 2
        with torch.no_grad():
            hidden = model(batch).hidden
            best = model.head("masked_lm").logits(hidden.at(batch)).argmax(-1)
        assert guess.guess == tokenizer.decode([int(best[chosen])]).removeprefix("##")
        assert guess.truth == tokenizer.decode([int(batch.labels[chosen])]).removeprefix("##")
        assert "[SEP]" not in guess.before + guess.after
        assert "[CLS]" not in guess.before


def test_looking_draws_nothing_and_leaves_no_gradient(made: Made):
    model, tokenizer, (batch, *_) = made
    before = torch.get_rng_state()
    weights = {name: value.clone() for name, value in model.named_parameters()}
    graphs: list[bool] = []
    model.encoder.register_forward_hook(lambda *_: graphs.append(torch.is_grad_enabled()))
    guess_token(model, tokenizer, batch)
    assert graphs == [False]
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in model.named_parameters():
        assert value.grad is None
        assert torch.equal(value, weights[name])


def test_a_batch_without_targets_has_no_example(made: Made):
    model, tokenizer, (batch, *_) = made
    batch.targets, batch.labels = batch.targets[:0], batch.labels[:0]
    assert first_example(batch) is None
    assert guess_token(model, tokenizer, batch) is None


def test_an_example_further_on_is_cut_out_whole(made: Made):
    _, _, (batch, *_) = made
    start, length = batch.layout.starts[1], batch.layout.lengths[1]
    assert batch.targets is not None
    later = batch.targets >= start
    batch.targets, batch.labels = batch.targets[later], batch.labels[later]
    one = first_example(batch)
    assert one is not None
    assert one.targets is not None
    assert torch.equal(one.tokens[0], batch.tokens.flatten()[start : start + length])
    assert one.token_info.position[0].tolist() == list(range(length))
    count = len(one.targets)
    assert torch.equal(one.targets + start, batch.targets[:count])
    assert torch.equal(one.labels, batch.labels[:count])


def test_what_comes_next_is_guessed_in_its_place(data: Path):
    """Of a text in streams, too: the row as it is read, with a hole where the guess stands."""
    model, tokenizer, batches = make_batches(remembering(), data, 2)
    for batch in batches:
        guess, row = guess_token(model, tokenizer, batch), batch.tokens[0].tolist()
        assert guess is not None
        text = lambda tokens: "".join(tokenizer.decode(tokens).split()).replace("##", "")  # noqa: E731
        shown = "".join(f"{guess.before}{guess.truth}{guess.after}".split())
        assert shown == text(row)
