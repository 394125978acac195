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
    "imports": "code in the working directory: `torch.py`, `json.py`, `clozeworks/`",
    "devices": "devices, pipes and sockets as outputs",
    "bombs": "model directories that lie about sizes, ids and numbers",
    "escapes": "texts that command a terminal",
}


def write_json(file: Path, results: dict[str, Any]) -> dict[str, Any]:
    """Write the figures, beside those of other kinds that are there already at the same scale; gives them all.

    A kind that was seen elsewhere than the newest ones says where.
    """
    before = json.loads(file.read_text()) if file.exists() else {}
    if before.get("quick") == results["quick"]:
        old = {name: {"machine": before["machine"], "versions": before["versions"]} | one
               for name, one in before["kinds"].items()}  # fmt: skip
        kinds = old | results["kinds"]
        results = results | {"kinds": {name: kinds[name] for name in ABOUT if name in kinds}}
    file.write_text(json.dumps(results, indent=2) + "\n")
    return results


def write(file: Path, results: dict[str, Any]) -> None:
    """Put the table between the marks of a page."""
    text = file.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise InputError(file, "no marks in it", f"{BEGIN} and {END} are needed", "add them where the table belongs")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    file.write_text(f"{before}{BEGIN}\n\n{table(results)}\n{END}{after}", encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """Markdown: a row for each kind of fault, then where it was seen."""
    lines = ["| fault | cases | what came of it | minutes |", "| --- | ---: | --- | ---: |"]
    for name, one in results["kinds"].items():
        came = f"not tried: {one['skipped']}" if one["skipped"] else SAID[name](one["figures"])
        kept = f"; **{len(one['broken'])} promises broken**" if one["broken"] else ""
        minutes = f"{one['seconds'] / 60:.1f}"
        lines.append(f"| {ABOUT[name]} (`{name}`) | {one['cases']:,} | {came}{kept} | {minutes} |")
    places: dict[str, list[str]] = {}
    for name, one in results["kinds"].items():
        places.setdefault(_place(results | one), []).append(f"`{name}`")
    scale = " at the small scale of the fast tests" if results["quick"] else ""
    for place, names in places.items():
        which = f"{', '.join(names)}: seen" if len(places) > 1 else "Seen"
        lines += ["", f"{which}{scale} on {place}."]
    return "\n".join([*lines, ""])


def _place(seen: dict[str, Any]) -> str:
    """The machine and the versions that figures were seen on."""
    machine = seen["machine"]
    system = ", ".join(str(machine[name]) for name in ("system", "processor") if machine.get(name))
    packages = ", ".join(f"{name} {version}" for name, version in seen["versions"].items())
    return f"{system}, {machine.get('cores', '?')} cores; {packages}"


def _kills(tally: dict[str, Any]) -> str:
    return (
        f"{tally['during_a_save']} hit a save; {tally['unresumable']} runs unresumable; {tally['identical']} of "
        f"{tally['runs']} ended bit-identical to the uninterrupted run"
    )


def _ranks(tally: dict[str, Any]) -> str:
    return (
        f"{tally['unresumable']} runs unresumable, {tally['orphans']} orphans; {tally['identical']} of {tally['runs']} "
        f"bit-identical to the uninterrupted two processes, which are {tally['from_one_process']:.1g} from one; "
        f"1, 2, then 1 processes: the same tokens, weights within {tally['resized_distance']:.1g}"
    )


def _stops(tally: dict[str, Any]) -> str:
    codes = ", ".join(name.removeprefix("exit_") for name in sorted(tally) if name.startswith("exit_"))
    return (
        f"{tally['steps_lost']} steps lost, exit code {codes}; at most {tally['longest_seconds']:.2f} s from the "
        f"signal to a durable checkpoint and exit; bit-identical in the end: {'yes' if tally['identical'] else 'no'}"
    )


def _disk(tally: dict[str, Any]) -> str:
    parts = ", ".join(f"{tally[name]:,} {phrase}" for name, phrase in
                      (("refused", "refused in one sentence (exit code 2)"), ("continued", "continued unharmed"),
                       ("broken", "otherwise"), ("not reached", "not reached")) if tally.get(name))  # fmt: skip
    return f"{parts}; mended, every one ended with the undisturbed bits"


def _damage(tally: dict[str, Any]) -> str:
    silent = tally.get("not detected", 0)
    return (
        f"{tally['detected']:,} seen before anything was computed, {tally.get('harmless', 0)} that changed nothing, "
        f"{silent} not seen; `pretrain` refused damaged text {tally.get('refused by pretrain', 0)} times and resumed "
        f"from an older checkpoint {tally.get('resumed from an older checkpoint', 0)} times"
    )


def _poison(tally: dict[str, Any]) -> str:
    skipped = sum(count for name, count in tally.items() if name.endswith("_steps_skipped"))
    return (
        f"{tally['recovered']} ended well (held-out loss at most {tally['worst_loss']:.2f}; {tally['sound_loss']:.2f} "
        f"without poison); {skipped} steps skipped, {tally['rollbacks']} returns to a checkpoint; "
        f"{tally['identical_after_a_kill']} bit-identical when killed on the way"
    )


def _imports(tally: dict[str, Any]) -> str:
    return f"{tally.get('imported', 0)} imported, {tally['kept out']} kept out of the processes that we start"


def _devices(tally: dict[str, Any]) -> str:
    return (
        f"{tally.get('replaced', 0)} replaced; {tally.get('refused', 0)} refused in one sentence (exit code 2), "
        f"{tally.get('written into', 0)} written into by commands whose lines may flow on"
    )


def _bombs(tally: dict[str, Any]) -> str:
    return (
        f"{tally.get('refused', 0)} refused in one sentence (exit code 2), {tally.get('taken', 0)} taken; at most "
        f"{tally['megabytes']:,} MB of memory for it"
    )


def _escapes(tally: dict[str, Any]) -> str:
    return f"{tally.get('shown as text', 0)} shown as text, {tally.get('obeyed', 0)} reached a terminal or a report"


SAID = {
    "kills": _kills,
    "ranks": _ranks,
    "stops": _stops,
    "disk": _disk,
    "damage": _damage,
    "poison": _poison,
    "imports": _imports,
    "devices": _devices,
    "bombs": _bombs,
    "escapes": _escapes,
}
