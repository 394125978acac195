"""What this machine can do, found by trying: instruction set, mixed precision (bf16), threads and device for training.

Every trial runs in a child process, because the thing tried may kill it: on virtual machines that advertise AMX but
trap it, a bf16 `nn.Linear` ends in an illegal instruction. The verdict is remembered for this machine and read again
without importing torch, since the instruction set and the threads must be chosen before torch is loaded.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.machine.trials import run_child

SAFE_ISA = "AVX512_CORE_FP16"  # oneDNN's last step below AMX
WORTH = 1.15  # how much faster than fp32 a step in bf16 must be to pay for its rounding
BUSY = 0.2  # share of the cores in use by others above which a measurement says little about the machine
EXTRAS = {
    "zh": ("jieba", "snownlp", "zhplot"),
    "hf": ("transformers", "accelerate"),
    "ray": ("ray",),
    "arrow": ("pyarrow",),
    "watch": ("tensorboard",),
    "bleu": ("sacrebleu",),
    "sklearn": ("scikit-learn",),
    "vectors": ("numba",),
    "hdf5": ("h5py",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}


@dataclass(slots=True)
class Verdict:
    """The choices, the facts they rest on, and a sentence for each choice."""

    isa: str | None  # value for ONEDNN_MAX_CPU_ISA; None leaves it to oneDNN
    precision: Literal["fp32", "bf16"]
    threads: int
    device: str
    facts: dict[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    window: int | None = None  # how much longer than a piece a row with a window must be to be cut; None: as usual
    int8: bool | None = None  # whether products of int8 are faster than those of fp32; None: by the instruction set


_APPLIED: list[Verdict] = []  # the last one, where there was one


def as_json(verdict: Verdict) -> str:
    """One line, as `clozeworks doctor --json` prints it and `from_json` reads it."""
    return json.dumps(dataclasses.asdict(verdict), ensure_ascii=False)


def from_json(text: str) -> Verdict:
    """The verdict that `as_json` wrote; ValueError or TypeError if it is none."""
    verdict = Verdict(**json.loads(text))
    if verdict.precision not in ("fp32", "bf16") or not isinstance(verdict.threads, int) or verdict.threads < 1:
        raise ValueError(f"not a verdict: {text}")
    return verdict


def default() -> Verdict:
    """Where nothing was measured for so many cores: what others of them gave, or fp32 on every core, which is safe."""
    processor = _key_of_processor()
    others = [key for key in _known() if re.fullmatch(f"{processor}-[0-9]+", key)]
    for key in sorted(others, key=lambda key: abs(int(key.rpartition("-")[2]) - cores())):
        with contextlib.suppress(ValueError, TypeError):
            measured = _read(key)
            reason = (
                f"Measured with other cores than the {cores()} that this process may use; their number is the threads."
            )
            return dataclasses.replace(measured, threads=cores(), reasons=[reason, *measured.reasons])
    reason = "Nothing was measured yet: fp32 on every core is the safe choice."
    return Verdict(None, "fp32", cores(), "cpu", {}, [reason])


def remembered() -> Verdict | None:
    """The verdict of an earlier `probe` of this machine with this torch, if there is one; quick, without torch."""
    try:
        return _read(machine_key())
    except (ValueError, TypeError, KeyError):
        return None


def _read(key: str) -> Verdict:
    return from_json(json.dumps(_known()[key]))


def _known() -> dict[str, Any]:
    """What was measured, by machine; nothing where the file is gone or torn."""
    try:
        known = json.loads(cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def current() -> Verdict:
    """What this process goes by: the verdict that is remembered; that of a busy machine, which is not; the safe one."""
    return remembered() or (_APPLIED[-1] if _APPLIED else default())


def apply(verdict: Verdict, learns: bool = False) -> None:
    """Choose instruction set and threads as the verdict says; before torch is imported, or the first comes too late.

    What the user has set in the environment stays. What `learns` has the border of windows that every machine has, so
    that a run rounds alike wherever it is resumed.
    """
    _APPLIED.append(verdict)
    if verdict.window is not None and not learns:
        os.environ.setdefault("CLOZEWORKS_WINDOW_BORDER", str(verdict.window))
    if verdict.int8 is not None:
        os.environ.setdefault("CLOZEWORKS_INT8", str(int(verdict.int8)))
    if verdict.isa is not None:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", verdict.isa)
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(verdict.threads)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(verdict.threads)


def probe(remember: bool = True, seconds: float = 40) -> Verdict:
    """Measure this machine, in about 17 seconds on two idle cores and never more than `seconds`; remember the verdict.

    A verdict is true only of an idle machine: while others use it, the verdict holds for the moment and is not
    remembered; if there is no time to measure at all, it is the safe one.
    """
    begin = time.monotonic()

    def attempt(name: str, *arguments: object, isa: str | None = None) -> dict[str, Any]:
        code = f"from clozeworks.machine import trials; trials.child({name!r}, {list(arguments)!r})"
        return run_child(code, isa, max(0.0, begin + seconds - time.monotonic()))

    facts = machine()
    facts["busy_share"] = busy_share()
    facts["software"] = attempt("software")
    if "died" not in facts["software"]:
        device = facts["software"].get("device", "cpu")
        facts["threads"] = attempt("threads", device, *thread_counts(cores()))
        facts["bf16"] = attempt("bf16", device, best_threads(facts["threads"]))
        if "died" in facts["bf16"]:
            facts["bf16_safe_isa"] = attempt("bf16", device, best_threads(facts["threads"]), isa=SAFE_ISA)
        if device == "cpu":
            facts["window"] = attempt("window", best_threads(facts["threads"]))
            facts["int8"] = attempt("int8", best_threads(facts["threads"]))
    facts["seconds"] = round(time.monotonic() - begin, 1)
    verdict = decide(facts)
    if remember and "died" not in facts["software"] and not _late(facts) and facts["busy_share"] <= BUSY:
        _remember(verdict)
    return verdict


def decide(facts: dict[str, Any]) -> Verdict:
    """From measurements to choices: no clock, no process, the same answer for the same facts."""
    software, reasons = facts["software"], []
    unmeasured = ""
    if "died" in software:
        unmeasured = f"torch cannot be used here ({software['died']}), so nothing was measured."
    elif _late(facts):
        safe = "so the choices are the safe ones; try again when it is idle."
        unmeasured = f"The machine is too busy to be measured, {safe}"
    if unmeasured:
        return dataclasses.replace(default(), facts=facts, reasons=[unmeasured])
    device = software["device"]
    reasons.append("No accelerator was found: the CPU." if device == "cpu" else f"An accelerator was found: {device}.")
    threads = best_threads(facts["threads"])
    if "died" in facts["threads"]:
        reasons.append(f"The thread counts could not be measured ({facts['threads']['died']}): every core is used.")
    else:
        times = ", ".join(f"{ms:.0f} ms with {count}" for count, ms in facts["threads"]["step_ms"].items())
        reasons.append(f"Time of a training step by number of threads: {times}; so {threads}.")
    isa, precision, reason = _decide_precision(facts)
    reasons.append(reason)
    window = border_of(facts.get("window", {}).get("ms", {}))
    if window is not None:
        longer = f"where they are longer than a piece by more than {window} tokens"
        reasons.append(f"Rows with a window are faster in pieces {longer}; commands that train nothing go by that.")
    int8, reason = _decide_int8(facts.get("int8", {}))
    reasons += filter(None, [reason])
    if facts["busy_share"] > BUSY:
        busy = f"Other programs were using {facts['busy_share']:.0%} of the cores"
        reasons.append(f"{busy}: this verdict is not remembered; run it again on an idle machine.")
    return Verdict(isa, precision, threads, device, facts, reasons, window, int8)


def _late(facts: dict[str, Any]) -> bool:
    return any("late" in facts.get(trial, {}) for trial in ("software", "threads", "bf16", "bf16_safe_isa"))


def _decide_precision(facts: dict[str, Any]) -> tuple[str | None, Literal["fp32", "bf16"], str]:
    isa, bf16, before = None, facts["bf16"], ""
    if "died" in bf16:
        died, bf16 = bf16["died"], facts["bf16_safe_isa"]
        if "died" in bf16:
            return None, "fp32", f"bf16 arithmetic fails here ({died}), with or without ONEDNN_MAX_CPU_ISA; so fp32."
        isa = SAFE_ISA
        before = f"bf16 arithmetic fails here ({died}) unless ONEDNN_MAX_CPU_ISA={isa}, so that is set. "
    ratio = bf16["fp32_ms"] / bf16["bf16_ms"]
    measured = f"{before}A step in bf16 autocast runs at {ratio:.2f} times the speed of fp32"
    if ratio >= WORTH:
        return isa, "bf16", f"{measured}; so bf16."
    return isa, "fp32", f"{measured}, and {WORTH} times would pay for its rounding; so fp32."


def _decide_int8(facts: dict[str, Any]) -> tuple[bool | None, str]:
    if "int8_ms" not in facts:
        return None, ""
    ratio = facts["fp32_ms"] / facts["int8_ms"]
    before = "" if facts["vnni"] else "The processor has no instructions for products of int8 (VNNI). "
    after = "" if facts["fused"] else " With numba it would be faster: pip install 'clozeworks[vectors]'."
    chosen = f"so int8 models are multiplied as {'int8' if ratio >= WORTH else 'fp32'}.{after}"
    return ratio >= WORTH, f"{before}A linear part of int8 runs at {ratio:.2f} times the speed of fp32; {chosen}"


def best_threads(sweep: dict[str, Any]) -> int:
    """The fewest threads within 3% of the fastest: a thread that adds nothing is left to others."""
    if "step_ms" not in sweep:
        return cores()
    best = min(sweep["step_ms"].values())
    return min(int(count) for count, ms in sweep["step_ms"].items() if ms <= 1.03 * best)


def border_of(times: dict[str, dict[str, float]]) -> int | None:
    """The length beyond a piece from which on pieces are never slower than a mask; None where it was not measured."""
    border = None
    for beyond, ms in sorted(times.items(), key=lambda item: -int(item[0])):
        if ms["pieces"] > ms["mask"]:
            return int(beyond) if border is None else border
        border = max(int(beyond) - 1, 0)  # a row must be longer than the border
    return border


def thread_counts(limit: int) -> list[int]:
    """1, 2, 4, ... and the limit: enough to find the knee on a large machine in a few seconds."""
    return sorted({2**power for power in range(limit.bit_length()) if 2**power <= limit} | {limit})


# The machine, without torch


def machine() -> dict[str, Any]:
    """Processor, memory, disk and installed extras."""
    model, _ = _processor()
    total, available = (size and round(size / 1e9, 1) for size in memory())
    installed = {name: {package: _version(package) for package in packages} for name, packages in EXTRAS.items()}
    return {
        "system": platform.platform(),
        "processor": model,
        "cores": cores(),
        "cores_of_machine": os.cpu_count(),
        "memory_gb": total,
        "memory_available_gb": available,
        "disk_free_gb": round(shutil.disk_usage(Path.cwd()).free / 1e9, 1),
        "extras": installed,
    }


def machine_key() -> str:
    """Changes when a verdict may no longer hold; many machines can share one home directory."""
    return f"{_key_of_processor()}-{cores()}"


def _key_of_processor() -> str:
    model, flags = _processor()
    parts = [model, flags, platform.python_version(), _version("torch"), os.environ.get("CUDA_VISIBLE_DEVICES")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def cache_file() -> Path:
    """Where verdicts are remembered."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clozeworks" / "doctor.json"


def cores() -> int:
    """Cores this process may use: those of its affinity mask, or fewer if a container limits its time."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [int(quota) / int(period) for quota, period in map(str.split, _cgroup("cpu.max")) if quota != "max"]
    return max(1, min([usable, *map(int, limits)]))


def busy_share(seconds: float = 0.5) -> float:
    """Share of this process's cores that are in use now; 0 where the system does not say."""

    def ticks() -> tuple[int, int]:
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        times = [list(map(int, row[1:])) for row in rows if row[0] in mine]
        return sum(map(sum, times)), sum(row[3] + row[4] for row in times)  # all, and idle or waiting for a disk

    try:
        total, idle = ticks()
        time.sleep(seconds)
        total_after, idle_after = ticks()
    except (OSError, AttributeError):
        return 0.0
    return round(1 - (idle_after - idle) / max(1, total_after - total), 2)


def memory() -> tuple[int | None, int | None]:
    """Total and available bytes, a container's limits counted."""
    try:
        rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        total, available = (int(rows[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        known = hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None, None
    for limit, used, stat in zip(*map(_cgroup, ("memory.max", "memory.current", "memory.stat")), strict=False):
        if limit != "max":
            cached = int(dict(map(str.split, stat.splitlines())).get("inactive_file", 0))  # given back when needed
            total, available = min(total, int(limit)), min(available, max(0, int(limit) - int(used) + cached))
    return total, available


def _cgroup(name: str) -> list[str]:
    """A setting of this process's control group and of every group above it (version 2)."""
    values = []
    with contextlib.suppress(OSError, IndexError):
        own = Path("/proc/self/cgroup").read_text().strip().splitlines()[-1].split(":", 2)[2]
        root = Path("/sys/fs/cgroup")
        group = root / own.lstrip("/")
        for folder in [group, *group.parents]:
            with contextlib.suppress(OSError):
                values.append((folder / name).read_text().strip())
            if folder == root:
                break
    return values


def _processor() -> tuple[str, str]:
    """Model name, and a hash of what the processor says it can do."""
    rows: dict[str, str] = {}
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        rows = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    model = rows.get("model name") or rows.get("CPU part") or platform.processor() or platform.machine()
    flags = rows.get("flags") or rows.get("Features") or ""
    return model, hashlib.sha256(flags.encode()).hexdigest()[:16]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _remember(verdict: Verdict) -> None:
    """Add the verdict to the cache; a cache that cannot be written is no reason to fail."""
    with contextlib.suppress(OSError, InputError):
        atomic_io.write_json(cache_file(), {**_known(), machine_key(): dataclasses.asdict(verdict)})
