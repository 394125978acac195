"""Text in which two cues are planted: what a sentence is about, and when it comes.

A sentence is seven words of its topic and one number word, at a random place, that rises by one with every sentence
of a story. Topic tells whether two sentences belong together, the numbers tell which of them comes first; nothing
else tells anything. A document is all stories of one topic, so that a sentence of another document is always of
another topic. Every draw is a pure function of the seed.
"""

from collections.abc import Iterator

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.data.text.documents import Document

TOPICS = (
    ("river", "boat", "shore"),
    ("oven", "bread", "salt"),
    ("star", "moon", "comet"),
    ("goal", "ball", "team"),
    ("violin", "chord", "drum"),
    ("judge", "court", "law"),
    ("leaf", "root", "seed"),
    ("coin", "bank", "loan"),
)
STAGES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
WORDS = 8  # of a sentence
SENTENCES = 8  # of a story: even, so that a text cut into pairs has no pair of two stories


def documents(stories: int = 500, seed: int = 0) -> Iterator[Document]:
    """One document a topic, each of so many stories; a story begins with any number that leaves room for it."""
    for topic, words in enumerate(TOPICS):
        key = counter_rng.fold(seed, "planted", topic)
        count = stories * SENTENCES
        first = counter_rng.below(len(STAGES) - SENTENCES + 1, counter_rng.fold(key, "first"), np.arange(stories))
        stages = (first[:, None] + np.arange(SENTENCES)).ravel()
        chosen = counter_rng.below(len(words), counter_rng.fold(key, "words"), np.arange(count * WORDS)).reshape(
            count, WORDS
        )
        places = counter_rng.below(WORDS, counter_rng.fold(key, "place"), np.arange(count))
        sentences = []
        for stage, row, place in zip(stages.tolist(), chosen.tolist(), places.tolist(), strict=True):
            sentence = [words[each] for each in row]
            sentence[place] = STAGES[stage]
            sentences.append(" ".join(sentence))
        yield Document(sentences=sentences, source=f"planted#{topic}", label=words[0])
