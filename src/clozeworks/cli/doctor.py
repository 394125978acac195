"""clozeworks doctor"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clozeworks.cli.arguments import JsonOptions, option

if TYPE_CHECKING:
    from rich.console import RenderableType

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
    from clozeworks.machine import doctor
    from clozeworks.screen.console import closing, screen

    console = screen()
    verdict = None if options.again else doctor.remembered()
    if verdict is None:
        if options.json:
            verdict = doctor.probe()
        else:
            with console.status("measuring threads, bf16, devices and windows, about seventeen seconds"):
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
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    facts, software = verdict.facts, verdict.facts.get("software", {})
    table.add_row("precision", verdict.precision)
    table.add_row("threads", str(verdict.threads))
    table.add_row("device", " ".join(filter(None, [verdict.device, software.get("accelerator")])))
    if verdict.window is not None:
        table.add_row("windows", f"in pieces where a row is longer than a piece by more than {verdict.window} tokens")
    if verdict.isa:
        table.add_row("instruction set", f"ONEDNN_MAX_CPU_ISA={verdict.isa}")
    if facts:
        table.add_row(
            "processor", f"{facts['processor']}, {facts['cores']} of {facts['cores_of_machine']} cores usable"
        )
        table.add_row("memory", f"{facts['memory_gb']} GB, {facts['memory_available_gb']} GB available")
        table.add_row("disk", f"{facts['disk_free_gb']} GB free here")
        versions = [f"{name} {software[name]}" for name in ("python", "torch", "numpy") if name in software]
        table.add_row("software", ", ".join(versions) or software.get("died", ""))
        for extra, packages in facts["extras"].items():
            missing = [package for package, version in packages.items() if version is None]
            there = ", ".join(f"{package} {version}" for package, version in packages.items() if version)
            hint = f"pip install 'clozeworks[{extra}]'"
            table.add_row(
                f"extra {extra}", Text(f"{', '.join(missing)} missing: {hint}", style="yellow") if missing else there
            )
    return Group(table, "", *(Text(f"- {reason}") for reason in verdict.reasons))
