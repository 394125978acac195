"""Model directories that lie: sizes beyond any machine, brackets without end, ids and numbers that nobody has.

Each is one sentence and exit code 2, and takes no memory for what it claims to be.
"""

import json
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from clozeworks.cli.main import main
from tests.faults.scene import Figures, Scene, each

SIZES = (2_000_000_000, 1 << 40, 1 << 62)
DEEP = "[" * 100_000 + "]" * 100_000
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
INDICES = (
    "[]", "{}", DEEP, '{"weight_map": 1}', '{"weight_map": [1]}', '{"weight_map": {"a": 1}}',
    '{"weight_map": {"a": "gone.safetensors"}}', '{"weight_map": {"a": "../../etc/passwd"}}',
    '{"weight_map": {"a": "/dev/zero"}}', '{"weight_map": {"a": {"b": 1}}}',
)  # fmt: skip
MEMORY = 3 << 30  # bytes of addresses that a case may take above what the process has
GROWN = 400  # megabytes that a refusal may have taken at most: torch's own parts, and the file that was read
Bomb = tuple[str, Callable[[Path], None]]


def run(place: Scene, every: int = 1) -> Figures:
    """Every bomb in a directory of ours and in one of Hugging Face's, or each so-many-th."""
    figures, run = Figures(), place.folder / "run"
    assert place.run(place.pretrain(run, steps=2)).status == 0
    (place.folder / "lines.txt").write_text("the red fox\n")
    sound = {name: place.folder / name for name in ("clozeworks", "hf")}
    for name, out in sound.items():
        assert place.run(["export", str(run), "--to", name, "--out", str(out), "--json"]).status == 0
    cases = [(about, out, bomb) for out in sound.values() for about, bomb in _bombs(out)][::every]

    def explode(case: tuple[str, Path, Callable[[Path], None]]) -> dict[str, Any]:
        return _explode(place, *case)

    for (about, out, _), came in zip(cases, each(explode, cases, place.folder), strict=True):
        figures.cases += 1
        figures.add(came["came"])
        figures.figures["megabytes"] = max(figures.figures.get("megabytes", 0), came["megabytes"])
        fine = came["came"] == "refused" and came["megabytes"] < GROWN
        figures.expect(fine, f"{out.name}, {about}: {came}")
    return figures


def _bombs(out: Path) -> list[Bomb]:
    """What can be wrong with this directory."""
    config = next(name for name in ("recipe.json", "config.json") if (out / name).is_file())
    paths = [
        path for path, value in _leaves(json.loads((out / config).read_text())) if type(value) is int and value > 1
    ]
    chosen = [path for path in paths if path[-1] in NUMBERS]
    bombs: list[Bomb] = [
        (f"{'.'.join(map(str, path))} = {size:,}", _setter(config, path, size)) for path in chosen for size in SIZES
    ]
    bombs += [
        (f"{name} of brackets", _writer(name, DEEP)) for name in (config, "tokenizer.json", "tokenizer_config.json")
    ]
    bombs += [(f"an index {text[:40]}", _writer(INDEX, text)) for text in INDICES]
    bombs += [("a token with an id of 2^31", _far_id)]
    bombs += [(f"weights of {about}", _filled(make)) for about, make in FILLS.items()]
    return bombs


NUMBERS = ("vocab", "width", "length", "inner", "depth", "heads", "segments", "vocab_size", "hidden_size",
           "max_position_embeddings", "intermediate_size", "num_hidden_layers", "type_vocab_size",
           "num_attention_heads")  # fmt: skip
FILLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "NaN": lambda x: torch.full_like(x, float("nan")),
    "infinity": lambda x: torch.full_like(x, float("inf")),
    "whole numbers": lambda x: torch.ones_like(x, dtype=torch.int64),
    "another shape": lambda x: torch.cat([x, x]),
}


def _leaves(tree: Any, above: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    if not isinstance(tree, dict | list):
        return [(above, tree)]
    children = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [leaf for key, value in children for leaf in _leaves(value, (*above, key))]


def _setter(name: str, path: tuple[Any, ...], value: int) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        tree = json.loads((folder / name).read_text())
        at = tree
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        (folder / name).write_text(json.dumps(tree))

    return act


def _writer(name: str, text: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        if name == INDEX:
            (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
        (folder / name).write_text(text)

    return act


def _far_id(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tree = json.loads(file.read_text())
    tree["model"]["vocab"][next(reversed(tree["model"]["vocab"]))] = 1 << 31
    file.write_text(json.dumps(tree))


def _filled(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        name = random.Random(3).choice(sorted(name for name in weights if weights[name].dim() > 1))
        save_file(weights | {name: make(weights[name])}, folder / WEIGHTS, metadata={"format": "pt"})

    return act


def _explode(place: Scene, about: str, sound: Path, bomb: Callable[[Path], None]) -> dict[str, Any]:
    """In a fork: what a command says to it, and the memory that took."""
    folder = place.folder / f"bomb-{sound.name}-{abs(hash(about))}"
    shutil.copytree(sound, folder)
    bomb(folder)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = main(["encode", str(folder), str(place.folder / "lines.txt"), "--out", str(folder / "out.npy")])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    shutil.rmtree(folder)
    return {"came": {0: "taken", 2: "refused"}.get(code, f"exit code {code}"), "megabytes": grown}
