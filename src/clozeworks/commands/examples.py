"""clozeworks examples"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from clozeworks.commands import named
from clozeworks.commands.arguments import Options
from clozeworks.commands.screen import closing, emit, screen
from clozeworks.data.rows import Epoch, Source
from clozeworks.data.shards import Corpus
from clozeworks.data.tokenizer import Tokenizer
from clozeworks.examples import NOTHING, Ragged
from clozeworks.pretraining import Recipe

MASKED, RANDOM, KEPT = "black on yellow", "white on red", "black on cyan"
GROUND = ("", "magenta")  # segments A and B
LEGEND = ("hidden word", "random word", "kept word", "the same")
PAIRS = {0: "B follows A", 1: "B is from another document"}


def run(options: Options) -> None:
    recipe = named.recipe(options.recipe, options.set)
    directory = named.existing(options.data, "a prepared directory")
    text, tokenizer = Corpus.open(directory, options.split), Tokenizer.load(directory)
    seed = recipe.train.seed if options.seed is None else options.seed
    epoch = epoch_of(recipe, text, tokenizer, seed, options.epoch)
    count = len(epoch.plan)
    index = np.arange(min(options.count, count))
    ragged = epoch.examples(index, sentences=True)
    if options.json:
        for at in range(len(index)):
            emit(as_json(ragged, at, tokenizer, int(index[at]), options.epoch))
        return
    console = screen()
    where = f"epoch {options.epoch} of {recipe.name} on {directory}"
    console.print(f"{count:,} examples in {where}, here the first {len(index)}")
    legend(console, tokenizer)
    for at in range(len(index)):
        console.print()
        for line in drawn(ragged, at, tokenizer):
            console.print(line)
    command = f"clozeworks pretrain {options.recipe} --data {shlex.quote(str(options.data))} --out run"
    closing(console, None, command)


def epoch_of(recipe: Recipe, text: Corpus, tokenizer: Tokenizer, seed: int, number: int) -> Epoch:
    objective = recipe.objective
    return Source(text, objective.segments, objective.corruption, tokenizer.vocabulary(), seed).epoch(number)


def as_json(ragged: Ragged, at: int, tokenizer: Tokenizer, index: int, epoch: int) -> dict[str, Any]:
    """One example, unpadded."""
    here = slice(ragged.first[at], ragged.first[at + 1])
    labels = ragged.labels if ragged.labels is not None else np.full(len(ragged.tokens), NOTHING)
    sentences = ragged.sentence_starts
    row = {
        "tokens": [tokenizer.token(token) for token in ragged.tokens[here]],
        "input_ids": ragged.tokens[here].tolist(),
        "labels": labels[here].tolist(),
        "segment_ids": ragged.segment[here].tolist(),
        "word_starts": ragged.word_starts[here].tolist(),
        "sentence_starts": sentences[here].tolist() if sentences is not None else [],
        "index": index,
        "epoch": epoch,
    }
    return row | {name: values[at].item() for name, values in ragged.fields.items()}


# ---- in colour


@dataclass(frozen=True, slots=True)
class Piece:
    """A token as it is drawn."""

    text: str
    hidden: str | None  # what is to be predicted
    fate: str  # "", "masked", "random" or "kept"
    segment: int
    joined: bool  # no space before it


def pieces(ragged: Ragged, at: int, tokenizer: Tokenizer) -> Iterator[Piece]:
    here = range(ragged.first[at], ragged.first[at + 1])
    mask = tokenizer.need("mask")
    for place in here:
        token, label = int(ragged.tokens[place]), NOTHING if ragged.labels is None else int(ragged.labels[place])
        fate = ""
        if label != NOTHING:
            fate = "masked" if token == mask else "kept" if token == label else "random"
        inside = not ragged.special[place] and not ragged.word_starts[place]
        name = tokenizer.names["mask"] if fate == "masked" else spelt(tokenizer, token)
        yield Piece(name, spelt(tokenizer, label) if fate else None, fate, int(ragged.segment[place]), inside)


def spelt(tokenizer: Tokenizer, token: int) -> str:
    """A token as people read it, without the marks of its tokenizer."""
    if token in tokenizer.special_ids:
        return tokenizer.token(token)
    return tokenizer.decode([token]).strip().removeprefix("##") or tokenizer.token(token)


def drawn(ragged: Ragged, at: int, tokenizer: Tokenizer) -> list[Text]:
    """An example in colour, a paragraph a segment; what is hidden stands in parentheses behind its place."""
    found: dict[int, Text] = {}
    for piece in pieces(ragged, at, tokenizer):
        new = piece.segment not in found
        text = found.setdefault(piece.segment, Text("AB"[piece.segment] + "  "))
        if not new and not piece.joined:
            text.append(" ")
        if piece.fate:
            text.append(piece.text, {"masked": MASKED, "random": RANDOM, "kept": KEPT}[piece.fate])
            text.append(f"({piece.hidden})", "bold green")
        else:
            text.append(piece.text, "dim" if piece.text in tokenizer.names.values() else GROUND[piece.segment])
    lines = list(found.values()) if len(found) > 1 else [text[3:] for text in found.values()]
    label = ragged.fields.get("pair_label")
    if label is not None:
        lines.append(Text(f"pair label {int(label[at])}: {PAIRS.get(int(label[at]), '')}", style="italic"))
    return lines


def legend(console: Console, tokenizer: Tokenizer, words: tuple[str, str, str, str] = LEGEND) -> None:
    hidden, random, kept, same = words
    answer = "bold green"
    console.print(
        Text.assemble(
            (tokenizer.names["mask"], MASKED), (f"({hidden})", answer), "   ",
            (random, RANDOM), (f"({hidden})", answer), "   ",
            (kept, KEPT), (f"({same})", answer),
        )
    )  # fmt: skip
