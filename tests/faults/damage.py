"""Truncated, flipped and deleted: every damage to a checkpoint or to prepared text is seen before anything is computed.

A damage counts as harmless where the file still says the same, as `1e-05` and `1E-05` do.
"""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozeworks.core import checksummed_json
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.exchange import checkpoint
from clozeworks.train import run_dir
from clozeworks.train.pretrain import open_data
from tests.faults import scene
from tests.faults.scene import Figures, Scene

WAYS = ("truncated", "flipped", "deleted")
STEPS, SAVE_EVERY = 8, 4


@dataclass(frozen=True, slots=True)
class Target:
    """A file, and how its reader takes it: `read` raises when it sees damage."""

    file: Path
    kind: str
    read: Callable[[], Any]


def run(place: Scene, cases: int = 1000, commands: int = 30) -> Figures:
    """`cases` damages looked at by the readers, and `commands` more by the command line."""
    out = place.folder / "run"
    words = place.pretrain(out, steps=STEPS, save_every=SAVE_EVERY)
    assert place.run(words).status == 0
    figures = Figures()
    results_file = place.folder / "results.json"
    done = scene.fork(lambda: _look(place, out, cases, results_file), place.folder / "look.log")
    assert done.wait(3600) == 0, done.says()
    seen = json.loads(results_file.read_text())
    figures.cases, figures.figures, figures.broken = cases, seen["figures"], seen["broken"]
    _commands(place, out, words, commands, figures)
    return figures


def _look(place: Scene, out: Path, cases: int, results_file: Path) -> int:
    """In a fork, for readers may start threads."""
    figures, draw, targets = Figures(), random.Random(5), _targets(place, out)
    for case in range(cases):
        target, way = draw.choice(targets), WAYS[case % len(WAYS)]
        before = target.file.read_bytes()
        about = _damage(target.file, way, draw)
        try:
            came = _seen(target, before)
        finally:
            target.file.write_bytes(before)
        figures.add(came)
        figures.add(f"{target.kind} {way}")
        where = f"{target.kind} {target.file.name} {about}"
        figures.expect(came in ("detected", "harmless"), f"{where}: {came}")
    results_file.write_text(json.dumps({"figures": figures.figures, "broken": figures.broken}))
    return 0


def _targets(place: Scene, out: Path) -> list[Target]:
    """Every file of two checkpoints, every file of the prepared directory, and what says which run it is."""

    def newest_but(path: Path) -> None:
        result = checkpoint.find(out)
        if result.checkpoint is not None and result.checkpoint.path == path:
            return
        checkpoint.verify(path)  # an older one is not looked at until it is needed

    def text() -> None:
        corpora, _ = open_data([(place.data, 1.0)])
        if "heldout" in corpora[0][0].manifest["splits"]:
            Corpus.open(place.data, "heldout", verify="hash")

    saves = [Target(file, "checkpoint", lambda file=file: newest_but(file.parent))
             for path in sorted(out.glob("step-*")) for file in sorted(path.iterdir())]  # fmt: skip
    texts = [Target(file, "text", text) for file in sorted(place.data.iterdir())]
    return saves + 2 * texts + [Target(out / run_dir.RUN, "run", lambda: run_dir.read(out))]


def _damage(file: Path, way: str, draw: random.Random) -> str:
    """Do it; say how. Every second flip is in the first kilobyte, where headers are."""
    content = bytearray(file.read_bytes())
    if way == "deleted":
        file.unlink()
        return way
    at = draw.randrange(len(content) if draw.random() < 0.5 else min(len(content), 1024))
    if way == "truncated":
        file.write_bytes(content[:at])
        return f"truncated to {at} bytes"
    bit = draw.randrange(8)
    content[at] ^= 1 << bit
    file.write_bytes(content)
    return f"flipped at {at}, bit {bit} ({bytes(content[max(at - 12, 0) : at + 12])!r})"


def _seen(target: Target, before: bytes) -> str:
    try:
        target.read()
    except (InputError, checkpoint.DamagedError):
        return "detected"
    except Exception as error:
        return f"a traceback ({error!r})"
    return "harmless" if _same(target.file, before) else "not detected"


def _same(file: Path, before: bytes) -> bool:
    """Whether a JSON file still says what it said, its own hash apart."""
    try:
        after, stored = json.loads(file.read_bytes()), json.loads(before)
    except (OSError, ValueError):
        return False
    return after == stored or all(
        after.get(name) == value for name, value in stored.items() if name != checksummed_json.MARK
    )


def _commands(place: Scene, out: Path, words: list[str], count: int, figures: Figures) -> None:
    """The same by `pretrain`: damaged text is refused; instead of a damaged checkpoint an older one is resumed from."""
    whole, base, draw = scene.end_of(out), place.folder / "base", random.Random(6)
    shutil.copytree(out, base)
    for case in range(count):
        way, text = WAYS[case % len(WAYS)], case % 2
        files = sorted((place.data if text else out / checkpoint.name_of(STEPS)).iterdir())
        file = draw.choice(files)
        before = file.read_bytes()
        about = f"{file.name} {_damage(file, way, draw)}"
        harmless = _same(file, before)
        done = place.run(words)
        figures.cases += 1
        if text and not harmless:
            refused = done.status == 2 and done.says().startswith("error: ") and done.says().count("\n") == 1
            figures.add("refused by pretrain" if refused else "not refused")
            figures.expect(refused, f"{about}: pretrain gave {done.status}: {done.says()[-500:]}")
        elif not text:
            same = done.status == 0 and not scene.unlike(whole, scene.end_of(out))
            figures.add("resumed from an older checkpoint" if same else "not resumed")
            figures.expect(same, f"{about}: pretrain gave {done.status}: {done.says()[-500:]}")
        if text:
            file.write_bytes(before)
        shutil.rmtree(out)
        shutil.copytree(base, out)
