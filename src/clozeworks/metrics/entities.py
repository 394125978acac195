"""Entities that tags spell, and how many of them were predicted.

Two ways to read a sequence that breaks its scheme are in use, and give other scores:

    lenient   what begins wrongly is an entity all the same: I-PER after O opens one, a change of type ends one and
              opens the next (conlleval; the default of seqeval). The usual scores are of this kind
    strict    what does not begin, continue and end as its scheme says is no entity (seqeval, mode="strict")

An entity counts as right if its type and both of its borders are right. Nought divided by nought is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clozeworks.metrics.schemes import OUTSIDE, UNTYPED, Scheme, split


class Entity(NamedTuple):
    """The type of an entity, and its words."""

    type: str
    start: int  # its first word
    end: int  # behind its last


def entities(tags: Sequence[str], scheme: Scheme = "BIO", strict: bool = False) -> list[Entity]:
    """In the order of the text. Read leniently, all schemes are one; plain tags spell none."""
    if scheme == "plain":
        return []
    return _strict([split(tag) for tag in tags], scheme) if strict else _lenient([split(tag) for tag in tags])


def _lenient(tags: list[tuple[str, str]]) -> list[Entity]:
    spelled, begin = [], 0
    was, kind = OUTSIDE, UNTYPED
    for at, (does, type_) in enumerate([*tags, (OUTSIDE, UNTYPED)]):
        inside = was != OUTSIDE
        breaks = was in "ES" or does in "BSO" or kind != type_
        if inside and breaks:
            spelled.append(Entity(kind, begin, at))
        if does != OUTSIDE and (not inside or breaks):
            begin = at
        was, kind = does, type_
    return spelled


def _strict(tags: list[tuple[str, str]], scheme: Scheme) -> list[Entity]:
    spelled, at = [], 0
    padded = [*tags, (OUTSIDE, UNTYPED)]
    while at < len(tags):
        before = tags[at - 1] if at else (OUTSIDE, UNTYPED)
        if not _opens(before, padded[at], scheme):
            at += 1
            continue
        end = at + 1
        while _continues(padded[end - 1], padded[end]):
            end += 1
        if _may_end(padded[end - 1], padded[end], scheme):
            spelled.append(Entity(padded[at][1], at, end))
        at = end
    return spelled


def _opens(before: tuple[str, str], now: tuple[str, str], scheme: Scheme) -> bool:
    does = now[0]
    if scheme != "IOB1":
        return does in "BS"
    if does == "B":
        return before[0] != OUTSIDE and before[1] == now[1]
    return does == "I" and (before[0] != "I" or before[1] != now[1])


def _continues(before: tuple[str, str], now: tuple[str, str]) -> bool:
    return before[0] in "BI" and now[0] in "IE" and before[1] == now[1]


def _may_end(last: tuple[str, str], behind: tuple[str, str], scheme: Scheme) -> bool:
    if scheme in ("BIOES", "BILOU"):
        return last[0] in "ES"
    # In IOB1 a B ends one entity and opens the next of its type; behind another type it is a mistake.
    return not (scheme == "IOB1" and last[0] == "B" and behind[0] == "B" and last[1] != behind[1])


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """How many entities were predicted, how many are there, and how many of both are the same."""

    right: int = 0
    predicted: int = 0
    there: int = 0

    @property
    def precision(self) -> float:
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.there if self.there else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.predicted + self.there) if self.predicted + self.there else 0.0


def by_type(
    truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: Scheme = "BIO", strict: bool = False
) -> dict[str, EntityCounts]:
    """Of each type that is there or was predicted, sorted; `overall` adds them up."""
    right: dict[str, list[int]] = {}
    for is_, says in zip(truth, predicted, strict=True):
        a, b = set(entities(is_, scheme, strict)), set(entities(says, scheme, strict))
        for which, each in enumerate((a & b, b, a)):
            for entity in each:
                right.setdefault(entity.type, [0, 0, 0])[which] += 1
    return {name: EntityCounts(*right[name]) for name in sorted(right)}


def overall(types: dict[str, EntityCounts]) -> EntityCounts:
    """All types together: what precision, recall and F1 mean without another word (micro)."""
    counts = ((each.right, each.predicted, each.there) for each in types.values())
    return EntityCounts(*map(sum, zip((0, 0, 0), *counts, strict=True)))


def accuracy(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of words whose tag is right."""
    pairs = [one == other for a, b in zip(truth, predicted, strict=True) for one, other in zip(a, b, strict=True)]
    return sum(pairs) / len(pairs) if pairs else 0.0
