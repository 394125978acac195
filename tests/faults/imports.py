"""Code that lies in the working directory, as in a directory somebody sent: no process that we start imports it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from clozeworks.cli.main import main
from clozeworks.exchange import tensors
from clozeworks.machine import trials
from tests.faults.scene import Figures, Scene

NAMES = ("torch", "json", "numpy", "pickle", "safetensors", "multiprocessing", "subprocess", "clozeworks")
MARK = "owned"
CODE = f"open({MARK!r}, 'a').write(__name__)\n"


def run(place: Scene, names: tuple[str, ...] = NAMES, together: bool = True) -> Figures:
    """Each module alone before the process that opens pickles; all at once before every process that is started."""
    figures = Figures()
    quick = {"the opener of pickles": lambda: _open_pickle}
    every = {
        **quick,
        "the doctor's": lambda: _ask_doctor,
        "workers of prepare": lambda: _prepare(place),
        "ranks of pretrain": lambda: _train(place),
    }
    traps = [((name,), quick) for name in names] + ([(NAMES, every)] if together else [])
    for number, (those, ways) in enumerate(traps):
        for way, make in ways.items():
            folder = place.folder / f"trap-{number}-{len(way)}"
            _lay(folder, those)
            _try(place, folder, make(), f"{', '.join(those)} before {way}", figures)
    _check_trap(place, figures)
    return figures


def _lay(folder: Path, names: tuple[str, ...]) -> None:
    (folder / "clozeworks").mkdir(parents=True)
    torch.save({"a": torch.ones(2)}, folder / "pytorch_model.bin")
    for name in names:
        file = folder / "clozeworks" / "__init__.py" if name == "clozeworks" else folder / f"{name}.py"
        file.write_text(CODE)


def _try(place: Scene, folder: Path, act: Callable[[], int], about: str, figures: Figures) -> None:
    def there() -> int:
        os.chdir(folder)
        return act()

    done = place.run(there)
    owned = (folder / MARK).exists()
    figures.cases += 1
    figures.add("imported" if owned else "kept out")
    figures.expect(not owned and done.status == 0, f"{about}: exit code {done.status}, {done.says()[-500:]}")


def _open_pickle() -> int:
    return 0 if tensors.read_directory(Path(), allow_pickle=True)["a"].tolist() == [1, 1] else 1


def _ask_doctor() -> int:
    return 0 if trials.run_child("import json, torch; print(json.dumps({'fine': 1}))") == {"fine": 1} else 1


def _prepare(place: Scene) -> Callable[[], int]:
    return lambda: main([*place.prepare(Path("data")), "--processes", "2"])


def _train(place: Scene) -> Callable[[], int]:
    return lambda: main([*place.pretrain(Path("run"), steps=2), "--processes", "2"])


def _check_trap(place: Scene, figures: Figures) -> None:
    """A trap that catches nobody would prove nothing: an interpreter that is not told to keep it out imports it."""
    folder = place.folder / "trap"
    _lay(folder, NAMES)
    free = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    subprocess.run([sys.executable, "-c", "import torch"], cwd=folder, env=free, capture_output=True)
    figures.expect((folder / MARK).exists(), "the trap catches nobody")
