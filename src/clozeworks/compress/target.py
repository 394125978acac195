"""What a model shall become, and the search for the steps that make it so.

Every step is tried alone; then they are put after one another in the order of what they gain for what they lose, on the
part of the data that is there to choose by. A step that does not pay is undone. What a step took of the quality is
learned again from the original (`distil`): where it breaks what was asked for, at once, and it is undone if that is no
help; where no quality was asked for, once, in the end. Steps that are fitted to the layers, as exit, come behind those
that cut; steps after which nothing can be taught, as vocab, behind these, and those that no other can follow, as int8,
last. One that was kept may be taken again: of what it left.
"""

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from clozeworks.compress.chain import Row, State, Workshop, mark_pareto, retained
from clozeworks.compress.measure import Measured
from clozeworks.compress.step import Step, list_steps
from clozeworks.compress.training.distil import DistilOriginal
from clozeworks.core.errors import InputError, suggest

UNITS = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9}
NAMES = ("size", "speed", "quality")
PAYS = 0.02  # that a step must gain: two parts in a hundred
LOSS = 0.005  # of the quality, that every step is charged for: of two harmless ones the greater gain is first
PASSES = 4
TAUGHT = 300  # steps of distillation, wherever there is something to learn again
Path = tuple[list[State], list[Row]]  # the original and the model after each step, with what was measured of each


@dataclass(frozen=True, slots=True)
class Target:
    """Bytes of the weights at most, times the speed at least, share of the quality at least; None: whatever comes."""

    bytes: float | None = None
    speed: float | None = None
    quality: float | None = None

    def shortfall(self, measured: Measured) -> dict[str, float]:
        """By what factor, as a logarithm, each part of it is missed; nothing where it is reached."""
        missed = {}
        if self.bytes is not None:
            missed["size"] = math.log(measured.bytes / self.bytes)
        if self.speed is not None and measured.speed is not None:
            missed["speed"] = math.log(self.speed / measured.speed.ratio)
        if self.quality is not None and measured.quality is not None:
            missed["quality"] = math.log(self.quality / max(measured.quality.retained, 1e-9))
        return {name: value for name, value in missed.items() if value > 0}

    def gain(self, before: Measured, after: Measured) -> float:
        """How much nearer a step brings what is asked for, as a logarithm; of quality alone, smaller and faster."""
        assert before.speed is not None
        assert after.speed is not None
        size, speed = math.log(before.bytes / after.bytes), math.log(after.speed.ratio / before.speed.ratio)
        wanted = [size] * (self.bytes is not None) + [speed] * (self.speed is not None)
        return sum(wanted or [size, speed])

    def describe(self, measured: Measured) -> str:
        """What is reached and what is not, in words."""
        says = []
        if self.bytes is not None:
            says.append(f"size {measured.bytes / 1e6:.3g} MB, asked for {self.bytes / 1e6:.3g}")
        if self.speed is not None and measured.speed is not None:
            says.append(f"speed {measured.speed.ratio:.3g}x, asked for {self.speed:.3g}x")
        if self.quality is not None and measured.quality is not None:
            says.append(f"quality {measured.quality.retained:.4f}, asked for {self.quality:.4g}")
        return "; ".join(says)


def parse_target(text: str) -> Target:
    """size=10MB, speed=4x, quality=0.99: one or several, with commas."""
    values: dict[str, float] = {}
    for piece in text.split(","):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if name not in NAMES:
            raise InputError("--target", name or "nothing", "size, speed or quality is needed", suggest(name, NAMES))
        if not equals or not value:
            raise InputError("--target", piece, "a value is needed", f"for example: {_EXAMPLES[name]}")
        if name in values:
            raise InputError("--target", text, f"{name} is asked for twice", "leave one of them out")
        values[name] = _READ[name](value)
    return Target(values.get("size"), values.get("speed"), values.get("quality"))


def _size(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)\s*([kmg]?b)", text, re.IGNORECASE)
    return _positive("size", text, match[1], UNITS[match[2].upper()]) if match else _wrong("size", text)


def _speed(text: str) -> float:
    ratio = _positive("speed", text, text.removesuffix("x"))
    if ratio <= 1:
        needed = "times the speed of the original, more than 1, is needed"
        raise InputError("--target speed", text, needed, "for example: speed=2x")
    return ratio


def _quality(text: str) -> float:
    share = _positive("quality", text, text)
    if share > 1:
        needed = "a share of the original's quality, 1 at most, is needed"
        raise InputError("--target quality", text, needed, "for example: quality=0.99")
    return share


_READ = {"size": _size, "speed": _speed, "quality": _quality}
_EXAMPLES = {"size": "size=10MB", "speed": "speed=4x", "quality": "quality=0.99"}


def _positive(name: str, text: str, number: str, unit: float = 1.0) -> float:
    try:
        value = float(number) * unit
    except ValueError:
        return _wrong(name, text)
    return value if 0 < value < math.inf else _wrong(name, text)


def _wrong(name: str, text: str) -> float:
    raise InputError(f"--target {name}", text, "a number above 0 is needed", f"for example: {_EXAMPLES[name]}")


def check_target(target: Target, measured: Measured) -> None:
    """Refuse what the original is already."""
    if target.bytes is not None and measured.bytes <= target.bytes:
        given = f"{target.bytes / 1e6:.3g} MB"
        needed = f"the weights of the model have {measured.bytes / 1e6:.3g} MB already"
        raise InputError("--target size", given, needed, "ask for less, or for speed")


@dataclass(slots=True)
class Search:
    """The search: what was tried, and the states that were kept."""

    workshop: Workshop
    target: Target
    steps: dict[str, type[Step]] = field(default_factory=lambda: {n: s for n, s in list_steps().items() if s.saves})
    tried: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> tuple[State, list[State], bool]:
        """The last state, all before it, and whether it is what was asked for, by the part to choose on."""
        start = self.workshop.original
        begin = self._measure(start)
        check_target(self.target, begin.measured)
        order = self._scout(start, begin)
        closing = self._close(order)
        others = [step for step in order if step not in closing]
        path: Path = [start], [begin]
        best = self._finish(path, closing)
        for number in range(PASSES):
            if self._reached(best[1][-1]):
                break
            changed = False
            for step in others:
                longer = self._try(step, path)
                if longer is None:
                    continue
                path, changed = longer, True
                best = min(best, self._finish(path, closing), key=lambda each: self._rank(begin, each[1][-1]))
                if self._reached(best[1][-1]):
                    break
            if not changed:
                break
            if number == PASSES - 1:
                self.notes.append(f"after {PASSES} rounds of all steps no more was tried")
        if self.target.quality is None:
            best = self._teach_last(best, closing)
        self._say_kept(best[0])
        mark_pareto(self.tried)
        return best[0][-1], best[0], self._reached(best[1][-1])

    def _measure(self, state: State) -> Row:
        row = self.workshop.measure(state, "choose", fresh=False)
        self.tried.append(row)
        return row

    def _scout(self, start: State, begin: Row) -> list[Step]:
        """Every step alone: those that pay, the greatest gain for what is lost first."""
        scores: list[tuple[float, Step]] = []
        for name, kind in self.steps.items():
            step = kind()
            try:
                row = self._measure(self.workshop.apply(step, start))
            except InputError as error:
                self.notes.append(f"{name} is not for this model: {error}")
                continue
            row.kept = False
            self.workshop.drop(row.steps)
            gain, loss = self.target.gain(begin.measured, row.measured), max(0.0, 1 - retained(row))
            if gain < PAYS:
                row.note = "alone, it does not pay"
                continue
            row.note = "alone"
            scores.append((gain / (loss + LOSS), step))
        scores.sort(key=lambda each: -each[0])
        return [step for _, step in scores]

    def _close(self, order: Sequence[Step]) -> list[Step]:
        """Those that come behind all others, in their order."""
        fitted = [step for step in order if step.fitted]
        rest = [step for step in order if not step.fitted]
        ends = [step for step in rest if self._closes(step, order)]
        return [*fitted, *(step for step in rest if not step.teachable and step not in ends), *ends]

    def _closes(self, step: Step, order: Sequence[Step]) -> bool:
        """Whether none of the others can follow a step."""
        others = [each for each in order if each is not step]
        alone = next((row for row in self.tried if row.steps == (step.spell(),)), None)
        if not others or alone is None:
            return False
        little = dataclasses.replace(self.workshop.division.learn, tokens=512)
        bundle = step.apply(self.workshop.original.encoder, little)
        for other in others:
            try:
                other.apply(bundle, little)
            except InputError:
                continue
            return False
        return True

    def _finish(self, path: Path, closing: list[Step]) -> Path:
        """The path so far with the steps that come last, those of them that pay."""
        for step in closing:
            path = self._try(step, path) or path
        return path

    def _try(self, step: Step, path: Path) -> Path | None:
        """The path with a step, and with what taught its model where that was needed; None where it is undone, which
        its row says."""
        states, rows = path
        made, row = self._take(step, states[-1]) or (None, None)
        if made is None or row is None:
            return None
        gain, floor = self.target.gain(rows[-1].measured, row.measured), self.target.quality
        longer = [*states, made], [*rows, row]
        if gain < PAYS:
            row.kept, row.note = False, "undone, it does not pay"
        elif floor is not None and retained(row) < floor:
            taught = self._teach(longer) if step.structural and step.teachable else None
            if taught is not None and retained(taught[1][-1]) >= floor:
                return taught
            for undone in (row, *(taught[1][-1:] if taught else ())):
                undone.kept, undone.note = False, f"undone, quality below {floor:g}"
        if not row.kept:
            self.workshop.drop(made.steps)
            return None
        return longer

    def _take(self, step: Step, state: State) -> tuple[State, Row] | None:
        """The model after a step, measured; None where the step refuses it, which a note says."""
        known = next((row for row in self.tried if row.steps == (*state.steps, step.spell())), None)
        try:
            made = self.workshop.apply(step, state)
        except InputError as error:
            self.notes.append(f"{step.spell()} after {state.name}: {error}")
            return None
        row = known or self._measure(made)
        row.kept, row.note = True, ""
        return made, row

    def _teach(self, path: Path) -> Path | None:
        """The path with a model that learned from the original; None where it lost nothing, or learned nothing."""
        (states, rows), step = path, DistilOriginal(TAUGHT)
        tried = any(row.steps == (*states[-1].steps, step.spell()) for row in self.tried)
        taken = self._take(step, states[-1]) if retained(rows[-1]) < 1 and not tried else None
        if taken is None:
            return None
        if retained(taken[1]) > retained(rows[-1]):
            return [*states, taken[0]], [*rows, taken[1]]
        taken[1].kept, taken[1].note = False, "undone, it does not help"
        self.workshop.drop(taken[0].steps)
        return None

    def _teach_last(self, best: Path, closing: list[Step]) -> Path:
        """The best path, or that with a model which learned again what its cuts took, if it is as small and as fast."""
        last = {step.spell() for step in closing}
        cut = [at for at, state in enumerate(best[0]) if not last & {*state.steps}]
        taught = self._teach((best[0][: len(cut)], best[1][: len(cut)])) if len(cut) > 1 else None
        if taught is None:
            return best
        ended = self._finish(taught, closing)
        better = retained(ended[1][-1]) > retained(best[1][-1])
        return ended if better and self._missed(ended[1][-1]) <= self._missed(best[1][-1]) else best

    def _say_kept(self, path: list[State]) -> None:
        """A row is kept if its model is one of the chain in the end."""
        for row in self.tried:
            kept = any(row.steps == state.steps for state in path)
            if row.kept and not kept:
                row.note = "replaced: other steps came before it"
            row.kept = kept

    def _rank(self, begin: Row, row: Row) -> tuple[float, float]:
        """What is missed of the target, then what is gained."""
        return self._missed(row), -self.target.gain(begin.measured, row.measured)

    def _missed(self, row: Row) -> float:
        return sum(self.target.shortfall(row.measured).values())

    def _reached(self, row: Row) -> bool:
        """What was asked for; of quality alone there is no end but that no step is left."""
        return (self.target.bytes is not None or self.target.speed is not None) and not self._missed(row)
