"""clozeworks doctor"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clozeworks.cli.arguments import JsonOptions, option

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from clozeworks.machine.doctor import Verdict


@dataclass(kw_only=True)
class Options(JsonOptions):
    """Measure what this machine can do, once

    Tries threads, bf16, devices and windows in child processes, in about seventeen seconds. The verdict is kept, and
    every command uses it.

    clozeworks doctor
    """

    again: bool = option("measure again, even if a verdict is kept", False)


def run(options: Options) -> None:
    """Measure where no verdict is kept, and show it."""
    from clozeworks.machine import doctor
    from clozeworks.screen.console import closing, screen

    console = screen()
    verdict = None if options.again else doctor.remembered()
    if verdict is None:
        with screen(stderr=True).status("measuring threads, bf16, devices and windows, about seventeen seconds"):
            verdict = doctor.probe()
    if options.json:
        print(doctor.as_json(verdict))
        return
    console.print(render(verdict))
    kept = doctor.remembered() is not None  # a busy machine's verdict is not
    closing(console, str(doctor.cache_file()) if kept else None, "clozeworks quickstart")


def render(verdict: Verdict) -> RenderableType:
    """The verdict for a terminal."""
    from rich.console import Group
    from rich.text import Text

    from clozeworks.screen.console import facts

    measured, software = verdict.facts, verdict.facts.get("software", {})
    rows: list[tuple[str, object]] = [
        ("precision", verdict.precision),
        ("threads", verdict.threads),
        ("device", " ".join(filter(None, [verdict.device, software.get("accelerator")]))),
    ]
    if verdict.int8 is not None:
        rows.append(("int8 models", f"multiplied as {'int8' if verdict.int8 else 'fp32'}"))
    if verdict.window is not None:
        rows.append(("windows", f"in pieces where a row is longer than a piece by more than {verdict.window} tokens"))
    if verdict.isa:
        rows.append(("instruction set", f"ONEDNN_MAX_CPU_ISA={verdict.isa}"))
    if measured:
        cores = f"{measured['cores']} of {measured['cores_of_machine']} cores usable"
        versions = [f"{name} {software[name]}" for name in ("python", "torch", "numpy") if name in software]
        rows += [
            ("processor", f"{measured['processor']}, {cores}"),
            ("memory", f"{measured['memory_gb']} GB, {measured['memory_available_gb']} GB available"),
            ("disk", f"{measured['disk_free_gb']} GB free here"),
            ("software", ", ".join(versions) or software.get("died", "")),
            *((f"extra {extra}", describe_extra(extra, packages)) for extra, packages in measured["extras"].items()),
        ]
    return Group(facts(rows), "", *(Text(f"- {reason}") for reason in verdict.reasons))


def describe_extra(extra: str, packages: dict[str, str | None]) -> Text:
    """The versions of its packages, or how to install those that are missing."""
    from rich.text import Text

    missing = [package for package, version in packages.items() if version is None]
    if missing:
        return Text(f"{', '.join(missing)} missing: pip install 'clozeworks[{extra}]'", style="yellow")
    return Text(", ".join(f"{package} {version}" for package, version in packages.items()))
