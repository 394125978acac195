"""Texts and words in rows of ids, and what layers say of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.errors import InputError
from clozeworks.data.tokens.given_words import pieces
from clozeworks.data.tokens.tokenizer import Tokenizer

AddSpecials = Callable[[list[int]], tuple[list[int], int]]  # a text between its specials, and where it begins there


def list_texts(texts: Sequence[str] | str) -> list[str]:
    """One text or several, as a list; refused where something else is among them."""
    if not isinstance(texts, Iterable):
        raise InputError("texts", repr(texts)[:60], "a string or a list of strings is needed", "convert it")
    texts = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{number}]", repr(text)[:60], "a string is needed", "convert it")
    return texts


def check_words(sentences: Sequence[Sequence[str]]) -> None:
    """Refuse what is no list of words."""
    for number, words in enumerate(sentences):
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            given, needed = repr(words)[:60], "a list of words is needed"
            raise InputError(f"sentences[{number}]", given, needed, "split it into words")


def place_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], add_specials: AddSpecials, longest: int
) -> tuple[list[list[int]], list[np.ndarray]]:
    """A row of ids for each sentence, and where in it the first piece of each word stands."""
    rows, places = [], []
    for number, words in enumerate(pieces(tokenizer, sentences)):
        ids, begin = add_specials([index for word in words for index in word.ids])
        if len(ids) > longest:
            given, needed = f"{len(ids)} tokens", f"the model has {longest} positions"
            raise InputError(f"sentences[{number}]", given, needed, "shorten it")
        ends = np.cumsum([0, *(len(word.ids) for word in words)], dtype=np.int64)
        rows.append(ids)
        places.append(begin + ends[:-1] + np.array([word.lead for word in words], np.int64))
    return rows, places


def pad_by_length(rows: Sequence[list[int]], batch_tokens: int, pad: int) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Which rows, their ids and their mask: rows of like length together, the longest first."""
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
    while order:
        width = len(rows[order[-1]])
        count = max(1, batch_tokens // width)
        chosen, order = order[-count:], order[:-count]
        ids = torch.full((len(chosen), width), pad)
        mask = torch.zeros_like(ids)
        for at, n in enumerate(chosen):
            ids[at, : len(rows[n])], mask[at, : len(rows[n])] = torch.tensor(rows[n]), 1
        yield chosen, ids, mask


def stack_layers(layers: Sequence[Tensor], model: str) -> np.ndarray:
    """[layers, B, L, D]; those of a model whose layers differ in width are refused."""
    if len(widths := {each.shape[-1] for each in layers}) > 1:
        needed = f"layers of widths {', '.join(map(str, sorted(widths)))} make no array"
        raise InputError(model, "its layers", needed, "use forward(...).hidden_states")
    return torch.stack(list(layers)).cpu().numpy()
