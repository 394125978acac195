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

RECORDS = 2048  # read and encoded together
LINES, ARRAY, TABLE = (".jsonl", ".ndjson"), ".npy", ".parquet"
COUNTED = (".txt", ".jsonl", ".ndjson", ".csv", ".tsv")  # whose lines are about as many as their texts


@dataclass(kw_only=True)
class Options(ColumnOptions, InferenceOptions):
    """Encode texts as sentence embeddings

    One vector a text, in the order given: of the lines of a .txt, or of the column text of records (.jsonl, .csv, .tsv,
    .parquet and others, see docs/labelled_data.md). The ending of --out is the format: .npy is an array [texts, width],
    .parquet has the columns text and embedding, .jsonl is a line for each text, which is also what standard output
    gets. Memory stays the same however many texts there are. Pooling is that of the model: one that was fine-tuned with
    `finetune embed` has learned it, others make the mean of their tokens.

    clozeworks encode sentences lines.txt --out vectors.npy
    clozeworks encode sentences reviews.csv --columns text=review --out vectors.jsonl
    clozeworks encode run lines.txt --pooling first --normalize --out vectors.npy
    """

    file: str = argument("FILE", "texts: lines, or records; - for JSON lines of standard input")
    out: str = option(
        "file to write: .npy, .parquet or .jsonl; or a pipe, for JSON lines",
        "-",
        metavar="FILE",
        otherwise="-, standard output",
    )
    pooling: str | None = choice(
        "how tokens become a vector", "mean", "first", "max", "pooled", otherwise="the model's, or mean"
    )
    normalize: bool = option("scale vectors to length 1, so that a dot product is their cosine", False)
    batch_tokens: int = integer("batch size in tokens", 8192)


def run(options: Options) -> None:
    """Encode piece by piece, and write arrays, columns or lines."""
    from clozeworks.cli import named
    from clozeworks.core import atomic_io
    from clozeworks.screen.console import closing, emit, screen

    out = options.out
    lines = atomic_io.is_stream(out) or out.endswith(LINES)
    if not lines and not out.endswith((ARRAY, TABLE)):
        raise InputError("--out", out, "an ending of .npy, .parquet or .jsonl is needed", "use vectors.npy")
    if options.json and out in atomic_io.STANDARD_OUTPUT:
        raise InputError("--json", "no --out", "the vectors themselves go to standard output", "add --out FILE")
    if not lines and out.endswith(TABLE):
        import_arrow(out)
    given = options.file if options.file == "-" else existing(options.file, "a file of texts")
    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    width = encoder.model.encoder.width
    pieces = encode_texts(options, encoder, given)
    if lines:
        with atomic_io.text_stream(out) as stream:
            count = write_lines(pieces, stream)
    else:
        write = write_array if out.endswith(ARRAY) else write_table
        with atomic_io.file(out) as part:
            count = write(pieces, part, width)
    if out in atomic_io.STANDARD_OUTPUT:
        return
    if options.json:
        emit({"model": options.model, "out": out, "texts": count, "width": width})
        return
    console = screen()
    console.print(f"{count:,} texts, {width:,} numbers each")
    load = f"""python3 -c 'import numpy; print(numpy.load("{out}").shape)'"""
    closing(console, out, *([load] if out.endswith(ARRAY) and not lines else []))


def encode_texts(options: Options, encoder: TextEncoder, given: Path | str) -> Pieces:
    """Some texts at a time, with their vectors."""
    from clozeworks.cli import named
    from clozeworks.cli.unknown import warn_unknown
    from clozeworks.data.tables import stream
    from clozeworks.screen.console import screen
    from clozeworks.screen.progress_bar import Bar

    pooling: Any = options.pooling
    tables = stream(given, ("text",), named.pairs(options.columns, "--columns"), rows=RECORDS)
    total, done = count_lines(given), 0
    with Bar(screen(stderr=True), unit="texts") as bar:
        for number, table in enumerate(tables):
            texts = [record["text"] for record in table.rows]
            if number == 0:
                warn_unknown(encoder, texts)
            yield texts, encoder.encode(texts, pooling, options.batch_tokens, options.normalize or None)
            done += len(texts)
            bar.update("encoding", done, total and max(total, done))


def count_lines(given: Path | str) -> int | None:
    """About how many texts a file has; None: only reading it would tell."""
    if given == "-" or not str(given).endswith(COUNTED):
        return None
    with open(given, "rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def write_lines(pieces: Pieces, stream: TextIO) -> int:
    """A JSON object a line: the text and its vector."""
    count = 0
    for texts, vectors in pieces:
        for text, vector in zip(texts, vectors, strict=True):
            stream.write(json.dumps({"text": text, "embedding": [round(float(x), 6) for x in vector]}) + "\n")
        stream.flush()
        count += len(texts)
    return count


def write_array(pieces: Pieces, path: Path, width: int) -> int:
    """All vectors as one array, appended piece by piece: how many they are is put into its header in the end."""
    import numpy as np

    def put_header(count: int) -> None:  # which has room for any number
        header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(stream, header)

    count = 0
    with path.open("r+b") as stream:
        put_header(count)
        begin = stream.tell()
        for _, vectors in pieces:
            stream.write(np.ascontiguousarray(vectors, np.float32).data)
            count += len(vectors)
        stream.seek(0)
        put_header(count)
        assert stream.tell() == begin
    return count


def write_table(pieces: Pieces, path: Path, width: int) -> int:
    """Two columns, the texts and their vectors; a piece is a row group."""
    arrow = import_arrow(path)
    schema = arrow.schema([("text", arrow.string()), ("embedding", arrow.list_(arrow.float32(), width))])
    count = 0
    with arrow.parquet.ParquetWriter(path, schema) as writer:
        for texts, vectors in pieces:
            embeddings = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), width)
            writer.write_table(arrow.table([arrow.array(texts, arrow.string()), embeddings], schema=schema))
            count += len(texts)
    return count


def import_arrow(out: object) -> Any:
    """The package pyarrow, which Parquet needs."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        needed, todo = "the package pyarrow is needed to write it", "pip install 'clozeworks[arrow]'"
        raise InputError("--out", out, needed, todo) from None
    return pyarrow
