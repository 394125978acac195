"""Held-out figures of a model that translates: of each token, and of whole translations."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text as Line

from clozeworks.cli import translate
from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError
from clozeworks.data.records.counts import Counts
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.text.reader import Reader, Reading
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate import heldout
from clozeworks.evaluate.pair_text import Pair, PairText
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.inference.translate import Translation
from clozeworks.metrics.bleu import bleu
from clozeworks.screen.console import closing, columns, emit, facts, note

SCORED = 2000  # held-out pairs of a prepared directory that are translated at most
SHOWN = 3


def run(options: Options, encoder: TextEncoder, console: Console, of_data: Any) -> None:
    """`of_data` gives the figures of prepared text, as other models have them."""
    tokenizer = encoder.tokenizer
    if encoder.recipe.decoder is None:
        given, needed = encoder.recipe.name, "a model with a decoder translates, and this one has none"
        raise InputError("--test", given, needed, "use --data, or pretrain transformer_mini on pairs")
    if tokenizer is None:
        raise InputError(options.model, "no tokenizer", "text needs one", "put tokenizer.json beside it")
    if options.test is not None:
        file = existing(options.test, "a file of pairs")
        fields = fields_of(Path(file), options.pairs)
        pairs = read_pairs(file, fields)
        figures = heldout.evaluate(
            encoder.model, PairText(tokenizer, pairs), encoder.recipe.objective, encoder.vocabulary(), seed=options.seed
        )
        told = {"test": options.test, "pairs": ",".join(fields)}
    else:
        directory = existing(options.data, "a prepared directory")
        figures = of_data(encoder, directory, options.seed)
        pairs = decoded_pairs(Corpus.open(directory, "heldout"), tokenizer)
        told = {"data": options.data, "split": "heldout"}
    show = not options.json
    found = translate.translated(encoder, [a for a, _ in pairs], options.beams, options.penalty, console, show)
    wanted = [b for _, b in pairs]
    figures |= {"accuracy": figures["next_accuracy"], "translated": len(pairs)}
    figures |= bleu([one.text for one in found], wanted, lowercase=tokenizer.lowercase)
    if options.json:
        how = {"beams": options.beams, "penalty": options.penalty}
        emit({"model": options.model, **told, **how, **figures})
        return
    tell(console, figures, found, wanted)
    if options.test is None:
        note(console, "the references are held-out tokens written back as text; --test compares with the text itself")
    closing(console, None, f"clozeworks translate {shlex.quote(options.model)} {shlex.quote(pairs[0][0])}")


def fields_of(file: Path, given: str | None) -> tuple[str, str]:
    """The fields of source and target: those given, or the two that the first row of JSON lines has."""
    names: list[str] = [name.strip() for name in given.split(",")] if given is not None else []
    if given is None and file.suffix in (".jsonl", ".ndjson"):
        with file.open(encoding="utf-8", errors="replace") as stream:
            first = next((line for line in stream if line.strip()), "")
        try:
            row = json.loads(first)
        except ValueError:
            row = None
        names = [str(name) for name in row] if isinstance(row, dict) else []
        names = names if len(names) == 2 else []
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        told = given if given is not None else "not told"
        raise InputError("--pairs", told, "two fields, source and target, are needed", "for example: --pairs en,de")
    return names[0], names[1]


def read_pairs(file: str | Path, fields: tuple[str, str]) -> list[Pair]:
    reader = Reader(str(file), Reading(pairs=fields), None)
    sides = (document.sentences or [] for document in reader.documents(Counts()))
    return [(each[0], each[1]) for each in sides]


def decoded_pairs(text: Corpus, tokenizer: Tokenizer) -> list[Pair]:
    """The first held-out pairs, as far as tokens tell what they were."""
    if (np.diff(text.documents) != 2).any():
        todo = "prepare pairs with `clozeworks prepare pairs.jsonl --pairs en,de --out DIR`"
        raise InputError(text.directory, "text of one side", "documents of two sentences are needed", todo)
    many = 2 * min(len(text.documents) - 1, SCORED)
    taken = text.take(text.sentences[:many], text.sentences[1 : many + 1]).tokens
    parts = np.split(taken, np.asarray(text.sentences[1:many]) - text.sentences[0])
    written = [tokenizer.write(part.tolist()) for part in parts]
    return list(zip(written[::2], written[1::2], strict=True))


def tell(console: Console, figures: dict[str, Any], found: Sequence[Translation], wanted: Sequence[str]) -> None:
    table = columns("held-out", "this model", "word frequencies", right=("this model", "word frequencies"))
    alone = "unigram_loss" in figures
    rows = [
        ("next-token accuracy", f"{figures['accuracy']:.1%}", f"{figures['unigram_accuracy']:.1%}" if alone else ""),
        ("loss", f"{np.log(figures['perplexity']):.3f}", f"{figures['unigram_loss']:.3f}" if alone else ""),
        ("perplexity", f"{figures['perplexity']:,.1f}", f"{np.exp(figures['unigram_loss']):,.1f}" if alone else ""),
        ("BLEU", f"{figures['bleu']:.1f}", ""),
    ]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"\n{figures['translated']:,} pairs, {figures['bleu_signature']}", markup=False, soft_wrap=True)
    for one, reference in zip(found[:SHOWN], wanted, strict=False):
        console.print()
        sides = [("source", one.source), ("written", one.text), ("reference", reference)]
        console.print(facts([(name, Line(text)) for name, text in sides]))
