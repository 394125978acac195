"""One word with two meanings, in a table and in its sentence: `python -m studies.senses`.

A table of vectors has one row a word, whatever the word means there. To know what it means, homonyms are planted
(Schütze 1992): two words of a text, about as frequent, are written as one, so that every place tells which it was. A
table, a recurrent model of both ways and a model of masked words learn that text and nothing of the meanings. Measured
is, layer by layer, how often the nearest other place of a homonym, by cosine, has the same meaning. Real words can be
asked for, too, their meaning being known by a few words beside them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clozeworks.core.errors import InputError
from clozeworks.core.spec import walk
from clozeworks.corpus import english
from clozeworks.data.tokens.word_borders import is_punctuation
from clozeworks.vectors.reading import read_words
from clozeworks.vectors.table import Vectors
from clozeworks.vectors.train import skipgram
from studies import figures
from studies.study import Study, check_text, mean_interval, pretrain, workspace

STEPS, TOKENS, LENGTH = 1000, 1024, 32  # of each training: steps, tokens in each, tokens of a row
RECIPES = {"elmo": "elmo_mini", "bert": "roberta_mini"}
TIMES = {"elmo": 1, "bert": 5}  # as many steps: it predicts one token of seven, where ELMo predicts each of them twice
PAIRS, LEAST, PASSED = 24, 80, 100  # homonyms; how often each of their words stands there; the most frequent left out
PLACES = 40  # of each meaning at most
TOGETHER, HELD = 25, 5  # sentences of a document; every fifth document is not learned from
VOCAB = 8000
AROUND = 5  # words to each side whose rows in the table are a vector of the place
ROUNDING = 1e-4  # of a vector's length
EXAMPLE = "python -m studies.senses --text corpus.txt --word bank:river,shore:money,loan --plot senses.svg"


@dataclass(frozen=True, slots=True)
class Place:
    """A word in its sentence, and which of its meanings it has there."""

    sentence: list[str]
    at: int
    meaning: int


def run(
    seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS, text: str | None = None, words: Sequence[str] = ()
) -> dict[str, Any]:
    """Share of places whose nearest one has the same meaning: {"same": {vectors: {word: [one a seed]}}}, all planted
    homonyms being one word here, with how it was measured."""
    check_text(text)
    sentences = list(read_words(text or english.documents()).sentences())
    real = {name: by_cues(sentences, name, cues) for name, *cues in map(cues_of, words)}
    same: dict[str, dict[str, list[float]]] = {}
    counts: dict[str, int] = {name: len(places) for name, places in real.items()}
    for seed in seeds:
        with workspace("senses") as folder:
            written, places = planted(sentences, homonyms(sentences, seed))
            counts["planted"] = sum(map(len, places.values()))
            makers = train(written, folder, seed, steps)
            for kind, each in ({"planted": places} | {word: {word: its} for word, its in real.items()}).items():
                for layer, share in shares(makers, each).items():
                    same.setdefault(layer, {}).setdefault(kind, []).append(round(share, 4))
    return {
        "steps": {name: times * steps for name, times in TIMES.items()},
        "tokens_a_step": TOKENS,
        "seeds": list(seeds),
        "sentences": len(sentences),
        "homonyms": PAIRS,
        "places": counts,
        "same": same,
        "mean": {layer: {kind: mean_interval(values) for kind, values in each.items()} for layer, each in same.items()},
    }


def homonyms(sentences: Sequence[Sequence[str]], seed: int) -> dict[str, tuple[str, int]]:
    """word -> what is written for it, and which of the two it is: pairs of neighbours by count, drawn."""
    counts: dict[str, int] = {}
    for sentence in sentences:
        for word in sentence:
            counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[PASSED:]
    ranked = [word for word in ranked if counts[word] >= LEAST and word.isalpha() and len(word) > 2]
    if len(ranked) < 2 * PAIRS:
        needed = f"{2 * PAIRS} words that stand there {LEAST} times are needed"
        raise InputError("--text", f"{len(ranked)} such words", needed, "give more text")
    pairs = np.random.default_rng(seed).permutation(len(ranked) // 2)[:PAIRS]
    chosen = [(ranked[2 * n], ranked[2 * n + 1]) for n in pairs.tolist()]
    return {word: (a + b, meaning) for a, b in chosen for meaning, word in enumerate((a, b))}


def planted(
    sentences: Sequence[Sequence[str]], which: dict[str, tuple[str, int]]
) -> tuple[list[list[str]], dict[str, list[Place]]]:
    """The sentences to learn from, with homonyms in them, and of each homonym places in the others: as many of one
    meaning as of the other."""
    learned: list[list[str]] = []
    by_sense: dict[str, tuple[list[Place], list[Place]]] = {name: ([], []) for name, _ in which.values()}
    for number, sentence in enumerate(sentences):
        written = [which[word][0] if word in which else word for word in sentence]
        if number // TOGETHER % HELD:
            learned.append(written)
            continue
        for at, word in enumerate(sentence):
            if word in which:
                name, meaning = which[word]
                by_sense[name][meaning].append(Place(written, at, meaning))
    places = {name: balanced(*both) for name, both in by_sense.items()}
    return learned, {name: each for name, each in places.items() if each}


def balanced(first: list[Place], second: list[Place]) -> list[Place]:
    """As many of one meaning as of the other."""
    count = min(len(first), len(second), PLACES)
    return [*first[:count], *second[:count]] if count > 1 else []


def cues_of(given: str) -> tuple[str, ...]:
    """WORD:CUES:CUES, taken apart."""
    parts = tuple(given.split(":"))
    if len(parts) != 3 or not all(parts):
        raise InputError("--word", given, "WORD:CUES:CUES is needed", "such as bank:river,shore:money,loan")
    return parts


def by_cues(sentences: Sequence[list[str]], word: str, cues: Sequence[str]) -> list[Place]:
    """The places of a word whose sentence has cues of one meaning alone."""
    sets = [set(each.lower().split(",")) for each in cues]
    by_sense: tuple[list[Place], list[Place]] = ([], [])
    for sentence in sentences:
        if word in sentence:
            which = [meaning for meaning, cues in enumerate(sets) if cues.intersection(sentence)]
            if len(which) == 1:
                by_sense[which[0]].append(Place(sentence, sentence.index(word), which[0]))
    places = balanced(*by_sense)
    if not places:
        given = f"{word}: {len(by_sense[0])} and {len(by_sense[1])} places"
        raise InputError("--word", given, "two places of each meaning are needed", "give more cues or more text")
    return places


def train(sentences: list[list[str]], folder: Path, seed: int, steps: int) -> dict[str, Any]:
    """A table and two models of one text; they know nothing of meanings."""
    import clozeworks  # what a user calls, and nothing behind it

    made: dict[str, Any] = {"word2vec": skipgram(sentences, min_count=5, seed=seed, deterministic=True)}
    texts = ["\n".join(map(" ".join, sentences[n : n + TOGETHER])) for n in range(0, len(sentences), TOGETHER)]
    clozeworks.prepare(
        [{"text": each} for each in texts], folder / "data", tokenizer="words", vocab=VOCAB, lang="en", heldout=0
    )
    for name in RECIPES:
        made[name] = pretrain(recipe_for(name, seed, steps), folder / "data", folder / name)
    return made


def recipe_for(name: str, seed: int, steps: int) -> Any:
    """The recipe with short rows and without dropout."""
    import clozeworks

    r: Any = clozeworks.recipe(RECIPES[name])
    r.objective.segments.length = LENGTH
    if name == "elmo":
        r.objective.segments.streams = TOKENS // LENGTH
    for _, part in walk(r.encoder):
        if hasattr(part, "dropout"):
            setattr(part, "dropout", 0.0)  # noqa: B010
    r.train.batch_tokens, r.train.steps, r.train.seed = TOKENS, TIMES[name] * steps, seed
    r.train.save_every = r.train.evaluate_every = r.train.steps
    r.train.precision = "fp32"
    return r


def shares(made: dict[str, Any], places: dict[str, list[Place]]) -> dict[str, float]:
    """By kind of vector the share of places whose nearest one has the same meaning, a mean over words."""
    correct: dict[str, list[float]] = {}
    for each in places.values():
        meanings = np.array([place.meaning for place in each])
        for layer, vectors in described(made, each).items():
            correct.setdefault(layer, []).append(same_meaning(vectors, meanings))
    return {layer: float(np.mean(values)) for layer, values in correct.items()}


def same_meaning(vectors: np.ndarray, meanings: np.ndarray) -> float:
    """How often the nearest other vector, by cosine, has the same meaning; of several as near, the share that has.

    What all places of the word have in common is taken off first: of a layer whose vectors all point one way, nothing
    else would be seen (Ethayarajh 2019).
    """
    middle = vectors.mean(0)
    around = vectors - middle
    size = np.linalg.norm(around, axis=1, keepdims=True)
    unit = np.where(size > ROUNDING * np.linalg.norm(middle), around / np.maximum(size, 1e-12), 0)
    cosines = np.round(unit @ unit.T, 5)  # what differs by rounding alone is as near
    np.fill_diagonal(cosines, -2)
    nearest = cosines == cosines.max(1, keepdims=True)
    return float(((nearest & (meanings[:, None] == meanings)).sum(1) / nearest.sum(1)).mean())


def described(made: dict[str, Any], places: list[Place]) -> dict[str, np.ndarray]:
    """Of each kind of vector an array [places, D]."""
    table = made["word2vec"]
    summary = {
        "word2vec": np.stack([row(table, place.sentence[place.at]) for place in places]),
        "words around": np.stack([around(table, place) for place in places]),
    }
    for name in RECIPES:
        for number, layer in enumerate(layers(made[name], places)):
            summary[f"{name} {number}"] = layer
    return summary


def row(table: Vectors, word: str) -> np.ndarray:
    return table[word] if word in table else np.zeros(table.table.shape[1], np.float32)


def around(table: Vectors, place: Place) -> np.ndarray:
    """The mean of the rows of the words to both sides."""
    near = place.sentence[max(0, place.at - AROUND) : place.at] + place.sentence[place.at + 1 : place.at + 1 + AROUND]
    rows = [row(table, word) for word in near if not is_punctuation(word[0])]
    return np.mean(rows or [np.zeros(table.table.shape[1])], 0)


def layers(encoder: Any, places: list[Place]) -> list[np.ndarray]:
    """Of each layer, the first being the embedding, what it gives for the places: [places, D]."""
    tokenizer, most = encoder.tokenizer, LENGTH - 2
    unknown = tokenizer.need("unk")
    rows, columns = [], []
    for place in places:
        begin = max(0, min(place.at - most // 2, len(place.sentence) - most))
        words = place.sentence[begin : begin + most]
        known = (tokenizer.id(word) for word in words)
        ids, first = encoder.add_special_tokens([unknown if token is None else token for token in known])
        rows.append(torch.tensor(ids))
        columns.append(first + place.at - begin)
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.filler)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(each) for each in rows], batch_first=True)
    hidden = encoder.forward(tokens, mask, logits=False).hidden_states
    return [layer[torch.arange(len(rows)), torch.tensor(columns)].numpy() for layer in hidden]


def draw(results: dict[str, Any], path: str) -> None:
    """A bar the mean over the seeds and a dot each of them."""
    title = "The nearest other place of a word has the same meaning"
    figures.grouped_bars(results["same"], path, title, "share of places", 0.5, "by chance")


STUDY = Study(
    name="senses",
    about="One word with two meanings: vectors of a table, and of each layer of two models.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
    text=True,
    options={
        "--word": {
            "dest": "words",
            "action": "append",
            "default": [],
            "metavar": "WORD:CUES:CUES",
            "help": "a real word, and words that tell its two meanings; may be repeated",
        },
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
