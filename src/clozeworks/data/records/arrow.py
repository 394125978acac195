"""Records of parquet, arrow and feather files, by record batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import parse_json
from clozeworks.data.records.datasets import class_names
from clozeworks.data.records.source import Record, Select, select_named

BATCH_ROWS = 256  # read at once


class ArrowFile:
    """A file of a table: only the columns that are read are unpacked."""

    def __init__(self, file: Path, name: str, select: Select = select_named):
        self._file, self._name, self._select = file, name, select
        self._parquet = file.suffix.lower() == ".parquet"
        self._size = file.stat().st_size
        self._done = 0

    def position(self) -> int:
        """How many bytes of the file were read, more or less."""
        return min(self._done, self._size)

    def classes(self) -> dict[str, list[str]]:
        """The names of classes, where the package `datasets` wrote the file and left them in it."""
        with _import_arrow(self._file, self._name) as arrow:
            if self._parquet:
                import pyarrow.parquet

                schema = pyarrow.parquet.read_schema(self._file)
            else:
                with arrow.memory_map(str(self._file)) as source:
                    schema = _ipc_opener(arrow, source)(source).schema
        try:
            return class_names(parse_json((schema.metadata or {})[b"huggingface"])["info"]["features"])
        except (KeyError, TypeError, ValueError):
            return {}

    def records(self) -> Iterator[tuple[int, Record]]:
        """The records, numbered from 1."""
        with _import_arrow(self._file, self._name) as arrow:
            number = 0
            for batch in self._read_parquet() if self._parquet else self._read_ipc(arrow):
                for begin in range(0, batch.num_rows, BATCH_ROWS):
                    for record in batch.slice(begin, BATCH_ROWS).to_pylist():
                        number += 1
                        yield number, record

    def _read_parquet(self) -> Iterator[Any]:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(self._file, buffer_size=1 << 20, pre_buffer=False) as table:
            read = self._select(table.schema_arrow.names, self._name)
            rows, total = 0, max(1, table.metadata.num_rows)
            for batch in table.iter_batches(BATCH_ROWS, columns=list(read), use_threads=False):
                rows += batch.num_rows
                self._done = self._size * rows // total
                yield batch

    def _read_ipc(self, arrow: Any) -> Iterator[Any]:
        with arrow.memory_map(str(self._file)) as source:
            opener = _ipc_opener(arrow, source)
            names = opener(source).schema.names
            read = self._select(names, self._name)
            source.seek(0)
            options = arrow.ipc.IpcReadOptions(included_fields=[names.index(name) for name in read], use_threads=False)
            table = opener(source, options=options)
            if opener is arrow.ipc.open_file:
                for index in range(table.num_record_batches):
                    yield table.get_batch(index)
                    self._done = self._size * (index + 1) // table.num_record_batches
            else:
                for batch in table:
                    yield batch
                    self._done = source.tell()


def _ipc_opener(arrow: Any, source: Any) -> Any:
    """What opens either format of Arrow: a file with an index of its batches at the end, or a stream of them."""
    indexed = source.read(6) == b"ARROW1"
    source.seek(0)
    return arrow.ipc.open_file if indexed else arrow.ipc.open_stream


@contextmanager
def _import_arrow(file: Path, name: str) -> Iterator[Any]:
    """The package pyarrow, whose complaints about the file become ours."""
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        needed, todo = "the package pyarrow is needed to read it", "pip install clozeworks[arrow]"
        raise InputError(name, f"a {file.suffix.lower()} file", needed, todo) from None
    try:
        yield pyarrow
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        given = f"not {file.suffix.lower()[1:]} ({str(error).splitlines()[0][:100]})"
        raise InputError(name, given, "a whole file is needed", "write or download it again") from None
