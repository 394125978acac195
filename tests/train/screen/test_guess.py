"""What the model makes of a hidden token."""

import itertools
from pathlib import Path

import pytest
import torch

from clozeworks.recipe import build
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.run import fit_to_data, open_data
from clozeworks.train.screen.guess import SampleGuess, first_example
from tests.train.conftest import tiny_recipe
from tests.train.test_segment_memory import remembering


@pytest.fixture
def guesser(data: Path) -> SampleGuess:
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = fit_to_data(tiny_recipe(), tokenizer)
    feed = iter(PretrainingBatches(recipe, corpora, tokenizer.vocabulary()))
    return SampleGuess(build(recipe), tokenizer, itertools.islice(feed, 3))


def test_batches_pass_through(guesser: SampleGuess):
    assert guesser.look() is None, "no batch yet"
    seen = list(guesser)
    assert len(seen) == 3
    assert guesser.last is seen[-1][0]


def test_the_guess_is_that_of_the_whole_batch(guesser: SampleGuess):
    """Alone or packed with others, an example gives the same vectors."""
    for micro in guesser:
        found = guesser.look()
        assert found is not None
        batch = micro[0]
        one = first_example(batch)
        assert one is not None
        chosen = len(one.targets) // 2
        with torch.no_grad():
            hidden = guesser.model(batch).hidden
            best = guesser.model.head("masked_lm").logits(hidden.at(batch)).argmax(-1)
        assert found.guess == guesser.tokenizer.decode([int(best[chosen])]).removeprefix("##")
        assert found.truth == guesser.tokenizer.decode([int(batch.labels[chosen])]).removeprefix("##")
        assert "[SEP]" not in found.before + found.after
        assert "[CLS]" not in found.before


def test_looking_draws_nothing_and_leaves_no_gradient(guesser: SampleGuess):
    next(guesser)
    before = torch.get_rng_state()
    weights = {name: value.clone() for name, value in guesser.model.named_parameters()}
    graphs: list[bool] = []
    guesser.model.encoder.register_forward_hook(lambda *_: graphs.append(torch.is_grad_enabled()))
    guesser.look()
    assert graphs == [False]
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in guesser.model.named_parameters():
        assert value.grad is None
        assert torch.equal(value, weights[name])


def test_a_batch_without_targets_has_no_example(guesser: SampleGuess):
    batch = next(guesser)[0]
    batch.targets, batch.labels = batch.targets[:0], batch.labels[:0]
    assert first_example(batch) is None
    assert guesser.look() is None


def test_an_example_further_on_is_cut_out_whole(guesser: SampleGuess):
    batch = next(guesser)[0]
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
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = fit_to_data(remembering(), tokenizer)
    feed = iter(PretrainingBatches(recipe, corpora, tokenizer.vocabulary()))
    guesser = SampleGuess(build(recipe), tokenizer, itertools.islice(feed, 2))
    for micro in guesser:
        found, row = guesser.look(), micro[0].tokens[0].tolist()
        assert found is not None
        text = lambda tokens: "".join(tokenizer.decode(tokens).split()).replace("##", "")  # noqa: E731
        shown = "".join(f"{found.before}{found.truth}{found.after}".split())
        assert shown == text(row)
