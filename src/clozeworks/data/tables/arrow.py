"""Rows of parquet, arrow and feather files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.data.tables.objects import class_names
from clozeworks.data.tables.source import Source

BATCH_ROWS = 256  # read at once


def from_arrow(file: Path, name: str) -> Source:
    """Rows by batches; where the package `datasets` wrote the file, it tells the names of classes."""
    try:
        import pyarrow
        import pyarrow.dataset
    except ImportError:
        needed, todo = "the package pyarrow is needed to read it", "pip install clozeworks[arrow]"
        raise InputError(name, f"a {file.suffix.lower()} file", needed, todo) from None
    try:
        if file.suffix.lower() == ".parquet":
            table = pyarrow.dataset.dataset(str(file), format="parquet")
        else:
            with pyarrow.memory_map(str(file)) as source:
                indexed = source.read(6) == b"ARROW1"
                source.seek(0)
                opened = pyarrow.ipc.open_file(source) if indexed else pyarrow.ipc.open_stream(source)
                table = pyarrow.dataset.dataset(opened.read_all())
    except (pyarrow.ArrowException, OSError) as error:
        raise _refused(name, file, error) from None

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in table.to_batches(batch_size=BATCH_ROWS):
                yield from batch.to_pylist()
        except (pyarrow.ArrowException, OSError) as error:
            raise _refused(name, file, error) from None

    return Source(name, enumerate(rows(), 1), "row", _classes(table.schema.metadata or {}))


def _refused(name: str, file: Path, error: Exception) -> InputError:
    given = f"not {file.suffix.lower()[1:]} ({str(error).splitlines()[0][:100]})"
    return InputError(name, given, "a whole file is needed", "write or download it again")


def _classes(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    try:
        return class_names(json.loads(metadata[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError):
        return {}
