"""Sentences with a word to guess, before training and after."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.text import Text

from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.quickstart.messages import MESSAGES

SENTENCES = 5


@dataclass(frozen=True, slots=True)
class Cloze:
    """A sentence, and the token of it that is to be guessed."""

    ids: np.ndarray  # a sentence
    at: int  # the place to hide


class Between:
    """How often a token stands between two others in a text."""

    def __init__(self, text: Corpus, size: int):
        tokens = text.take(np.array([0]), np.array([len(text)])).tokens
        left, middle, right = (tokens[at : len(tokens) - 2 + at].astype(np.int64) for at in range(3))
        pairs = left * size + right
        self.size = size
        self.pairs = Counter(pairs.tolist())
        self.triples = Counter((pairs * size + middle).tolist())

    def share(self, left: int, token: int, right: int, least: int = 10) -> float:
        """Of all places between these two the share that hold the token; 0 where there are few of them."""
        pair = left * self.size + right
        around = self.pairs[pair]
        return self.triples[pair * self.size + token] / around if around >= least else 0.0


def clozes(text: Corpus, heldout: Corpus, tokenizer: Tokenizer, count: int = SENTENCES) -> list[Cloze]:
    """Held-out sentences, one a document, each with the word that its two neighbours predict best.

    Chosen by counting in the training text, never by what the model can do; no two have the same three tokens.
    """
    between = Between(text, tokenizer.size)
    common = set(np.argsort(-text.unigram())[:60].tolist())
    best: list[tuple[float, Cloze]] = []
    for document in range(len(heldout.documents) - 1):
        candidates = [
            (between.share(*cloze.ids[cloze.at - 1 : cloze.at + 2].tolist()), cloze)
            for cloze in _places(heldout, document, tokenizer)
            if int(cloze.ids[cloze.at]) not in common
        ]
        best += [max(candidates, key=lambda item: item[0])] if candidates else []
    best = sorted((item for item in best if item[0] > 0), key=lambda item: -item[0])
    different: dict[tuple[int, ...], Cloze] = {}
    for _, cloze in best:
        different.setdefault(tuple(cloze.ids[cloze.at - 1 : cloze.at + 2].tolist()), cloze)
    return list(different.values())[:count]


def _places(heldout: Corpus, document: int, tokenizer: Tokenizer) -> Iterator[Cloze]:
    """The words of a document, in sentences that fit on a line, that one token can fill."""
    for sentence in range(heldout.documents[document], heldout.documents[document + 1]):
        begin, end = heldout.sentences[sentence], heldout.sentences[sentence + 1]
        if 8 <= end - begin <= 22:
            ids, starts, _ = heldout.take(np.array([begin]), np.array([end]))
            for at in range(2, len(ids) - 1):
                word = tokenizer.token(int(ids[at]))
                whole = len(word) > 3 and starts[at] and starts[at + 1]
                if word.isalpha() and (whole or not word.isascii()):
                    yield Cloze(ids, at)


def show_guesses(
    fresh: TextEncoder, trained: TextEncoder, text: Corpus, heldout: Corpus, lang: str, console: Console
) -> None:
    tokenizer, messages = trained.tokenizer, MESSAGES[lang]
    assert tokenizer is not None
    for cloze in clozes(text, heldout, tokenizer):
        answer = word_of(tokenizer, int(cloze.ids[cloze.at]))
        console.print(sentence_of(cloze, tokenizer))
        line = Text(f"   {messages['hidden']} ").append(answer, "bold")
        for name, encoder, column in (("before", fresh, 22), ("after", trained, 56)):
            line.append(" " * max(2, column - line.cell_len)).append(f"{messages[name]} ")
            for word in guesses(encoder, cloze):
                line.append(" ").append(word, "bold green" if word == answer else "dim")
        console.print(line, soft_wrap=True)


@torch.no_grad()
def guesses(encoder: TextEncoder, cloze: Cloze, top: int = 3) -> list[str]:
    tokenizer = encoder.tokenizer
    assert tokenizer is not None
    ids = cloze.ids.tolist()
    ids[cloze.at] = tokenizer.need("mask")
    row = torch.tensor([[tokenizer.need("cls"), *ids, tokenizer.need("sep")]])
    logits = encoder.forward(row).logits
    assert logits is not None
    return [word_of(tokenizer, token) for token in logits[0, cloze.at + 1].topk(top).indices.tolist()]


def word_of(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_specials=False).strip().removeprefix("##") or tokenizer.token(token)


def sentence_of(cloze: Cloze, tokenizer: Tokenizer) -> Text:
    """The sentence with its hole; Chinese without the spaces that a decoder puts between characters."""

    def decode(ids: np.ndarray) -> str:
        text = tokenizer.decode(ids, skip_specials=False)
        return text if text.isascii() else text.replace(" ", "")

    left, right = decode(cloze.ids[: cloze.at]), decode(cloze.ids[cloze.at + 1 :])
    space = " " if left.isascii() else ""
    close = "" if right[:1] in tuple(".,;:!?)") else space
    return Text.assemble(left + space, (tokenizer.names["mask"], "black on yellow"), close + right)
