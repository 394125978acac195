"""The input template: special tokens around a text or two, truncated to the sequence length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.bounds import Count, Natural
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import NOTHING, RaggedBatch
from clozeworks.core.spec import Spec
from clozeworks.data.tokens.tokenizer import Encoding, Tokenizer

Cut = Literal["longer", "first", "second"]


@dataclass(slots=True)
class InputTemplate(Spec):
    """opening a closing, or opening a between b closing; tokens by their names in the tokenizer.

    [CLS] a [SEP] b [SEP] (Devlin et al. 2018, 3.2); <s> a </s></s> b </s> (Liu et al. 2019, code); a <sep> b <sep>
    <cls> (Yang et al. 2019, code); start a delimiter b extract (Radford et al. 2018, 3.3). One special stands for the
    whole: the `summary`. The second text, with what closes it, has segment 1 where `segments` are distinguished, and a
    summary that comes last may have one of its own. With `marks` some tokens see and are seen from afar.
    """

    opening: tuple[str, ...] = ("[CLS]",)
    between: tuple[str, ...] = ("[SEP]",)
    closing: tuple[str, ...] = ("[SEP]",)
    summary: Literal["first", "last"] = "first"
    segments: bool = True
    own_segment: Natural | None = None  # of the summary
    length: Count = 512  # tokens of an example at most
    marks: bool = False

    def check(self, where: str) -> None:
        least = self.around(pair=True) + 2
        if self.length < least:
            raise RecipeError(f"{where}.length", self.length, f"two texts need {least} at least", "128 is usual")

    def around(self, pair: bool) -> int:
        """How many specials an example has."""
        return len(self.opening) + len(self.closing) + (len(self.between) if pair else 0)

    def ids(self, tokenizer: Tokenizer, names: Sequence[str]) -> list[int]:
        ids = [tokenizer.id(name) for name in names]
        for name, index in zip(names, ids, strict=True):
            if index is None:
                raise InputError("tokenizer", f"no token {name}", "the model was trained with it", "take its own")
        return [index for index in ids if index is not None]

    def lay(
        self,
        tokenizer: Tokenizer,
        first: Sequence[Encoding],
        second: Sequence[Encoding] | None = None,
        cut: Cut = "longer",
        mark: Literal["summary", "first", "second"] = "summary",
    ) -> "TemplatedExamples":
        """Examples of one text or two each, what is too long cut at the end of the `longer`, `first` or `second` text.

        `mark`: with `marks`, the summary alone is marked, the first text and all before it, or the second with all
        behind it.
        """
        opening, between, closing = (self.ids(tokenizer, n) for n in (self.opening, self.between, self.closing))
        room = self.length - self.around(second is not None)
        tokens, segment, side, at, starts, marked, lengths = [], [], [], [], [], [], []
        for n, a in enumerate(first):
            b = None if second is None else second[n]
            most_a, most_b = cuts(len(a.ids), 0 if b is None else len(b.ids), room, cut)
            parts = [(opening, -1), (a.ids[:most_a], 0)]
            if b is not None:
                parts += [(between, -1), (b.ids[:most_b], 1)]
            parts += [(closing, -1)]
            sizes = [len(ids) for ids, _ in parts]
            size = sum(sizes)
            lengths.append(size)
            tokens.append(np.concatenate([np.asarray(ids, np.int32) for ids, _ in parts]))
            side.append(np.repeat(np.array([which for _, which in parts], np.int8), sizes))
            at += [np.arange(len(ids)) if which >= 0 else np.full(len(ids), -1) for ids, which in parts]
            begin = np.concatenate([a.word_starts[:most_a], [] if b is None else b.word_starts[:most_b]]).astype(bool)
            starts.append(begin)
            own = np.zeros(size, np.int8)
            if b is not None and self.segments:
                own[sum(sizes[:3]) :] = 1
            if self.own_segment is not None:
                own[0 if self.summary == "first" else -1] = self.own_segment
            segment.append(own)
            if self.marks:
                seen = np.zeros(size, bool)
                seen[0 if self.summary == "first" else -1] = mark != "second"
                if mark == "first":
                    seen[: sizes[0] + sizes[1]] = True
                elif mark == "second":
                    seen[sum(sizes[:3]) :] = True
                marked.append(seen)
        sides = _joined(side, np.int8)
        word_starts = np.zeros(len(sides), bool)
        word_starts[sides >= 0] = _joined(starts, bool)
        ragged = RaggedBatch(
            tokens=_joined(tokens, np.int32),
            first=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            segment=_joined(segment, np.int8),
            special=sides < 0,
            word_starts=word_starts,
            labels=np.full(len(sides), NOTHING, np.int32),
            marked=_joined(marked, bool) if self.marks else None,
        )
        return TemplatedExamples(ragged, sides, _joined(at, np.int64))

    def sides(self, tokens: Tensor, tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
        """[B, L] bool each: of rows of two texts, what is before the specials between them, and what is behind."""
        between = torch.tensor(self.ids(tokenizer, self.between[:1]), device=tokens.device)
        at = (tokens == between).long().argmax(1, keepdim=True)
        place = torch.arange(tokens.shape[1], device=tokens.device)
        return place < at, place >= at + len(self.between)


@dataclass(slots=True)
class TemplatedExamples:
    """Examples, and of each of their tokens which text it is of (-1: a special) and which token of that text."""

    examples: RaggedBatch
    side: np.ndarray  # int8 [tokens]
    at: np.ndarray  # int64 [tokens]


def cuts(a: int, b: int, room: int, cut: Cut) -> tuple[int, int]:
    """How much of two texts there is room for."""
    over = a + b - room
    if over <= 0:
        return a, b
    if cut == "first":
        return max(a - over, 0), min(b, room)
    if cut == "second":
        return min(a, room), max(b - over, 0)
    least = room // 2
    if min(a, b) <= least:  # only the longer one is cut
        return (a, room - a) if a <= b else (room - b, b)
    return room - least, least


def _joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate(parts).astype(kind) if parts else np.zeros(0, kind)
