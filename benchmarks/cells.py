"""Cells: comparisons of one benchmark that differ in model or text, and share the text that is prepared once."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import SETTING
from clozeworks.core.errors import InputError, suggest

DATA = "data"


def check_cells(chosen: Iterable[str], cells: Iterable[str]) -> None:
    """Refuse a cell that the benchmark does not have."""
    known = list(cells)
    for name in chosen:
        if name not in known:
            raise InputError("--only", name, "a cell of this benchmark is needed", suggest(name, known))


def share_text(folder: Path, cell: str) -> Path:
    """A folder for a cell, with the text that all cells read: the first one prepares it."""
    place = folder / cell
    place.mkdir()
    (place / DATA).symlink_to(folder / DATA, target_is_directory=True)
    return place


def write_cell(cell: Any, folder: Path, **more: Any) -> None:
    """What the sides of a cell read instead of the whole setting."""
    (folder / SETTING).write_text(json.dumps({**asdict(cell), **more}))


def check_losses(losses: dict[str, float], near: float) -> None:
    """Both sides must compute the same loss before they are compared."""
    if abs(losses["ours"] - losses["theirs"]) > near:
        raise RuntimeError(f"the two models are not the same: step 0 gives {losses}")
