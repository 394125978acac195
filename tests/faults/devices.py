"""Outputs that are no files: devices, pipes and sockets are refused or written into, and stay what they are."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from clozeworks.cli.main import main
from tests.faults.scene import Figures, Scene
from tests.labelled import rows, write

STREAMS = ("predict", "encode")  # whose lines may flow on
NULL = os.makedev(1, 3)


def run(place: Scene, commands: int | None = None) -> Figures:
    """Every command that writes, to each kind of thing that is no file."""
    figures, lines = Figures(), _commands(place)
    for kind, make in _things().items():
        for name, line in list(lines.items())[:commands]:
            thing = place.folder / f"{kind}-{name.replace(' ', '-')}{_ending(name)}"
            try:
                make(thing)
            except PermissionError:  # devices are made by root alone
                figures.add("not permitted")
                continue
            _try(place, name, kind, [word.format(out=thing) for word in line], thing, figures)
    return figures


def _ending(name: str) -> str:
    return {"vectors glove": ".safetensors", "evaluate": ".html", "inspect": ".svg"}.get(name, "")


def _things() -> dict[str, Callable[[Path], object]]:
    def link(path: Path) -> None:
        os.mknod(path.with_name(f"{path.name}.device"), stat.S_IFCHR | 0o666, NULL)
        path.symlink_to(f"{path.name}.device")

    return {
        "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o666, NULL),
        "link to a device": link,
        "pipe": os.mkfifo,
        "socket": lambda path: _bind(path),
    }


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _commands(place: Scene) -> dict[str, list[str]]:
    """What writes a file or a directory, with all else sound."""
    folder, out = place.folder, "{out}"
    labelled = str(write(folder / "rows.jsonl", rows(24)))
    run, task, lines = str(folder / "run"), str(folder / "task"), folder / "lines.txt"
    lines.write_text("the red fox\na blue hen\n")  # whose vectors a pipe has room for
    little = ["--epochs", "1", "--batch-size", "8", "--max-length", "16"]
    for words in (
        place.pretrain(Path(run), steps=2),
        ["finetune", "classify", "--model", run, "--train", labelled, "--out", task, "--json", *little],
    ):
        assert place.run(words).status == 0, words
    return {
        "predict": ["predict", task, labelled, "--out", out],
        "encode": ["encode", run, str(lines), "--out", out],
        "prepare": ["prepare", str(place.corpus), "--vocab", "120", "--out", out],
        "pretrain": place.pretrain(Path(out), steps=2),
        "finetune": ["finetune", "classify", "--model", run, "--train", labelled, "--out", out, *little],
        "export": ["export", run, "--to", "hf", "--out", out],
        "import": ["import", run, "--out", out],
        "convert": ["convert", run, "--out", out],
        "quickstart": ["quickstart", "--steps", "1", "--out", out],
        "evaluate": ["evaluate", task, "--test", labelled, "--report", out],
        "inspect": ["inspect", "layers", run, "--data", str(place.data), "--out", out],
        "vectors glove": ["vectors", "glove", str(place.corpus), "--dim", "4", "--epochs", "1", "--out", out],
        "vectors phrases": ["vectors", "phrases", str(place.corpus), "--out", out],
    }


def _try(place: Scene, name: str, kind: str, words: list[str], thing: Path, figures: Figures) -> None:
    before = os.lstat(thing)
    reader = os.open(thing, os.O_RDWR | os.O_NONBLOCK) if kind == "pipe" else None  # so that nobody waits for one
    done = place.run(lambda: main(words))
    if reader is not None:
        os.close(reader)
    after = os.lstat(thing) if os.path.lexists(thing) else None
    kept = after is not None and (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    said = [line for line in done.says().splitlines() if line.startswith("error: ")]
    flowed = done.status == 0 and name in STREAMS and kind != "socket"
    refused = done.status == 2 and len(said) == 1 and "Traceback" not in done.says()
    figures.cases += 1
    figures.add("replaced" if not kept else "refused" if refused else "written into" if flowed else "otherwise")
    figures.expect(kept and (refused or flowed), f"{name} to a {kind}: {done.status}, {done.says()[-500:]}")
