"""The project's own files agree with one another."""

import itertools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from clozeworks.machine import doctor

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: [Requirement(line) for line in lines if not line.startswith("clozeworks[")]
    for name, lines in PROJECT["optional-dependencies"].items()
}


def included(extra: str) -> set[str]:
    """Extras that an extra contains, itself too."""
    extras = {extra}
    for line in PROJECT["optional-dependencies"][extra]:
        if line.startswith("clozeworks["):
            for name in Requirement(line).extras:
                extras |= included(name)
    return extras


def test_dev_includes_every_other_extra():
    assert included("dev") == set(EXTRAS)


def test_every_requirement_is_pinned_within_its_range():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    for requirement in itertools.chain(map(Requirement, PROJECT["dependencies"]), *EXTRAS.values()):
        assert pins[requirement.name.lower()] in requirement.specifier, requirement
        assert ">=" in str(requirement.specifier), f"{requirement.name} has no floor"
        assert "<" not in str(requirement.specifier), f"{requirement.name} has a ceiling"


def test_extras_are_those_that_doctor_looks_for():
    assert set(doctor.EXTRAS) == set(EXTRAS) - {"test", "dev"}
    for name, packages in doctor.EXTRAS.items():
        assert {requirement.name for requirement in EXTRAS[name]} == set(packages), name


def test_the_library_draws_without_importing_matplotlib_before():
    names = "sys, clozeworks.api, clozeworks.quickstart.pipeline, clozeworks.cli.main"
    code = f"import {names}; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_types_are_shipped():
    assert (ROOT / "src" / "clozeworks" / "py.typed").exists()


def test_make_help_tells_every_target():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    output = subprocess.run(["make", "-s", "-C", str(ROOT), "help"], check=True, capture_output=True, text=True).stdout
    assert sorted(line.split()[1] for line in output.splitlines()) == sorted(phony[1].split())


def test_ci_runs_what_people_run():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert re.findall(r"^make (\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE) == [
        "check",
        "test",
        "test-slow",
    ]
