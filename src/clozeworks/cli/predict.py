"""clozeworks predict"""

import json
import sys
import time
from typing import Any

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.cli.finetune import pairs_of
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError
from clozeworks.inference.predict import get_task, join_windows, predict
from clozeworks.screen.console import finite, screen, span


def run(options: Options) -> None:
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    task = get_task(encoder.recipe)
    if encoder.tokenizer is None:
        raise InputError(options.model, "a model without a tokenizer", "text needs one", "put tokenizer.json beside it")
    if options.text and len(task.columns) > 1:
        needed = f"a row has {', '.join(task.columns)}, and a line is one text"
        raise InputError("--text", f"a model for {task.name}", needed, "give rows, in .jsonl or .csv")
    given = options.file if options.file == "-" else existing(options.file, "a file of rows")
    kind = ".txt" if options.text else None
    columns = pairs_of(options.columns, "--columns")
    console, done, begin = screen(stderr=True), 0, time.perf_counter()
    with console.status("reading") as status:
        pieces = predict(encoder.model, encoder.recipe, encoder.tokenizer, given, columns, kind)
        for table, answers in pieces:
            for row, answer in zip(table.given, answers, strict=True):
                write(join_windows(row, answer))
            sys.stdout.flush()
            done += len(answers)
            seconds = time.perf_counter() - begin
            status.update(f"{done:,} rows, {done / seconds:,.0f} a second")
    if console.is_terminal:
        console.print(f"{done:,} rows in {span(time.perf_counter() - begin)}")


def write(found: dict[str, Any]) -> None:
    """A line of JSON, whatever the row brought along and whatever the terminal can show."""
    text = json.dumps(finite(found), ensure_ascii=False, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(finite(found), default=str)
    sys.stdout.write(text + "\n")
