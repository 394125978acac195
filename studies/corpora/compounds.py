"""Text in which compounds are planted: two words that stand side by side, each of which tells the other.

A sentence is eight words: an article, after it a compound, and five words before and behind them that are drawn one by
one. The article stands before compounds alone, so that where a compound is can be read; which of them it is cannot
be predicted from anything but itself: its first word and its last one have no other partner. Every draw is a pure
function of the seed.
"""

from collections.abc import Iterator

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.data.text.documents import Document

ARTICLE = "the"
_PAIRS = (
    "banking crisis, apple pie, rain coat, chess board, snow storm, tooth brush, wind mill, candle light, fire wood, "
    "desert island, kitchen table, bus station, police officer, traffic lamp, birth day, hand bag, horse race, "
    "sugar cane, paper clip, steel bridge, garden fence, wedding ring, night shift, water fall, school teacher, "
    "mountain peak, cotton shirt, blood pressure, stamp album, radio tower, goat cheese, oil field"
)
_WORDS = (
    "we they you who all some many few now then here there soon often never always saw heard found lost made took "
    "gave left kept told asked knew with from into over under near past after and but or so yet while big small old "
    "new long short good bad first last own same red blue green dark cold warm late early"
)
COMPOUNDS = tuple(tuple(pair.split()) for pair in _PAIRS.split(", "))
FILLER = tuple(_WORDS.split())
WORDS = 8  # of a sentence
SENTENCES = 40  # of a document


def documents(count: int = 400, seed: int = 0) -> Iterator[Document]:
    """So many documents; every compound and every place in a sentence is equally likely."""
    for number in range(count):
        key = counter_rng.fold(seed, "compounds", number)
        each = np.arange(SENTENCES)
        compounds = counter_rng.below(len(COMPOUNDS), counter_rng.fold(key, "which"), each)
        places = counter_rng.below(WORDS - 2, counter_rng.fold(key, "place"), each)
        filler = counter_rng.below(len(FILLER), counter_rng.fold(key, "filler"), np.arange(SENTENCES * WORDS))
        sentences = []
        for compound, place, row in zip(compounds, places, filler.reshape(SENTENCES, WORDS).tolist(), strict=True):
            sentence = [FILLER[word] for word in row]
            sentence[place : place + 3] = [ARTICLE, *COMPOUNDS[compound]]
            sentences.append(" ".join(sentence))
        yield Document(sentences=sentences, source=f"compounds#{number}")
