"""clozeworks predict"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import ColumnOptions, DeviceOptions, ModelOptions, argument, integer, option
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from typing import TextIO


@dataclass(kw_only=True)
class Options(DeviceOptions, ColumnOptions, ModelOptions):
    """Predict rows with a fine-tuned model

    Reads rows and writes JSON lines in the same order: each row with its prediction, such as label and scores, tags, or
    the answer of question answering. A column of the row that has the name of a prediction is written as given_NAME.
    Files of any size are read piece by piece.

    clozeworks predict task rows.jsonl --out predictions.jsonl
    clozeworks predict task reviews.csv --columns text=review
    clozeworks predict task lines.txt --text
    """

    file: str = argument("FILE", "rows; - for JSON lines of standard input (default: -)", nargs="?", default="-")
    text: bool = option("each line of FILE is a text; empty ones are left out", False)
    out: str = option("file or pipe to write, JSON lines", "-", metavar="FILE", otherwise="-, standard output")
    batch_size: int = integer("rows that are read and predicted together", 512)


def run(options: Options) -> None:
    """Predict piece by piece, to a file that is there once it is whole, to a pipe or to standard output."""
    from clozeworks.core import atomic_io

    with atomic_io.text_stream(options.out) as stream:
        predict_rows(options, stream)


def predict_rows(options: Options, stream: TextIO) -> None:
    """Write each row with its prediction, and show how far it is."""
    from clozeworks.cli import named
    from clozeworks.cli.unknown import warn_unknown
    from clozeworks.exchange.char_vocab import collect_texts
    from clozeworks.inference.predict import get_task, join_windows, predict
    from clozeworks.screen.console import screen, span
    from clozeworks.train.finetune.plan import require_tokenizer

    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    task, tokenizer = get_task(encoder.recipe), require_tokenizer(encoder)
    if options.text and len(task.columns) > 1:
        needed = f"a row has {', '.join(task.columns)}, and a line is one text"
        raise InputError("--text", f"a model for {task.name}", needed, "give rows, in .jsonl or .csv")
    given = options.file if options.file == "-" else existing(options.file, "a file of rows")
    kind = ".txt" if options.text else None
    columns = named.pairs(options.columns, "--columns")
    console, done, begin = screen(stderr=True), 0, time.perf_counter()
    with console.status("reading") as status:
        pieces = predict(encoder.model, encoder.recipe, tokenizer, given, columns, kind, rows=options.batch_size)
        for table, answers in pieces:
            if not done:
                warn_unknown(encoder, collect_texts(table.rows, task.columns))
            for row, answer in zip(table.given, answers, strict=True):
                write_line(join_windows(row, answer), stream)
            stream.flush()
            done += len(answers)
            seconds = time.perf_counter() - begin
            status.update(f"{done:,} rows, {done / seconds:,.0f} a second")
    if console.is_terminal:
        console.print(f"{done:,} rows in {span(time.perf_counter() - begin)}")


def write_line(row: dict[str, Any], stream: TextIO) -> None:
    """A line of JSON, whatever the row brought along and whatever the terminal can show."""
    from clozeworks.screen.console import json_line

    stream.write(json_line(row, stream.encoding) + "\n")
