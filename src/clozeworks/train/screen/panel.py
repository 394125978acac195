"""The live view on a terminal: how far, how fast, the loss so far, the held-out metrics, and a guess of the model.

It is drawn from what the loop hands over, a few times a second, and asks nothing of the training.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

BINS = 256  # points of a curve that are kept, however long the run
ROWS = 3  # of the curve
WIDEST = 100  # columns; a longer line is hard to read
FULL, ASCII = " ▁▂▃▄▅▆▇█", " .,:-=+*#"  # eight heights of a character
TALL = 9  # rows of a terminal below which there is no curve


@dataclass(frozen=True, slots=True)
class Guess:
    """A masked token, the text around it, and what the model takes it for."""

    before: str
    guess: str
    truth: str
    after: str

    def draw(self, width: int, ascii_only: bool = False) -> Text:
        """One line: ... text [guess] text ..., or [guess ≠ truth]."""
        right = self.guess == self.truth
        truth = "" if right else f" {'!=' if ascii_only else '≠'} {self.truth}"
        hole = Text.assemble("[", (self.guess, "green" if right else "red"), f"{truth}]")
        before = _last(self.before, max(width - cell_len(hole.plain) - 2, 0) * 2 // 3)
        return Text.assemble((before, "dim"), " " if before else "", hole, " ", (self.after, "dim"))


class Curve:
    """Means over stretches of steps that grow with the run, so that it takes the same room at any length."""

    def __init__(self) -> None:
        self.size = 1  # steps a bin
        self.sums: list[float] = []
        self.counts: list[float] = []

    def add(self, step: int, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        while (step - 1) // self.size >= BINS:
            self.sums, self.counts = _halved(self.sums), _halved(self.counts)
            self.size *= 2
        at = (step - 1) // self.size
        if at >= len(self.sums):
            missing = at + 1 - len(self.sums)
            self.sums += [0.0] * missing
            self.counts += [0] * missing
        self.sums[at] += value
        self.counts[at] += 1

    def columns(self, width: int) -> list[float]:
        """At most `width` means, from the first step to the last; stretches without a value are left out."""
        means, share = [], max(1.0, len(self.sums) / max(width, 1))
        for column in range(min(width, len(self.sums))):
            here = slice(round(column * share), max(round((column + 1) * share), round(column * share) + 1))
            if count := sum(self.counts[here]):
                means.append(sum(self.sums[here]) / count)
        return means


@dataclass(slots=True)
class Panel:
    """What is drawn; its owner changes the fields. rich asks for the lines anew each time, at the width of then."""

    steps: int
    curve: Curve
    step: int = 0
    facts: str = ""
    left: str = ""
    heldout: str = ""
    guess: Guess | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(min(options.max_width, WIDEST), console.height, options.ascii_only):
            line.no_wrap, line.overflow = True, "crop"
            line.truncate(options.max_width, overflow="crop")
            yield line

    def lines(self, width: int, height: int, ascii_only: bool = False) -> Iterator[Text]:
        yield self._bar(width, ascii_only)
        yield Text(self.facts)
        if height >= TALL:
            yield from self._chart(width, FULL if not ascii_only else ASCII)
            if self.heldout:
                yield Text(self.heldout)
            if self.guess is not None:
                yield self.guess.draw(width, ascii_only)

    def _bar(self, width: int, ascii_only: bool) -> Text:
        words = f"step {self.step:,} of {self.steps:,}  "
        left = f"  {self.left} left" if self.left else ""
        room = min(max(width - len(words) - len(left), 0), 40)
        done = room * self.step // max(self.steps, 1)
        whole, rest = ("=", "-") if ascii_only else ("━", "─")
        return Text.assemble(words, (whole * done, "cyan"), (rest * (room - done), "dim"), left)

    def _chart(self, width: int, levels: str) -> Iterator[Text]:
        values = self.curve.columns(max(width - 9, 1))
        if len(values) < 2:
            return
        names = [f"{max(values):8.3f} ", *[" " * 9] * (ROWS - 2), f"{min(values):8.3f} "]
        for name, row in zip(names, chart(values, ROWS, levels), strict=True):
            yield Text.assemble((name, "dim"), (row, "cyan"))


def chart(values: Sequence[float], rows: int, levels: str = FULL) -> list[str]:
    """Columns of characters, from the top row down; the lowest value still has a mark."""
    low, high, steps = min(values), max(values), len(levels) - 1
    span = high - low or 1.0
    heights = [1 + round((value - low) / span * (rows * steps - 1)) for value in values]
    return ["".join(levels[min(max(h - row * steps, 0), steps)] for h in heights) for row in reversed(range(rows))]


def _halved(values: list[float]) -> list[float]:
    return [sum(values[at : at + 2]) for at in range(0, len(values), 2)]


def _last(text: str, width: int) -> str:
    """The end of a text that fits, from a word on where there are words."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width:
        text = text[1:]
    _, space, words = text.partition(" ")
    return words if space and len(words) > len(text) // 2 else text
