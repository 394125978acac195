"""Entities beside seqeval 1.2.2, whose answers to every short sequence of tags are kept as a digest."""

import hashlib
import itertools

import pytest

from clozeworks.metrics.entities import Entity, accuracy, by_type, entities, overall
from clozeworks.metrics.schemes import PREFIXES, Scheme

# Of all sequences of up to four tags (three, where the scheme has more of them) of two types, most of them invalid.
SEQEVAL = {
    ("BIO", False): "25639feca7ea6204",
    ("BIO", True): "2f5c2dc23fce0ba4",
    ("IOB1", False): "25639feca7ea6204",
    ("IOB1", True): "613178ba8c1c25af",
    ("BIOES", False): "55f5e29019e4b4df",
    ("BIOES", True): "b1f79eaafc6ce6b0",
    ("BILOU", False): "171a20d47250c311",  # with E and S for L and U, which the lenient mode of seqeval does not know
    ("BILOU", True): "a195daf292937726",
}


@pytest.mark.parametrize(("scheme", "strict"), SEQEVAL)
def test_every_short_sequence_is_read_as_seqeval_reads_it(scheme: Scheme, strict: bool):
    names = ["O", *(f"{prefix}-{each}" for each in "XY" for prefix in PREFIXES[scheme])]
    lines = []
    for length in (1, 2, 3, 4) if len(names) == 5 else (1, 2, 3):
        for tags in itertools.product(names, repeat=length):
            result = " ".join(f"{one.type} {one.start} {one.end}" for one in entities(tags, scheme, strict))
            lines.append(f"{' '.join(tags)}: {result}")
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] == SEQEVAL[scheme, strict]


TRUTH = ["B-PER I-PER O B-LOC", "O I-ORG I-ORG B-ORG O", "B-PER I-LOC I-LOC O O", "O O O"]
TOLD = ["B-PER I-PER O I-LOC", "O I-ORG I-ORG I-ORG O", "I-PER I-LOC I-LOC O B-LOC", "O B-PER O"]


def rows(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_figures_are_those_of_seqeval():
    types = by_type(rows(TRUTH), rows(TOLD))
    assert {name: (each.precision, each.recall, each.f1, each.there) for name, each in types.items()} == {
        "LOC": (pytest.approx(2 / 3), 1.0, pytest.approx(0.8), 2),
        "ORG": (0.0, 0.0, 0.0, 2),
        "PER": (pytest.approx(2 / 3), 1.0, pytest.approx(0.8), 2),
    }
    whole = overall(types)
    expected = (0.5714285714285714, 0.6666666666666666, 0.6153846153846153)
    assert (whole.precision, whole.recall, whole.f1) == pytest.approx(expected)
    assert accuracy(rows(TRUTH), rows(TOLD)) == pytest.approx(0.7058823529411765)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("BIO", (0.3333333333333333, 0.25, 0.2857142857142857)), ("IOB1", (0.4, 0.5, 0.4444444444444444))],
)
def test_strict_figures_are_those_of_seqeval(scheme: Scheme, expected: tuple[float, ...]):
    whole = overall(by_type(rows(TRUTH), rows(TOLD), scheme, strict=True))
    assert (whole.precision, whole.recall, whole.f1) == pytest.approx(expected)


def test_chinese_words_spelt_by_characters():
    assert entities(list("BMESBE"), "BIOES") == [Entity("_", 0, 3), Entity("_", 3, 4), Entity("_", 4, 6)]


def test_nothing_there_and_nothing_told_is_nought():
    whole = overall(by_type([["O"]], [["O"]]))
    assert (whole.precision, whole.recall, whole.f1) == (0, 0, 0)
    assert accuracy([], []) == 0
    assert entities(["NN", "B-X"], "plain") == []
