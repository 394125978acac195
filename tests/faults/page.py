"""The figures as a table, in a page between two marks."""

import json
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError

BEGIN, END = "<!-- faults: begin, written by `make faults` -->", "<!-- faults: end -->"
ABOUT = {
    "kills": "SIGKILL, half of them during a save",
    "ranks": "SIGKILL of a rank, of the launcher, of everything",
    "stops": "SIGTERM at random moments",
    "disk": "ENOSPC, EIO and EROFS at every call that writes",
    "damage": "truncated, flipped and deleted files",
    "poison": "losses that are NaN, infinite or spikes",
}


def write_json(file: Path, told: dict[str, Any]) -> dict[str, Any]:
    """Write the figures, beside those of other kinds that are there already at the same scale; gives them all."""
    before = json.loads(file.read_text()) if file.exists() else {}
    if before.get("quick") == told["quick"]:
        kinds = before["kinds"] | told["kinds"]
        told = told | {"kinds": {name: kinds[name] for name in ABOUT if name in kinds}}
    file.write_text(json.dumps(told, indent=2) + "\n")
    return told


def write(file: Path, told: dict[str, Any]) -> None:
    """Put the table between the marks of a page."""
    text = file.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise InputError(file, "no marks in it", f"{BEGIN} and {END} are needed", "add them where the table belongs")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    file.write_text(f"{before}{BEGIN}\n\n{table(told)}\n{END}{after}", encoding="utf-8")


def table(told: dict[str, Any]) -> str:
    """Markdown: a row for each kind of fault, then where it was seen."""
    lines = ["| fault | cases | what came of it | minutes |", "| --- | ---: | --- | ---: |"]
    for name, one in told["kinds"].items():
        came = f"not tried: {one['skipped']}" if one["skipped"] else SAID[name](one["figures"])
        kept = f"; **{len(one['broken'])} promises broken**" if one["broken"] else ""
        minutes = f"{one['seconds'] / 60:.1f}"
        lines.append(f"| {ABOUT[name]} (`{name}`) | {one['cases']:,} | {came}{kept} | {minutes} |")
    machine, versions = told["machine"], told["versions"]
    system = ", ".join(str(machine[name]) for name in ("system", "processor") if machine.get(name))
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    scale = " at the small scale of the fast tests" if told["quick"] else ""
    return "\n".join([*lines, "", f"Seen{scale} on {system}, {machine.get('cores', '?')} cores; {packages}.", ""])


def _kills(found: dict[str, Any]) -> str:
    return (
        f"{found['during_a_save']} hit a save; {found['unresumable']} runs unresumable; {found['identical']} of "
        f"{found['runs']} ended bit-identical to the uninterrupted run"
    )


def _ranks(found: dict[str, Any]) -> str:
    return (
        f"{found['unresumable']} runs unresumable, {found['orphans']} orphans; {found['identical']} of {found['runs']} "
        f"bit-identical to the uninterrupted two processes, which are {found['from_one_process']:.1g} from one; "
        f"1, 2, then 1 processes: the same tokens, weights within {found['resized_distance']:.1g}"
    )


def _stops(found: dict[str, Any]) -> str:
    codes = ", ".join(name.removeprefix("exit_") for name in sorted(found) if name.startswith("exit_"))
    return (
        f"{found['steps_lost']} steps lost, exit code {codes}; at most {found['longest_seconds']:.2f} s from the "
        f"signal to a durable checkpoint and exit; bit-identical in the end: {'yes' if found['identical'] else 'no'}"
    )


def _disk(found: dict[str, Any]) -> str:
    parts = ", ".join(f"{found[name]:,} {said}" for name, said in
                      (("refused", "refused in one sentence (exit code 2)"), ("went on", "went on unharmed"),
                       ("broken", "otherwise"), ("not reached", "not reached")) if found.get(name))  # fmt: skip
    return f"{parts}; mended, every one ended with the undisturbed bits"


def _damage(found: dict[str, Any]) -> str:
    silent = found.get("not detected", 0)
    return (
        f"{found['detected']:,} seen before anything was computed, {found.get('harmless', 0)} that changed nothing, "
        f"{silent} not seen; `pretrain` refused damaged text {found.get('refused by pretrain', 0)} times and went on "
        f"from an older checkpoint {found.get('gone on from an older checkpoint', 0)} times"
    )


def _poison(found: dict[str, Any]) -> str:
    skipped = sum(count for name, count in found.items() if name.endswith("_steps_skipped"))
    return (
        f"{found['recovered']} ended well (held-out loss at most {found['worst_loss']:.2f}; {found['sound_loss']:.2f} "
        f"without poison); {skipped} steps skipped, {found['rollbacks']} returns to a checkpoint; "
        f"{found['identical_after_a_kill']} bit-identical when killed on the way"
    )


SAID = {"kills": _kills, "ranks": _ranks, "stops": _stops, "disk": _disk, "damage": _damage, "poison": _poison}
