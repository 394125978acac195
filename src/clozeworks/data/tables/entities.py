"""Entities that are marked in a text by their characters, as words and tags.

{"text": "Ann is in Rome", "entities": [[0, 3, "PER"], [10, 14, "LOC"]]}        doccano, and lists in any order
{"text": ..., "spans": [{"start": 0, "end": 3, "label": "PER"}]}               and other names of these
{"text": ..., "label": {"name": {"Ann": [[0, 2]]}}}                            CLUENER, the last character given
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clozeworks.core.errors import InputError
from clozeworks.data.records.wording import describe
from clozeworks.data.tables.table import PLACES, Row
from clozeworks.data.tables.values import plain
from clozeworks.data.tokens.cut import Span, characters, cut

STARTS = ("start", "start_offset", "start_idx", "start_pos", "begin")
ENDS = ("end", "end_offset", "end_idx", "end_pos")
TYPES = ("label", "type", "tag", "entity_type", "entity_group", "labels", "category")
TEXTS = ("text", "entity", "word", "mention", "value")
BELOW = "entities"


class Entity(NamedTuple):
    """What a file marks: characters from `begin` to `end`, whichever way it counts the end, and what they are."""

    begin: int
    end: int
    type: str
    text: str | None  # where it is given, it decides whether the end is the last character or the one behind it


def is_marked(tags: Any) -> bool:
    """Whether this gives entities by their places, and not tags one a word."""
    tags = plain(tags)
    listed = isinstance(tags, list | tuple) and all(isinstance(one, Mapping | list | tuple) for one in tags)
    return isinstance(tags, Mapping) or listed


def marked(text: str, tags: Any, where: str, counts: Counter[str]) -> Row:
    """The words of a text with their tags, B- and I- and O.

    An entity that lies in a longer one, or crosses it, is left out: `nested` counts them. Of one that ends inside a
    word the whole word is taken: `inside` counts those.
    """
    places = cut(text)
    spelled = ["O"] * len(places)
    entities = [_placed(entity, text, where) for entity in _entities(plain(tags), where)]
    for begin, end, kind in sorted(entities, key=lambda one: (one[0] - one[1], one[0])):
        words = [at for at, place in enumerate(places) if place[0] < end and begin < place[1]]
        if any(spelled[at] != "O" for at in words):
            counts["nested"] += 1
            continue
        counts["inside"] += (places[words[0]][0], places[words[-1]][1]) != (begin, end)
        for at in words:
            spelled[at] = f"{'B' if at == words[0] else 'I'}-{kind}"
    return {"tokens": _words(text, places), "tags": spelled, "text": text, PLACES: places}


def spread(text: str, tags: Sequence[str]) -> Row | None:
    """A text with a tag for each of its characters, white space counted or not; None: it has another number."""
    places = characters(text)
    if len(tags) == len(text) != len(places):
        tags = [tag for tag, character in zip(tags, text, strict=True) if not character.isspace()]
    return {"tokens": _words(text, places), "tags": list(tags)} if len(tags) == len(places) else None


def _words(text: str, places: Sequence[Span]) -> list[str]:
    return [text[begin:end] for begin, end in places]


def _entities(given: Any, where: str) -> Iterator[Entity]:
    if isinstance(given, Mapping) and BELOW in given:
        given = plain(given[BELOW])
    if isinstance(given, Mapping):
        for kind, texts in given.items():
            if not isinstance(texts, Mapping):
                raise _refused(texts, where)
            for text, places in texts.items():
                if not isinstance(places, list | tuple) or not all(isinstance(each, list | tuple) for each in places):
                    raise _refused(places, where)
                for place in places:
                    yield _entity([*place, str(kind)], where)._replace(text=str(text))
        return
    for one in given:
        yield _entity(one, where)


def _entity(one: Any, where: str) -> Entity:
    """Of a dict, or of two numbers and a type in any order."""
    text = None
    if isinstance(one, Mapping):
        start, end, kind = (next((one[key] for key in keys if key in one), None) for keys in (STARTS, ENDS, TYPES))
        kind = kind[0] if isinstance(kind, list | tuple) and len(kind) == 1 else kind
        text = next((one[key] for key in TEXTS if isinstance(one.get(key), str)), None)
    else:
        numbers = [each for each in one if isinstance(each, int) and not isinstance(each, bool)]
        names = [each for each in one if isinstance(each, str)]
        if len(one) != 3 or len(names) != 1 or len(numbers) != 2:
            raise _refused(one, where)
        (start, end), kind = numbers, names[0]
    if not isinstance(start, int) or not isinstance(end, int) or kind is None or not str(kind).strip():
        raise _refused(one, where)
    return Entity(start, end, str(kind).strip(), text)


def _refused(one: Any, where: str) -> InputError:
    needed = "where an entity starts, where it ends and what it is are needed"
    todo = 'write {"start": 0, "end": 3, "label": "PER"}'
    return InputError(where, f"an entity as {describe(one)}: {str(one)[:60]}", needed, todo)


def _placed(entity: Entity, text: str, where: str) -> tuple[int, int, str]:
    """[begin, end) without the white space at its edges, and the type."""
    begin, end = entity.begin, entity.end
    if entity.text is not None and text[begin:end] != entity.text and text[begin : end + 1] == entity.text:
        end += 1
    inside = 0 <= begin < end <= len(text) and text[begin:end].strip() != ""
    if not inside or (entity.text is not None and text[begin:end].strip() != entity.text.strip()):
        named = f" {entity.text[:40]!r}" if entity.text is not None else ""
        given = f"the entity{named} is not at {entity.begin} to {entity.end}"
        needed = f"characters of the text, which has {len(text)}, are needed"
        raise InputError(where, given, needed, "mend the row; characters are counted from 0")
    lead = len(text[begin:end]) - len(text[begin:end].lstrip())
    return begin + lead, begin + len(text[begin:end].rstrip()), entity.type
