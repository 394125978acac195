"""clozeworks encode"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import (
    ColumnOptions,
    DeviceOptions,
    JsonOptions,
    ModelOptions,
    argument,
    choice,
    integer,
    option,
)
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from clozeworks.inference.text_encoder import TextEncoder

RECORDS = 4096  # read and encoded together
LINES = (".jsonl", ".ndjson")


@dataclass(kw_only=True)
class Options(JsonOptions, DeviceOptions, ColumnOptions, ModelOptions):
    """Encode texts as sentence embeddings

    One vector a text, in the order given: of the lines of a .txt, or of the column text of records (.jsonl, .csv, .tsv,
    .parquet and others, see docs/labelled_data.md). The ending of --out is the format: .npy is an array [texts, width],
    .jsonl is a line for each text, which is also what standard output gets. Pooling is that of the model: one that was
    fine-tuned with `finetune embed` has learned it, others make the mean of their tokens.

    clozeworks encode sentences lines.txt --out vectors.npy
    clozeworks encode sentences reviews.csv --columns text=review --out vectors.jsonl
    clozeworks encode run lines.txt --pooling first --normalize --out vectors.npy
    """

    file: str = argument("FILE", "texts: lines, or records; - for JSON lines of standard input")
    out: str | None = option("file to write: .npy or .jsonl", metavar="FILE", otherwise="JSON lines to standard output")
    pooling: str | None = choice(
        "how tokens become a vector", "mean", "first", "pooled", otherwise="the model's, or mean"
    )
    normalize: bool = option("scale vectors to length 1, so that a dot product is their cosine", False)
    batch_tokens: int = integer("batch size in tokens", 8192)


def run(options: Options) -> None:
    """Encode piece by piece, and write arrays or lines."""
    from clozeworks.cli import named
    from clozeworks.core import atomic_io

    if options.out is not None and not options.out.endswith((".npy", *LINES)):
        raise InputError("--out", options.out, "an ending of .npy or .jsonl is needed", "use vectors.npy")
    if options.json and options.out is None:
        raise InputError("--json", "no --out", "the vectors themselves go to standard output", "add --out FILE")
    given = options.file if options.file == "-" else existing(options.file, "a file of texts")
    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    pieces = encode_texts(options, encoder, given)
    if options.out is None:
        write_lines(pieces, sys.stdout)
        return
    with atomic_io.file(options.out) as part:
        count = write_array(pieces, part) if options.out.endswith(".npy") else write_file(pieces, part)
    report(options, options.out, count, encoder.model.encoder.width)


def encode_texts(options: Options, encoder: TextEncoder, given: Any) -> Iterator[tuple[list[str], np.ndarray]]:
    """Some texts at a time, with their vectors."""
    from clozeworks.cli import named
    from clozeworks.data.tables import stream

    columns = named.pairs(options.columns, "--columns")
    for table in stream(given, ("text",), columns, rows=RECORDS):
        texts = [record["text"] for record in table.rows]
        yield (
            texts,
            encoder.encode(
                texts,
                options.pooling,  # pyright: ignore[reportArgumentType]
                options.batch_tokens,
                options.normalize or None,
            ),
        )


def write_lines(pieces: Iterator[tuple[list[str], np.ndarray]], stream: Any) -> int:
    """A JSON object a line: the text and its vector."""
    count = 0
    for texts, vectors in pieces:
        for text, vector in zip(texts, vectors, strict=True):
            stream.write(json.dumps({"text": text, "embedding": [round(float(x), 6) for x in vector]}) + "\n")
        stream.flush()
        count += len(texts)
    return count


def write_file(pieces: Iterator[tuple[list[str], np.ndarray]], path: Any) -> int:
    with path.open("w", encoding="utf-8") as stream:
        return write_lines(pieces, stream)


def write_array(pieces: Iterator[tuple[list[str], np.ndarray]], path: Any) -> int:
    import numpy as np

    vectors = [piece for _, piece in pieces]
    whole_array = np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)
    with path.open("wb") as stream:
        np.save(stream, whole_array)
    return len(whole_array)


def report(options: Options, out: str, count: int, width: int) -> None:
    from clozeworks.screen.console import closing, emit, screen

    if options.json:
        emit({"model": options.model, "out": out, "texts": count, "width": width})
        return
    console = screen()
    console.print(f"{count:,} texts, {width:,} numbers each")
    load = f"""python3 -c 'import numpy; print(numpy.load("{out}").shape)'"""
    closing(console, out, *([load] if out.endswith(".npy") else []))
