"""Steps one after another, each measured after its model was written and read again."""

import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clozeworks.compress.division import Division
from clozeworks.compress.measure import Measured, as_row, measure
from clozeworks.compress.quality import Judge, Work, make_judge
from clozeworks.compress.step import Step
from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.core.spec import Spec
from clozeworks.exchange.bundle import Bundle
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.metrics.statistics import Difference

REPORT = "compress.json"
ORIGINAL = "original"
Part = Literal["choose", "report"]


@dataclass(slots=True)
class State:
    """A model of the chain: its steps so far, where it was written, and as it was read again."""

    steps: tuple[str, ...]
    directory: Path
    encoder: TextEncoder
    seconds: float = 0.0  # of the processor, that its last step took

    @property
    def name(self) -> str:
        return self.steps[-1] if self.steps else ORIGINAL


@dataclass(slots=True)
class Row:
    """A line of the table."""

    steps: tuple[str, ...]
    measured: Measured
    seconds: float
    part: Part
    kept: bool = True
    note: str = ""
    pareto: list[str] = field(default_factory=list)  # size, speed: nothing is better in this and in quality
    against: Difference | None = None  # of a rival: its quality less that of the compressed model

    @property
    def name(self) -> str:
        return self.steps[-1] if self.steps else ORIGINAL

    def as_json(self) -> dict[str, Any]:
        about = {"step": self.name, "steps": list(self.steps), "kept": self.kept, "part": self.part}
        cost = {"cpu_seconds": self.seconds, "pareto": self.pareto}
        against = {} if self.against is None else {"against_compressed": self.against._asdict()}
        return {**about, **as_row(self.measured), **against, **cost, **({"note": self.note} if self.note else {})}


@dataclass(slots=True)
class Result:
    """The rows that are reported, all that were tried, and how it ended."""

    out: Path
    rows: list[Row]
    tried: list[Row] = field(default_factory=list)
    reached: bool | None = None  # of a target
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    rivals: list[Row] = field(default_factory=list)  # of the last row's recipe, trained as long without the original

    def as_json(self) -> dict[str, Any]:
        last = self.rows[-1]
        return {
            "out": str(self.out),
            "steps": list(last.steps),
            **as_row(last.measured),
            "smaller": self.rows[0].measured.bytes / last.measured.bytes,
            **({} if self.reached is None else {"reached": self.reached, "reason": self.reason}),
            "rows": [row.as_json() for row in self.rows],
            **({"rivals": [row.as_json() for row in self.rivals]} if self.rivals else {}),
            "tried": [row.as_json() for row in self.tried],
        }


class Workshop:
    """Where models are made and measured: a directory that vanishes, the original, the data, and who hears of it."""

    def __init__(
        self,
        folder: Path,
        original: TextEncoder,
        division: Division,
        *,
        parts: Sequence[type[Spec]] = (),
        seed: int = 0,
        tell: Callable[[str], object] = lambda text: None,
        tell_row: Callable[[Row], object] = lambda row: None,
    ):
        self.folder, self.division, self.parts, self.seed = folder, division, parts, seed
        self.tell, self.tell_row, self._count = tell, tell_row, 0
        self._places: dict[tuple[str, ...], Path] = {}
        self.original = self.keep(original, ())
        self.learn = dataclasses.replace(division.learn, teacher=self.original.encoder)
        self._judges: dict[Part, tuple[Judge, Work]] = {}

    def keep(self, bundle: Bundle, steps: tuple[str, ...], seconds: float = 0.0) -> State:
        """Write a model and read it again."""
        directory = self.folder / f"model-{self._count}"
        self._count += 1
        save(bundle, directory)
        self._places[steps] = directory
        encoder = load(directory, self.parts)
        encoder.model.to(next(bundle.model.parameters()).device)
        encoder.facts = dict(bundle.facts)
        return State(steps, directory, encoder, seconds)

    def apply(self, step: Step, state: State) -> State:
        """The next model of the chain; the step's refusals come through."""
        self.tell(f"{step.spell()}: at work")
        begin = time.process_time()
        made = step.apply(state.encoder, self.learn)
        return self.keep(made, (*state.steps, step.spell()), time.process_time() - begin)

    def measure(self, state: State, part: Part, fresh: bool = True) -> Row:
        """Its row of the table."""
        self.tell(f"{state.name}: measuring")
        judge, work = self.judge(part)
        fresh = fresh and not self.parts  # a child would not know parts of the user's own
        measured = measure(state.directory, state.encoder, self.original.encoder, judge, work, fresh=fresh)
        row = Row(state.steps, measured, state.seconds, part)
        self.tell_row(row)
        return row

    def drop(self, steps: tuple[str, ...]) -> None:
        """Remove what was written of a model that is not wanted: large ones would fill the disk."""
        if steps in self._places:
            shutil.rmtree(self._places.pop(steps), ignore_errors=True)

    def judge(self, part: Part) -> tuple[Judge, Work]:
        if part not in self._judges:
            examples = self.division.choose if part == "choose" else self.division.report
            judge = make_judge(self.original.encoder, examples, self.seed)
            self._judges[part] = judge, judge.work()
        return self._judges[part]

    def publish(self, state: State, result: Result, about: dict[str, Any]) -> None:
        """The chosen model with its report as the only content of the directory around the workshop."""
        outer = self.folder.parent
        for file in sorted(state.directory.iterdir()):
            shutil.move(file, outer / file.name)
        shutil.rmtree(self.folder)
        atomic_io.write_json(outer / REPORT, finite({**about, **result.as_json()}))


def finite(value: Any) -> Any:
    """What JSON can say: None for what is no number."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value


def apply_chain(workshop: Workshop, steps: Sequence[Step]) -> tuple[list[Row], list[State]]:
    """The original and the model after each step, reported."""
    states = [workshop.original]
    rows = [workshop.measure(states[0], "report")]
    for step in steps:
        states.append(workshop.apply(step, states[-1]))
        rows.append(workshop.measure(states[-1], "report"))
        no_smaller = rows[-1].measured.bytes >= rows[-2].measured.bytes
        if step.saves and no_smaller and _speed(rows[-1]) <= 1.02 * _speed(rows[-2]):
            rows[-1].note = "neither smaller nor faster than before it"
    mark_pareto(rows)
    return rows, states


def mark_pareto(rows: Sequence[Row]) -> None:
    """Say of each row whether no other is as good and smaller, or as good and faster."""
    for name, cost in (("size", lambda row: row.measured.bytes), ("speed", lambda row: 1 / _speed(row))):
        for row in rows:
            here = cost(row), -retained(row)
            others = ((cost(each), -retained(each)) for each in rows if each is not row)
            beaten = any(a <= here[0] and b <= here[1] and (a, b) != here for a, b in others)
            row.pareto = [*(each for each in row.pareto if each != name), *([] if beaten else [name])]


def retained(row: Row) -> float:
    return row.measured.quality.retained if row.measured.quality is not None else float("nan")


def _speed(row: Row) -> float:
    return row.measured.speed.ratio if row.measured.speed is not None else 1.0


def try_steps(bundle: Bundle, kinds: dict[str, type[Step]], division: Division) -> dict[str, Bundle | str]:
    """Of each step the model that it gives here on a little of the data, or why it refuses this one."""
    little = dataclasses.replace(division.learn, tokens=512, teacher=bundle)
    outcomes = dict[str, Bundle | str]()
    for name, kind in kinds.items():
        try:
            outcomes[name] = kind().apply(bundle, little)
        except InputError as error:
            outcomes[name] = str(error)
    return outcomes
