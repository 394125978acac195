"""clozeworks encode"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import ColumnOptions, InferenceOptions, argument, choice, integer, option
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

    import numpy as np

    from clozeworks.inference.text_encoder import TextEncoder

    Pieces = Iterator[tuple[list[str], np.ndarray]]  # texts, and a vector for each

RECORDS = 4096  # read and encoded together
LINES = (".jsonl", ".ndjson")


@dataclass(kw_only=True)
class Options(ColumnOptions, InferenceOptions):
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
    out: str = option(
        "file to write: .npy or .jsonl; or a pipe, for JSON lines", "-", metavar="FILE", otherwise="-, standard output"
    )
    pooling: str | None = choice(
        "how tokens become a vector", "mean", "first", "max", "pooled", otherwise="the model's, or mean"
    )
    normalize: bool = option("scale vectors to length 1, so that a dot product is their cosine", False)
    batch_tokens: int = integer("batch size in tokens", 8192)


def run(options: Options) -> None:
    """Encode piece by piece, and write arrays or lines."""
    from clozeworks.cli import named
    from clozeworks.core import atomic_io
    from clozeworks.screen.console import closing, emit, screen

    out = options.out
    lines = atomic_io.is_stream(out) or out.endswith(LINES)
    if not lines and not out.endswith(".npy"):
        raise InputError("--out", out, "an ending of .npy or .jsonl is needed", "use vectors.npy")
    if options.json and out in atomic_io.STANDARD_OUTPUT:
        raise InputError("--json", "no --out", "the vectors themselves go to standard output", "add --out FILE")
    given = options.file if options.file == "-" else existing(options.file, "a file of texts")
    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    pieces = encode_texts(options, encoder, given)
    if lines:
        with atomic_io.text_stream(out) as stream:
            count = write_lines(pieces, stream)
    else:
        with atomic_io.file(out) as part:
            count = write_array(pieces, part)
    if out in atomic_io.STANDARD_OUTPUT:
        return
    width = encoder.model.encoder.width
    if options.json:
        emit({"model": options.model, "out": out, "texts": count, "width": width})
        return
    console = screen()
    console.print(f"{count:,} texts, {width:,} numbers each")
    load = f"""python3 -c 'import numpy; print(numpy.load("{out}").shape)'"""
    closing(console, out, *([] if lines else [load]))


def encode_texts(options: Options, encoder: TextEncoder, given: Path | str) -> Pieces:
    """Some texts at a time, with their vectors."""
    from clozeworks.cli import named
    from clozeworks.cli.unknown import warn_unknown
    from clozeworks.data.tables import stream

    pooling: Any = options.pooling
    for number, table in enumerate(stream(given, ("text",), named.pairs(options.columns, "--columns"), rows=RECORDS)):
        texts = [record["text"] for record in table.rows]
        if number == 0:
            warn_unknown(encoder, texts)
        yield texts, encoder.encode(texts, pooling, options.batch_tokens, options.normalize or None)


def write_lines(pieces: Pieces, stream: TextIO) -> int:
    """A JSON object a line: the text and its vector."""
    count = 0
    for texts, vectors in pieces:
        for text, vector in zip(texts, vectors, strict=True):
            stream.write(json.dumps({"text": text, "embedding": [round(float(x), 6) for x in vector]}) + "\n")
        stream.flush()
        count += len(texts)
    return count


def write_array(pieces: Pieces, path: Path) -> int:
    """All vectors as one array."""
    import numpy as np

    array = np.concatenate([vectors for _, vectors in pieces] or [np.zeros((0, 0), np.float32)])
    with path.open("wb") as stream:
        np.save(stream, array)
    return len(array)
