"""How far it is from the command line to attention, and how many files take part: `python -m docs.tools.trace`.

Prepares a small text and trains `bert_mini` on it for one step, in this process. Prints as JSON the frames of ours on
the stack when a training step first calls the attention backend, and the files in which a function
body runs during `prepare` and during `pretrain`. `--list` also names them.
`python -m docs.tools.architecture` puts the numbers into its page.
"""

import argparse
import contextlib
import functools
import inspect
import io
import json
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import clozeworks
from clozeworks.cli.main import main as clozeworks_main

PACKAGE = Path(clozeworks.__file__).parent
BACKEND = ("nn/kernels/backends.py", "attend")
LOOP = "train/loop.py:"  # the memory that a run takes is measured before the first step, by a pass of its own
TEXT = "\n\n".join(f"Document {number} has a sentence. It has another one, and a third." for number in range(200))
TRAIN = ("--set", "train.steps=1", "--set", "train.batch_tokens=512", "--set", "objective.segments.length=64")


@dataclass
class Trace:
    """What a command ran: files by their path in the package, and the stack when a step first calls attention."""

    files: set[str] = field(default_factory=set)
    stack: list[str] = field(default_factory=list)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function: Python calls it whenever a function is entered."""
        if event != "call":
            return
        code = frame.f_code
        path = own_path(code.co_filename)
        if path is None or not code.co_flags & inspect.CO_OPTIMIZED:
            return  # bodies of modules and classes have no fast locals: importing a file is not running it
        self.files.add(path)
        if not self.stack and (path, code.co_name) == BACKEND:
            stack = stack_of(frame)
            if any(name.startswith(LOOP) for name in stack):
                self.stack = stack


@functools.cache  # asked for every call of every library
def own_path(file: str) -> str | None:
    """The path of a file below the package; None for the files of others."""
    path = Path(file)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else None


def stack_of(frame: FrameType) -> list[str]:
    """Frames of ours from the command line to this one."""
    names = []
    at: FrameType | None = frame
    while at is not None:
        path = own_path(at.f_code.co_filename)
        if path is not None:
            names.append(f"{path}:{at.f_code.co_name}")
        at = at.f_back
    return names[::-1]


def trace_command(words: Sequence[str]) -> Trace:
    """Run a command of the command line in this process, silently, and note what it ran."""
    trace, text = Trace(), io.StringIO()
    threading.setprofile(trace.note)
    sys.setprofile(trace.note)
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = clozeworks_main(list(words))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code:
        raise SystemExit(f"clozeworks {' '.join(words)}: exit code {code}\n{text.getvalue()}")
    return trace


def trace_commands() -> dict[str, Trace]:
    """The traces of `prepare` and of `pretrain bert_mini`."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "corpus.txt").write_text(TEXT)
        data, run = str(here / "data"), str(here / "run")
        prepared = trace_command(["prepare", str(here / "corpus.txt"), "--out", data, "--vocab", "200"])
        trained = trace_command(["pretrain", "bert_mini", "--data", data, "--out", run, *TRAIN])
    return {"prepare": prepared, "pretrain": trained}


def count(traces: dict[str, Trace]) -> dict[str, int]:
    """The three numbers of docs/architecture.md."""
    return {
        "frames_to_attention": len(traces["pretrain"].stack),
        "files_of_prepare": len(traces["prepare"].files),
        "files_of_pretrain": len(traces["pretrain"].files),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the frames and files, too")
    options = parser.parse_args()
    traces = trace_commands()
    print(json.dumps(count(traces)))
    if options.list:
        print("", "from the command line to attention", *traces["pretrain"].stack, sep="\n")
        for name, trace in traces.items():
            print("", f"files that `{name}` runs", *sorted(trace.files), sep="\n")


if __name__ == "__main__":
    main()
