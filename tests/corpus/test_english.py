import re
from itertools import islice

import pytest

from clozeworks import corpus
from clozeworks.core.errors import InputError
from clozeworks.corpus.english import prose
from clozeworks.data.text.sentences import split_sentences


@pytest.fixture(scope="module")
def documents():
    return list(corpus.documents("en"))


@pytest.mark.slow
def test_there_is_enough_of_it(documents):
    assert 1_200_000 < sum(len(document.text) for document in documents) < 4_000_000
    assert len(documents) > 400
    assert len({document.source for document in documents}) == len(documents)


@pytest.mark.slow
def test_labels_name_areas(documents):
    labels = [document.label for document in documents]
    assert {"topics", "asyncio", "email"} <= set(labels)
    assert all(labels)


@pytest.mark.slow
def test_it_is_the_same_each_time(documents):
    assert list(islice(corpus.documents("en"), 150)) == documents[:150]


@pytest.mark.slow
def test_it_reads_as_prose(documents):
    text = "\n".join(document.text for document in documents)
    sentences = split_sentences(text)
    assert len(sentences) > 10_000
    assert not re.search(r"^(>>>|\.\. \w+::|def \w+\()", text, re.MULTILINE)
    assert "``" not in text
    assert not re.search(r":(?:class|func|meth|mod):`", text)
    ends = sum(sentence[-1] in ".!?:)\"'" for sentence in sentences)
    assert ends > 0.7 * len(sentences)
    common = sum(len(re.findall(r"\b(?:the|a|of|to|is|in)\b", sentence)) for sentence in sentences)
    assert common > 0.15 * len(text.split())


def test_code_and_markup_are_left_out():
    text = """
        Return the *value* of :class:`dict` or ``None``, see `the docs <http://x.y>`_.

        Heading here
        ============

        An example of how the thing is used::

            >>> call(this)
            {'a': 1}

        This sentence comes after the block of code and is kept.

        >>> more(code)
        3

        * the first item of the list is here
        * the second item of the list is here

        :param x: the number that is used to count all the others
    """
    assert prose(text).split("\n") == [
        "Return the value of dict or None, see the docs.",
        "An example of how the thing is used:",
        "This sentence comes after the block of code and is kept.",
        "the first item of the list is here",
        "the second item of the list is here",
        "the number that is used to count all the others",
    ]


def test_an_unknown_language_is_refused():
    with pytest.raises(InputError, match="choose one of en, zh"):
        corpus.documents("klingon")
