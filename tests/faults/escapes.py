"""Texts that command a terminal: wherever they stand, in rows, labels, names and paths, none of them reaches one."""

import json
import os
import pty
import shutil
from collections.abc import Callable
from pathlib import Path

from clozeworks.cli.main import main
from tests.faults.scene import SECONDS, Figures, Scene, until
from tests.labelled import rows, write

COMMANDS = {
    "erase the screen": "\x1b[2J",
    "name the window": "\x1b]0;owned\x07",
    "one byte for two": "\x9b31m",
    "ring": "\x07",
    "step back": "ab\x08\x08cd",
    "turn the text round": "\u202e",
    "isolate": "\u2066",
    "a device answers": "\x1bP$q\x1b\\",
}


def run(place: Scene, only: int | None = None) -> Figures:
    """Each of them in each place, as a terminal shows it."""
    figures = Figures()
    assert place.run(place.pretrain(place.folder / "run", steps=2)).status == 0
    for number, (about, command) in enumerate(list(COMMANDS.items())[:only]):
        folder = place.folder / f"escapes-{number}"
        folder.mkdir()
        for name, act in _places(place, folder, command).items():
            shown = _on_terminal(act, folder / "terminal")
            _judge(f"{about}, {name}", shown, command, figures)
        for page in folder.glob("*.html"):
            _judge(f"{about}, {page.name}", page.read_bytes(), command, figures)
    return figures


def _judge(about: str, shown: bytes, command: str, figures: Figures) -> None:
    silent = command.encode() not in shown and b"Traceback" not in shown and len(shown) > 0
    figures.cases += 1
    figures.add("shown as text" if silent else "obeyed")
    figures.expect(silent, f"{about}: {shown[-500:]!r}")


def _places(place: Scene, folder: Path, command: str) -> dict[str, Callable[[], int]]:
    """Where such a text can stand, and a command that shows it."""
    given = [row | {"text": f"{row['text']} {command}", "label": f"{row['label']}{command}"} for row in rows(24)]
    labelled, task = str(write(folder / "rows.jsonl", given)), str(folder / "task")
    run, odd = str(place.folder / "run"), folder / f"odd{command.replace('/', '')}"
    (folder / "text.txt").write_text(f"the red fox {command} runs.\n\n" * 60, encoding="utf-8")
    (folder / "vectors.txt").write_text(f"a{command.split()[0]} 1 0\nb 0 1\n", encoding="utf-8")
    recipe = json.loads((place.folder / "run" / "recipe.json").read_text()) | {"name": f"r{command}"}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    data, tokenizer = str(folder / "data"), ["--tokenizer", str(place.data)]
    little = ["--epochs", "1", "--batch-size", "8", "--max-length", "16"]

    def in_order(*lines: list[str]) -> Callable[[], int]:
        return lambda: max(main(words) for words in lines)

    def runs() -> int:
        shutil.copytree(place.folder / "run", odd / "run")
        return main(["runs", str(odd)])

    return {
        "labels": in_order(["finetune", "classify", "--model", run, "--train", labelled, "--out", task, *little]),
        "answers": in_order(["predict", task, labelled]),
        "mistakes": in_order(["evaluate", task, "--test", labelled, "--report", str(folder / "report.html")]),
        "a text": in_order(["fill-mask", run, f"the {command} [MASK]"]),
        "examples": in_order(
            ["prepare", str(folder / "text.txt"), "--out", data, *tokenizer, "--heldout", "0.1"],
            ["examples", "bert_tiny", "--data", data],
        ),
        "words of vectors": in_order(["vectors", "similar", str(folder / "vectors.txt"), "b"]),
        "the name of a recipe": in_order(["show", str(folder / "recipe.json")]),
        "the name of a run": runs,
        "a path that is not there": in_order(["predict", task, str(odd / "nothing")]),
        "an option": in_order(["show", "bert_tiny", "--set", f"train.{command}=1"]),
        "a command": in_order([f"show{command}"]),
    }


def _on_terminal(act: Callable[[], int], log: Path) -> bytes:
    """What a terminal gets of it."""
    pid, handle = pty.fork()
    if not pid:
        status = 1
        try:
            os.environ["TERM"] = "xterm-256color"
            status = act()
        finally:
            os._exit(status)
    shown = bytearray()
    ended = False

    def drained() -> bool:
        nonlocal ended
        try:
            piece = os.read(handle, 1 << 16)
        except OSError:  # the other side is closed
            piece = b""
        shown.extend(piece)
        ended = ended or not piece
        return ended

    until(drained, SECONDS, f"{log.name} hangs")
    os.close(handle)
    os.waitpid(pid, 0)
    return bytes(shown)
