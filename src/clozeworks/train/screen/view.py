"""How the user watches a run: what was asked for, and the screen that is opened for it."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from clozeworks.train import run_dir
from clozeworks.train.recorder import read_rows
from clozeworks.train.screen.guess import guess_token
from clozeworks.train.screen.progress import ProgressLine
from clozeworks.train.startup.setup import Setup
from clozeworks.train.stop import StatusSignal
from clozeworks.train.writers import Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What shows a run beside its files: a screen, unless `progress` is false, and `writers` of other programs."""

    progress: bool = True
    console: Console | None = None
    writers: Sequence[Writer] = ()


@contextlib.contextmanager
def open_screen(view: View, setup: Setup, run: Path, start: int) -> Iterator[ProgressLine]:
    """The screen of the main process, quiet in all others; it answers SIGUSR1, and begins with the notes of the run."""
    group = setup.policy.group
    guess = functools.partial(guess_token, setup.model, setup.tokenizer)
    line = ProgressLine(
        setup.recipe.train.steps,
        start,
        view.console if group.main else Console(quiet=True),
        show=view.progress and group.main,
        guess=None if group.sharded else guess,  # of a shard, all processes would have to look
        past=read_rows(run / run_dir.METRICS, start) if group.main else (),
    )
    with contextlib.closing(line), StatusSignal(line.answer if group.main else lambda: None):
        for note in setup.notes:
            line.say(note)
        yield line
