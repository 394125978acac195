"""How tags of single words spell entities of several: B-PER I-PER is one entity of type PER.

    BIO     B opens an entity, I continues it, O is outside (IOB2)
    IOB1    I opens and continues; B opens only where an entity of the same type has just ended
    BIOES   B opens, I continues, E ends, S is an entity of one word; M, as Chinese corpora write, is I
    BILOU   the same with L for E and U for S
    plain   tags that spell nothing, parts of speech for one

A tag without a type, B alone, is of type _: so words are spelt by the characters of a text.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

Scheme = Literal["BIO", "IOB1", "BIOES", "BILOU", "plain"]
PREFIXES: dict[Scheme, str] = {"BIO": "BI", "IOB1": "BI", "BIOES": "BIES", "BILOU": "BILU", "plain": ""}
OUTSIDE = "O"
UNTYPED = "_"
_TAG = re.compile(r"O|[BIESLUM](-.+)?", re.DOTALL)
_SAME = {"L": "E", "U": "S", "M": "I"}


def split(tag: str) -> tuple[str, str]:
    """What a tag does, one of O B I E S, and the type that it is of."""
    return _SAME.get(tag[:1], tag[:1]), tag[2:] or UNTYPED


def guessed(tags: Iterable[Sequence[str]]) -> Scheme:
    """The scheme that sequences of tags keep to.

    What tells IOB1 from BIO is what opens most entities that follow none of their own type.
    """
    sequences = list(tags)
    names = {tag for sequence in sequences for tag in sequence}
    scheme = named(names)
    if scheme != "BIO":
        return scheme
    opened = {"B": 0, "I": 0}
    for sequence in sequences:
        before = OUTSIDE, UNTYPED
        for now in map(split, sequence):
            if now[0] != OUTSIDE and (before[0] == OUTSIDE or before[1] != now[1]):
                opened[now[0]] += 1
            before = now
    return "IOB1" if opened["I"] > opened["B"] else "BIO"


def named(tags: Iterable[str]) -> Scheme:
    """What the names of all tags say; BIO and IOB1 have the same ones, and the usual is taken."""
    names = set(tags)
    if not names - {OUTSIDE} or not all(map(_TAG.fullmatch, names)):
        return "plain"
    prefixes = {name[0] for name in names}
    if prefixes & set("ESM"):
        return "plain" if prefixes & set("LU") else "BIOES"
    return "BILOU" if prefixes & set("LU") else "BIO"


def complete(tags: Iterable[str], scheme: Scheme) -> list[str]:
    """These tags, and all others that the scheme has for their types: rows to come may well have them."""
    names = set(tags)
    inside = "M" if any(name[0] == "M" for name in names) and scheme == "BIOES" else "I"
    types = {name[1:] for name in names if name != OUTSIDE} if scheme != "plain" else set()
    names |= {prefix.replace("I", inside) + each for each in types for prefix in PREFIXES[scheme]}
    return sorted(names | ({OUTSIDE} if types else set()))


def follows(before: str | None, now: str | None, scheme: Scheme) -> bool:
    """Whether a tag may stand behind another; None is the edge of the text."""
    if scheme == "plain":
        return True
    (was, kind), (does, type_) = (split(OUTSIDE if tag is None else tag) for tag in (before, now))
    same = was != OUTSIDE and does != OUTSIDE and kind == type_
    if scheme == "IOB1":
        return does != "B" or same
    if scheme == "BIO":
        return does != "I" or same
    return (was in "BI") == (does in "IE") and (same or does not in "IE")
