"""Raw text of any size for the prepare benchmark: the embedded corpus over and over, never the same document twice."""

import itertools
import json
from pathlib import Path

import numpy as np

from benchmarks.preparers import TOKENIZER
from clozeworks.corpus import documents
from clozeworks.data.shards.units import text_of
from clozeworks.data.text.reader import Reader
from clozeworks.data.text.sentences import split_sentences
from clozeworks.data.tokens.tokenizer import Tokenizer

TRAINED_ON = 1000  # documents that the tokenizer of a benchmark sees


def write(file: Path, megabytes: float, embedded: int | None = None) -> None:
    """A .jsonl file of so many megabytes. Each pass deals the sentences anew to documents of the original sizes.

    `embedded`: so many documents of the corpus are enough.
    """
    split = [split_sentences(document.text) for document in itertools.islice(documents("en"), embedded)]
    sentences = [sentence for document in split for sentence in document]
    ends = np.cumsum([len(document) for document in split]).tolist()
    generator, room = np.random.default_rng(0), megabytes * 1e6
    with file.open("w", encoding="utf-8") as out:
        while True:
            order = generator.permutation(len(sentences)).tolist()
            for begin, end in itertools.pairwise([0, *ends]):
                room -= out.write(json.dumps({"text": " ".join(sentences[at] for at in order[begin:end])}) + "\n")
                if room <= 0:
                    return


def train(folder: Path, text: Path, vocab: int) -> None:
    """A tokenizer for both sides, from the beginning of the text."""
    first = itertools.islice(Reader([text]).documents(), TRAINED_ON)
    (folder / TOKENIZER).mkdir()
    Tokenizer.train([text_of(document) for document in first], vocab=vocab).save(folder / TOKENIZER)
