"""Runs that lie on a disk, and the state of each, from what it wrote. Nothing is written, and torch is not loaded.

Whatever a file holds, a run is described as far as it can be read, with a sentence for what cannot.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.core.json_reader import read_json
from clozeworks.exchange.checkpoint_names import MANIFEST, step_of
from clozeworks.train import metrics_log

RECIPE, RUN, METRICS = "recipe.json", "run.json", "metrics.jsonl"
LOST = 10  # skipped steps at the end of a run that diverged


@dataclass(slots=True)
class Run:
    """One run; None where it does not say."""

    path: str
    state: str = "stopped"  # running, finished, stopped, diverged, damaged
    process: str | None = None  # of a running one: PID on HOST
    recipe: str | None = None
    step: int = 0
    steps: int | None = None
    checkpoint: int | None = None  # step of the newest
    loss: float | None = None
    heldout: dict[str, float] | None = None  # metrics of the last evaluation, and its step
    tokens: int | None = None
    tokens_per_second: float | None = None
    changed: float = 0.0  # when the last row was written, in seconds since 1970
    age: float = 0.0  # seconds since then
    bytes: int = 0
    damage: list[str] = field(default_factory=list)


def find(directories: Iterable[Path]) -> list[Run]:
    """The runs in and below some directories, each once, the one that changed last first."""
    places = {os.path.realpath(place): place for directory in directories for place in _places(directory)}
    return sorted(map(describe, places.values()), key=lambda run: (-run.changed, run.path))


def describe(place: Path) -> Run:
    """A run as far as its files can be read."""
    run = Run(str(place))
    run.process = atomic_io.holder(place)
    if (record := _json(place / RUN, run)) is not None and not record.get("sessions"):
        run.damage.append(f"{RUN} does not say who began it")
    recipe = _json(place / RECIPE, run) or {}
    train = recipe.get("train")
    run.recipe = recipe["name"] if isinstance(recipe.get("name"), str) else None
    run.steps = _whole(train.get("steps")) if isinstance(train, dict) else None
    if recipe and run.steps is None:
        run.damage.append(f"{RECIPE} does not say how many steps there are")
    rows = _rows(place, run)
    _read_rows(rows, run)
    _look_around(place, run)
    run.state = _state(run, rows)
    return run


def _places(directory: Path) -> Iterator[Path]:
    """A run, or those below a directory; hidden directories and links are passed over."""
    for folder, names, files in os.walk(directory):
        if {RUN, METRICS} & {*files} and {RECIPE, atomic_io.LOCK} & {*files}:
            names.clear()
            yield Path(folder)
        names[:] = sorted(name for name in names if not name.startswith("."))


def _json(file: Path, run: Run) -> dict[str, Any] | None:
    try:
        value = read_json(file)
    except FileNotFoundError:
        run.damage.append(f"{file.name} is missing")
    except (OSError, ValueError) as error:
        run.damage.append(f"{file.name} cannot be read ({error})")
    else:
        if isinstance(value, dict):
            return value
        run.damage.append(f"{file.name} is no object")
    return None


def _rows(place: Path, run: Run) -> list[dict[str, Any]]:
    try:
        rows, damaged = metrics_log.tail(place / METRICS)
    except FileNotFoundError:  # not a step yet
        return []
    except OSError as error:
        run.damage.append(f"{METRICS} cannot be read ({error})")
        return []
    if damaged:
        run.damage.append(f"{METRICS} has {damaged:,} damaged line{'s' if damaged > 1 else ''}")
    return rows


def _read_rows(rows: list[dict[str, Any]], run: Run) -> None:
    trained = [row for row in rows if row.get("split") is None]
    heldout = [row for row in rows if row.get("split") == "heldout"]
    if trained:
        last = trained[-1]
        run.step, run.tokens = _whole(last["step"]) or 0, _whole(last.get("tokens"))
        run.tokens_per_second = _number(last.get("tokens_per_second"))
        run.loss = _number(last.get("loss"))
    if heldout:
        numbers = {name: _number(value) for name, value in heldout[-1].items()}
        run.heldout = {name: value for name, value in numbers.items() if value is not None}


def _look_around(place: Path, run: Run) -> None:
    """Checkpoints, sizes and times. Files may vanish meanwhile: a run that still trains deletes old checkpoints."""
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                fact = os.stat(Path(folder, name), follow_symlinks=False)
            except OSError:
                continue
            run.bytes += fact.st_size
            if Path(folder) == place and name in (METRICS, RUN):
                run.changed = max(run.changed, fact.st_mtime)
            step = step_of(Path(folder).name)
            if name == MANIFEST and step is not None and Path(folder).parent == place:
                run.checkpoint = max(run.checkpoint or 0, step)
    run.step = max(run.step, run.checkpoint or 0)  # a run that was asked to stop saves between two rows
    run.age = round(max(time.time() - run.changed, 0.0), 1)


def _state(run: Run, rows: list[dict[str, Any]]) -> str:
    if run.process:
        return "running"
    if run.damage:
        return "damaged"
    if run.steps is not None and run.checkpoint is not None and run.checkpoint >= run.steps:
        return "finished"
    ends = [row for row in rows if row.get("split") is None][-LOST:]
    lost = [row for row in ends if row.get("skipped") is True]  # but not those that were passed over on purpose
    lost = [row for row in lost if not str(row.get("reason")).startswith("passed over")]
    return "diverged" if len(lost) == LOST else "stopped"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e300 and math.isfinite(value) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
