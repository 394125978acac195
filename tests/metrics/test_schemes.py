"""Schemes of tags: recognised from rows, completed, and which tag may follow which."""

import itertools

import pytest

from clozeworks.metrics.entities import entities
from clozeworks.metrics.schemes import Scheme, complete, follows, guessed, named


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["B-PER I-PER O B-LOC", "O O"], "BIO"),
        (["I-PER I-PER O I-LOC B-LOC", "O O"], "IOB1"),
        (["I-PER O I-LOC I-LOC"], "IOB1"),  # no B at all
        (["B-PER O B-LOC B-LOC I-PER"], "BIO"),  # one slip does not make it another scheme
        (["B-PER I-PER E-PER O S-LOC"], "BIOES"),
        (["S-LOC O"], "BIOES"),
        (["B-PER L-PER O U-LOC"], "BILOU"),
        (["B M E S S"], "BIOES"),
        (["B I B I I O"], "BIO"),
        (["DT NN VB", "O B-X"], "plain"),
        (["NN VB"], "plain"),
        (["O O"], "plain"),
        ([], "plain"),
    ],
)
def test_schemes_are_told_from_rows(lines: list[str], expected: str):
    assert guessed([line.split() for line in lines]) == expected


def test_names_alone_say_most():
    assert named(["O", "I-PER", "B-PER"]) == "BIO"
    assert named(["O", "U-PER"]) == "BILOU"
    assert named(["E-PER", "U-PER"]) == "plain"


def test_a_type_has_all_its_tags():
    assert complete(["I-PER", "O"], "IOB1") == ["B-PER", "I-PER", "O"]
    assert complete(["S-A"], "BIOES") == ["B-A", "E-A", "I-A", "O", "S-A"]
    assert complete(["B", "M", "E"], "BIOES") == ["B", "E", "M", "O", "S"]
    assert complete(["NN", "B-X"], "plain") == ["B-X", "NN"]


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "BIOES", "BILOU"])
def test_what_keeps_to_a_scheme_reads_the_same_strictly_and_leniently(scheme: Scheme):
    names = complete(["B-X", "B-Y"], scheme)
    kept = 0
    for tags in itertools.product(names, repeat=4):
        padded = (None, *tags, None)
        if all(follows(a, b, scheme) for a, b in itertools.pairwise(padded)):
            kept += 1
            assert entities(tags, scheme, strict=True) == entities(tags, scheme)
    assert kept > 50


def test_what_breaks_a_scheme_does_not_follow():
    assert not follows("O", "I-X", "BIO")
    assert not follows("B-Y", "I-X", "BIO")
    assert not follows(None, "I-X", "BIO")
    assert follows("I-X", "I-X", "BIO")
    assert not follows("O", "B-X", "IOB1")
    assert follows(None, "I-X", "IOB1")
    assert not follows("B-X", "O", "BIOES")
    assert not follows("I-X", None, "BIOES")
    assert follows("E-X", None, "BIOES")
    assert not follows("E-X", "E-X", "BIOES")
    assert follows("B-X", "L-X", "BILOU")
    assert follows("X", "Y", "plain")
