"""Tensors whose rows lie in several files, one for each process that wrote them.

    model-0-of-2.safetensors  model-1-of-2.safetensors

A file holds some rows of each tensor; its metadata says where they begin and how many the whole tensor has. Whoever
reads asks for the rows it needs, so that any number of processes can read what any other number wrote. A single file
with whole tensors is read in the same way.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import parse_json
from clozeworks.core.process_group import is_sharded, local

ROWS = "rows"  # the entry of the metadata
_PART = re.compile(r"(?P<stem>.+)-(?P<rank>\d+)-of-(?P<size>\d+)\.safetensors")


def part_of(file: str, rank: int, size: int) -> str:
    """The name of the file in which one of `size` processes writes its rows."""
    return f"{file.removesuffix('.safetensors')}-{rank}-of-{size}.safetensors"


def complete(names: Iterable[str], file: str) -> bool:
    """Whether a file is there, whole or in all of its parts."""
    names = set(names)
    parts = [match for name in names if (match := _PART.fullmatch(name)) and f"{match['stem']}.safetensors" == file]
    wanted = {part_of(file, rank, int(parts[0]["size"])) for rank in range(int(parts[0]["size"]))} if parts else {file}
    return wanted <= names


def write(path: Path, tensors: Mapping[str, Tensor], rank: int, size: int) -> None:
    """Write the rows that this process holds, and the whole of what is not sharded; of no rows there is no tensor."""
    content: dict[str, Tensor] = {}
    rows: dict[str, tuple[int, int]] = {}
    for name, tensor in tensors.items():
        mine = local(tensor.detach())
        if is_sharded(tensor):
            begin = begin_of(tensor, rank, size)
            rows[name] = begin, len(tensor)
            if begin == len(tensor):
                continue
        content[name] = mine.cpu().contiguous()
    save_file(content, path, metadata={ROWS: json.dumps(rows)})


def begin_of(tensor: Tensor, rank: int, size: int) -> int:
    """The first of the rows that a process holds: torch cuts as `torch.chunk` does."""
    begin = min(rank * -(-len(tensor) // size), len(tensor))
    assert len(local(tensor)) == min(-(-len(tensor) // size), len(tensor) - begin), "not cut by rows into chunks"
    return begin


class Slices:
    """The tensors of one kind (`model.safetensors`) in a directory, whole or in parts, open for reading by rows."""

    def __init__(self, directory: Path, file: str):
        self._opened = contextlib.ExitStack()
        stem = file.removesuffix(".safetensors")
        paths = [directory / file] if (directory / file).exists() else sorted(directory.glob(f"{stem}-*-of-*"))
        if not paths:
            raise InputError(directory, f"no {file}, nor parts of it", "one is needed", "restore it from a copy")
        self._parts: dict[str, list[tuple[int, int, Any]]] = {}  # first row, row after the last, file
        self._whole: dict[str, list[int]] = {}  # shapes
        for path in paths:
            part = self._opened.enter_context(safe_open(path, "pt"))
            rows = _read_rows(path, part.metadata() or {})
            for name in part.keys():  # noqa: SIM118
                shape = list(part.get_slice(name).get_shape())
                begin, count = rows.get(name, (0, shape[0] if shape else 0))
                self._whole[name] = [count, *shape[1:]] if shape else []
                self._parts.setdefault(name, []).append((begin, begin + shape[0] if shape else 0, part))

    def __enter__(self) -> "Slices":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """That of the whole tensor; None where there is no such tensor."""
        return tuple(self._whole[name]) if name in self._whole else None

    def rows(self, name: str, begin: int = 0, end: int | None = None) -> Tensor:
        """Rows begin : end of a tensor; a tensor without dimensions as it is."""
        if not self._whole[name]:
            return self._parts[name][0][2].get_tensor(name)
        end = self._whole[name][0] if end is None else end
        pieces = [
            part.get_slice(name)[max(begin, low) - low : min(end, high) - low]
            for low, high, part in sorted(self._parts[name], key=lambda item: item[0])
            if low < end and begin < high
        ]
        if sum(map(len, pieces)) != end - begin:
            given = f"{sum(map(len, pieces))} of the rows {begin} to {end}"
            raise InputError(name, given, "all of them are needed", "restore the checkpoint from a copy")
        if not pieces:
            part = self._parts[name][0][2]
            return part.get_slice(name)[:0]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _read_rows(path: Path, metadata: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Where the rows of each tensor begin, and how many the whole one has."""
    try:
        rows = parse_json(metadata.get(ROWS, "{}"), dict)
        pairs = {name: (int(begin), int(count)) for name, (begin, count) in rows.items()}
    except (TypeError, ValueError) as error:
        given, needed = f"unreadable metadata ({error})", "each tensor's first row and number of rows are needed"
        raise InputError(path, given, needed, "restore the checkpoint from a copy") from None
    return pairs


def read(directory: Path, file: str) -> dict[str, Tensor]:
    """Every tensor whole."""
    with Slices(directory, file) as slices:
        return {name: slices.rows(name) for name in slices}
