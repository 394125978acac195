"""What the doctor tries, each a function that runs alone in a fresh process and prints one JSON object."""

import json
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from clozeworks.core.child_process import child_environment, python_command

Option = TypeVar("Option", int, str, tuple[int, str])
CHOSEN_BY_US = ("ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def run_child(code: str, isa: str | None = None, seconds: float = 60) -> dict[str, Any]:
    """Run code in a fresh interpreter, free of earlier choices: the JSON it printed, {"died": why} or {"late": how}."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN_BY_US}
    if isa is not None:
        environment["ONEDNN_MAX_CPU_ISA"] = isa
    command, environment = python_command("-c", code), child_environment(environment)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"late": f"no answer within {seconds:g} seconds"}
    if done.returncode < 0:
        return {"died": signal.Signals(-done.returncode).name}
    if done.returncode > 0:
        return {"died": (done.stderr.strip().splitlines() or ["unknown"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def child(name: str, arguments: list[Any]) -> None:
    """Called in the child process only."""
    trials = {"software": _try_software, "threads": _try_threads, "bf16": _try_bf16}
    trials |= {"window": _try_window, "int8": _try_int8}
    print(json.dumps(trials[name](*arguments)))


def _try_software() -> dict[str, Any]:
    import numpy
    import torch

    if torch.cuda.is_available():
        device, name = "cuda", torch.cuda.get_device_name()
    elif torch.backends.mps.is_available():
        device, name = "mps", "Apple GPU"
    else:
        device, name = "cpu", None
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
    return {**versions, "device": device, "accelerator": name}


def _try_threads(device: str, *counts: int) -> dict[str, Any]:
    import torch

    from clozeworks.machine.training_step import make_step

    step = make_step(device)

    def run(count: int) -> float:
        torch.set_num_threads(count)
        step(False)  # the threads are made here
        return step(False)

    return {"step_ms": _fastest(counts, run)}


def _try_bf16(device: str, threads: int) -> dict[str, Any]:
    import torch

    from clozeworks.machine.training_step import make_step

    torch.set_num_threads(threads)
    layer = torch.nn.Linear(256, 256, device=device, dtype=torch.bfloat16)  # first what is known to kill
    layer(torch.ones(64, 256, device=device, dtype=torch.bfloat16)).sum().backward()
    step = make_step(device)
    times = _fastest(("fp32", "bf16"), lambda precision: step(precision == "bf16"))
    return {f"{precision}_ms": ms for precision, ms in times.items()}


def _try_window(threads: int) -> dict[str, Any]:
    import torch

    from clozeworks.machine import window_crossover

    torch.set_num_threads(threads)
    options = window_crossover.OPTIONS
    times: dict[str, dict[str, float]] = {}
    for (beyond, path), ms in _fastest(options, lambda option: window_crossover.run(*option), seconds=1.5).items():
        times.setdefault(str(beyond), {})[path] = ms
    return {"ms": times}


def _try_int8(threads: int) -> dict[str, Any]:
    from clozeworks.machine import int8_gain

    times = _fastest(int8_gain.OPTIONS, int8_gain.make(threads), seconds=1)
    return {**{f"{option}_ms": ms for option, ms in times.items()}, **int8_gain.facts()}


def _fastest(options: Sequence[Option], run: Callable[[Option], float], seconds: float = 4) -> dict[Option, float]:
    """Milliseconds of each option: the best of up to twelve turns, for what slows a turn is never the option alone."""
    begin = time.perf_counter()
    best = dict.fromkeys(options, float("inf"))
    for turn in range(13):
        for option in options:
            taken = run(option)
            if turn:  # the first one warms up
                best[option] = min(best[option], taken)
        if turn and time.perf_counter() - begin > seconds:
            break
    return {option: round(1000 * taken, 3) for option, taken in best.items()}
