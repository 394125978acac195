"""Words by their characters: how they are written, and what is made of that."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.model import initialise
from clozeworks.nn.characters import BEGIN, BLANK, CHARACTERS, CLOSES, END, OPENS, Characters, CharactersLayer, spelled

SPEC = Characters(filters=((1, 3), (2, 4), (4, 5)), width=6, highways=2, length=12)
WORDS = ["[PAD]", "[CLS]", "[SEP]", "a", "play", "plays", "bank", "überlange", "银行", "internationalisation"]


def layer(spec: Characters = SPEC, words: list[str] = WORDS) -> CharactersLayer:
    module = spec.build(len(words), 7, 8)
    initialise(module, 0.02, 0)
    module.spell(words, 1, 2)
    return module


def by_hand(module: CharactersLayer, letters: list[int]) -> torch.Tensor:
    """From the published numbers of characters, each one up, 0 being none."""
    x = module.letters[torch.tensor(letters) + 1].t()[None]
    results = []
    for each in module.convolutions:
        results.append(F.conv1d(x, each.weight, each.bias).max(-1).values.relu())
    x = torch.cat(results, -1)
    for each in module.highways:
        g = torch.sigmoid(x @ each.gate.weight.t() + each.gate.bias)
        x = g * torch.relu(x @ each.change.weight.t() + each.change.bias) + (1 - g) * x
    return (x @ module.project.weight.t() + module.project.bias)[0]


def published(word: bytes | int, length: int) -> list[int]:
    """Bytes 0 to 255, the ends of a sentence 256 and 257, those of a word 258 and 259, 260 behind it."""
    letters = [word] if isinstance(word, int) else list(word[: length - 2])
    whole = [258, *letters, 259]
    return whole + [260] * (length - len(whole))


@pytest.mark.parametrize("number", range(len(WORDS)))
def test_the_published_numbers_of_characters(number):
    module = layer()
    word = {1: 256, 2: 257}.get(number, WORDS[number].encode())
    torch.testing.assert_close(module(torch.tensor(number)), by_hand(module, published(word, SPEC.length)))


def test_words_are_told_apart_and_computed_once(monkeypatch):
    module, sizes = layer(), []
    vectors = CharactersLayer.vectors
    monkeypatch.setattr(CharactersLayer, "vectors", lambda self, s: sizes.append(len(s)) or vectors(self, s))
    tokens = torch.tensor([[3, 4, 3], [4, 4, 5]])
    out = module(tokens)
    assert sizes == [3]
    assert out.shape == (2, 3, 8)
    assert torch.equal(out[0, 0], out[0, 2])
    assert len({tuple(row) for row in module(torch.arange(len(WORDS))).tolist()}) == len(WORDS)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6), st.integers(4, 20))
def test_a_word_is_its_bytes_between_two_marks(words, length):
    result, long = spelled(words, length, {})
    for row, word in zip(result, words, strict=True):
        letters = word.encode("utf-8", "replace")
        kept = letters[: length - 2]
        assert bytes(row[: len(kept) + 2]) == bytes([BEGIN]) + kept + bytes([END])
        assert (row[len(kept) + 2 :] == BLANK).all()
        assert (word in long) == (len(letters) > length - 2)


def test_what_is_too_long_is_cut_and_reported():
    module = layer()
    assert module.spell(WORDS, 1, 2) == ["internationalisation"]
    same = layer(words=[*WORDS[:-1], "internatio"])
    torch.testing.assert_close(module(torch.tensor(9)), same(torch.tensor(9)))


def test_no_word_has_parameters_but_the_table_of_bytes_is_kept():
    module = layer()
    assert module.spelling.dtype == torch.uint8
    assert not module.spelling.requires_grad
    assert "spelling" in dict(module.named_parameters())
    assert bytes(module.spelling[1, :3].tolist()) == bytes([BEGIN, OPENS, END])
    assert bytes(module.spelling[2, :3].tolist()) == bytes([BEGIN, CLOSES, END])
    assert len(module.letters) == CHARACTERS
    out = module(torch.arange(5)).sin().sum()
    out.backward()
    assert all(p.grad is not None for n, p in module.named_parameters() if n != "spelling")
    assert float(module.letters.grad[97 + 1].abs().sum()) > 0, "of the letter a"


def test_until_told_words_are_their_numbers():
    module = SPEC.build(13, 7, 8)
    initialise(module, 0.02, 0)
    expected, _ = spelled([str(n) for n in range(13)], 12, {})
    assert np.array_equal(module.spelling.numpy(), expected)


def test_highways_begin_as_passages():
    module = layer()
    assert set(module.highways[0].gate.bias.tolist()) == {-2.0}


@pytest.mark.parametrize(
    "part",
    [Characters(()), Characters(((0, 3),)), Characters(((7, 3),), length=5), Characters(width=0), Characters(length=2)],
)
def test_what_cannot_be_is_refused(part):
    with pytest.raises(RecipeError):
        check(part)
