"""Weights in and out of safetensors files; pickles are refused, or opened in a process of their own."""

import re
import subprocess
import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from clozeworks.core.child_process import child_environment, python_command
from clozeworks.core.errors import InputError
from clozeworks.core.json_reader import read_json
from clozeworks.exchange.weights import sparse

FILE = "model.safetensors"
STEP = "step"  # in the metadata
INDEX = "model.safetensors.index.json"
PICKLES = tuple(
    f"{name}.{end}" for end in ("bin", "pt", "pth", "bin.index.json") for name in ("pytorch_model", "model")
)


def state(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once: a tensor shared by several layers has the name of the first."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def write(path: Path, tensors: dict[str, Tensor], step: int | None = None) -> None:
    """One file, which knows the step of its run where it is given."""
    # One entry: of several the library writes now one first and now another, and equal weights would be unequal files.
    metadata = {"format": "pt"} if step is None else {STEP: str(step)}
    save_file({name: tensor.cpu() for name, tensor in tensors.items()}, path, metadata=metadata)


def read_step(path: Path) -> int | None:
    """The step that weights are of, where a run wrote them."""
    with safe_open(path, "pt") as file:
        step = (file.metadata() or {}).get(STEP, "")
    return int(step) if re.fullmatch(r"[0-9]{1,18}", step) else None


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of one file, in fp32 where they are floating point."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(path, "no such file", "a safetensors file is needed", "check the path") from None
    except (SafetensorError, OSError) as error:
        raise InputError(path, f"unreadable ({error})", "a whole safetensors file is needed", "copy it again") from None
    whole = sparse.unpack(tensors, path)
    return {name: t.float() if t.is_floating_point() else t for name, t in whole.items()}


def read_directory(directory: Path, allow_pickle: bool = False) -> dict[str, Tensor]:
    """One file, several behind an index, or, if allowed, a pickle."""
    if (directory / FILE).is_file():
        return read(directory / FILE)
    if (directory / INDEX).is_file():
        return {name: tensor for part in _list_parts(directory / INDEX) for name, tensor in read(part).items()}
    pickles = [directory / name for name in PICKLES if (directory / name).is_file()]
    if not pickles:
        raise InputError(directory, "no weights", f"{FILE} is needed", "save the model with safetensors")
    if not allow_pickle:
        given = "a pickle, which can run code when opened"
        todo = f"convert it: clozeworks import {directory} --allow-pickle --out NEW_DIRECTORY"
        raise InputError(pickles[0], given, f"{FILE} is needed", todo)
    return _unpickle(pickles[0])


def _list_parts(index: Path) -> list[Path]:
    """The files that an index names, which stand beside it."""
    try:
        names = set(read_json(index, dict)["weight_map"].values())
        parts = sorted(index.with_name(Path(name).name) for name in names)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        needed = 'a "weight_map" from tensors to files is needed'
        raise InputError(index, f"unreadable ({error})", needed, "copy it again") from None
    for part in parts:
        if not part.is_file():
            raise InputError(index, f"no {part.name} beside it", "the index names it", "copy the whole directory")
    return parts


def _unpickle(path: Path) -> dict[str, Tensor]:
    """Opened by a child process that may load tensors and nothing else."""
    if path.suffix == ".json":
        raise InputError(path, "a pickle in several parts", "one file is needed", "save it whole with safetensors")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / FILE
        run = subprocess.run(
            python_command("-m", "clozeworks.exchange.unpickle", str(path.absolute()), str(target)),
            env=child_environment(),
            capture_output=True,
            text=True,
        )
        if run.returncode:
            last = (run.stderr.strip().splitlines() or ["it died"])[-1]
            raise InputError(path, f"not opened ({last[:200]})", "a dictionary of tensors is needed", "do not trust it")
        return read(target)


def compare(model: nn.Module, tensors: dict[str, Tensor], where: object) -> None:
    """Raise `InputError` if a tensor is missing, superfluous, misshapen or of whole numbers."""
    wanted = dict(model.named_parameters())
    for name in dict.fromkeys((*wanted, *tensors)):
        if name not in tensors:
            given, needed = f"no tensor {name}", "the recipe has that part"
        elif name not in wanted:
            given, needed = f"a tensor {name}", "the recipe has no such part"
        elif tensors[name].shape != wanted[name].shape:
            given, needed = f"{name} of shape {tuple(tensors[name].shape)}", f"{tuple(wanted[name].shape)} is needed"
        elif wanted[name].is_floating_point() and not tensors[name].is_floating_point():
            given, needed = f"{name} of whole numbers", "weights are fractions"
        elif not wanted[name].is_floating_point() and tensors[name].dtype != wanted[name].dtype:
            given, needed = f"{name} of {_type(tensors[name])}", f"the recipe has it as {_type(wanted[name])}"
        else:
            continue
        raise InputError(where, given, needed, "is this the recipe's own weights file?")


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def assign(model: nn.Module, tensors: dict[str, Tensor], where: object) -> None:
    """Fill every parameter, bit for bit."""
    compare(model, tensors, where)
    wanted = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(tensors[name])
