"""The guard of a run: which updates are not made, when the run goes back, and when it stops.

Its memory is part of a checkpoint, and what it decides depends on the losses and that memory alone, so a run that was
interrupted decides as the uninterrupted one did.
"""

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor

from clozeworks.core.errors import InputError
from clozeworks.core.process_group import ProcessGroup, local
from clozeworks.optim.guard import PATIENCE, Guard
from clozeworks.train.step import Step

SIGMA = 1.4826  # standard deviations in a median absolute deviation of normal numbers
LOWER = "lower train.learning_rate or lengthen train.warmup in a new run; with train.precision=bf16 try fp32"
NOT_FINITE, SPIKE, HIGH = "not finite", "spike", "high after a spike"


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Steps that a run passes over, `begin` to `end`, for a trouble that was first seen at `first`."""

    begin: int
    end: int
    first: int
    attempt: int  # from 1
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a step; `back` and `stop` are for trouble that skipping did not end."""

    act: Literal["update", "skip", "back", "stop"]
    reason: str = ""


UPDATE = Verdict("update")


class SpikeGuard:
    """One run under a guard; without one, only what is not finite is skipped, and `PATIENCE` of it in a row stop.

    `borders` are the last steps of the length phases; `look` begins a command that shows the examples of a step. A run
    of fewer `steps` than that learned nothing if all of them were bad, and stops at the last.
    """

    def __init__(self, guard: Guard | None = None, borders: Iterable[int] = (), look: str = "", steps: int = PATIENCE):
        self.guard, self.borders, self.look = guard, frozenset(borders), look
        self.patience = guard.patience if guard else min(PATIENCE, steps)
        self.hopeless = False  # it has said stop
        self.load({})

    def __call__(self, number: int, loss: float, grad_norm: float) -> Verdict:
        """Check a step before its update is made."""
        if number - 1 in self.borders:  # another length has another loss
            self.losses.clear()
        reason = self._reason(loss, grad_norm)
        if not reason:
            self.level, self.first = 0, 0
            self.losses.append(loss)
            return UPDATE
        self.level, self.first = self.level + 1, self.first or number
        if self.level >= self.patience:
            self.hopeless = not self._go_back(number, reason)
            return Verdict("stop" if self.hopeless else "back", reason)
        return Verdict("update" if reason == HIGH else "skip", reason)

    def passes(self, number: int) -> SkippedRange | None:
        """The trouble for which a step is passed over, if it is."""
        return next((each for each in self.passed if each.begin <= number <= each.end), None)

    def anchor(self, step: int) -> int | None:
        """The last step whose checkpoint is sure to lie before any trouble that may show after `step`."""
        if self.guard is None or not self.guard.rollbacks:
            return None
        first = self.first or step + 1
        last = self._same(first)
        return (last.first if last else first) - self._reach(self.guard.rollbacks) - 1

    def state(self) -> dict[str, Any]:
        """All it remembers, as JSON."""
        passed = [asdict(each) for each in self.passed]
        return {"losses": list(self.losses), "level": self.level, "first": self.first, "passed": passed}

    def load(self, state: Mapping[str, Any]) -> None:
        self.losses: deque[float] = deque(state.get("losses", ()), self.guard.window if self.guard else 0)
        self.level: int = state.get("level", 0)  # bad steps in a row up to here
        self.first: int = state.get("first", 0)  # the first of them
        self.passed = [SkippedRange(**each) for each in state.get("passed", ())]

    def diverged(self, step: Step) -> InputError:
        """Why the run cannot continue, and how to see what it was trained on."""
        names = ", ".join(map(str, step.examples[:8])) + (", ..." if len(step.examples) > 8 else "")
        again = self._same(self.first) if self.guard else None
        after = f", after going back {again.attempt} times" if again else ""
        given = f"loss {step.loss:.5g}, gradient norm {step.grad_norm:.5g} ({step.reason}), and so for "
        given += f"{self.level} steps in a row{after} (examples {names})"
        todo = LOWER
        if self.look:
            todo = f"see `{self.look} {step.number}`; {todo}"
        if step.reason == NOT_FINITE:
            needed = "both must be finite, or nothing is learned"
        else:
            needed = "the loss must come down again"
            todo += "; if the text is meant to be so uneven, raise train.guard.rise"
        return InputError(f"step {step.number}", given, needed, todo)

    def is_sound(self, step: Step, parameters: Iterable[Tensor], group: ProcessGroup, ending: bool) -> bool:
        """Whether weights are finite in all processes: else what would be measured or saved of them has no worth.

        The loss of the next step will show it, and the run goes back or stops; at its end, where none follows, they
        are refused.
        """
        spoilt = sum(not local(each).isfinite().all().item() for each in parameters)
        sound = not group.totals([spoilt])[0]
        if ending and not sound:
            raise self.useless(step, "weights that are not finite")
        return sound

    def useless(self, step: Step, given: str) -> InputError:
        """Why what a step left is worth nothing."""
        return InputError(f"step {step.number}", given, "finite numbers are needed, or nothing is learned", LOWER)

    def _reason(self, loss: float, grad_norm: float) -> str:
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            return NOT_FINITE
        if self.guard is None or len(self.losses) < self.guard.window:
            return ""
        middle = statistics.median(self.losses)
        spread = SIGMA * statistics.median(abs(each - middle) for each in self.losses)
        margin = max(self.guard.deviations * spread, self.guard.rise)
        if loss > middle + margin:
            return SPIKE
        return HIGH if self.level and loss > middle + margin / 2 else ""

    def _go_back(self, number: int, reason: str) -> bool:
        """Put the steps of this trouble on the list; False if that was done often enough."""
        last = self._same(self.first)
        attempt, first = (last.attempt + 1, last.first) if last else (1, self.first)
        if self.guard is None or attempt > self.guard.rollbacks:
            return False
        others = self.passed[:-1] if last else self.passed
        self.passed = [*others, SkippedRange(max(first - self._reach(attempt), 1), number, first, attempt, reason)]
        return True

    def _same(self, first: int) -> SkippedRange | None:
        """The last trouble, if one that begins at `first` is taken for the same."""
        last = self.passed[-1] if self.passed else None
        return last if last and self.guard and first <= last.end + self.guard.window else None

    def _reach(self, attempt: int) -> int:
        return self.patience * 2 ** (attempt - 1)
