"""Every command and snippet of the README and of docs/ works as printed, in order, in an empty directory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clozeworks.cli.main import COMMANDS, overview, parser_of

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    return [found for found in BLOCK.findall((ROOT / page).read_text()) if found[0] in languages]


def run(page: str, folder: Path) -> None:
    """The bash and python blocks of a page, `clozeworks` and the folders beside it being those of this checkout, and a
    long quickstart a short one."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "clozeworks"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m clozeworks "$@"\n')
    program.chmod(0o755)
    for name in ("python", "python3"):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])
    )
    for language, code in blocks(page, "bash", "python"):
        code = re.sub(r"^clozeworks quickstart$", "clozeworks quickstart --steps 20", code, flags=re.MULTILINE)
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_readme_works_as_printed(tmp_path):
    run("README.md", tmp_path)
    assert (tmp_path / "my-bert" / "model.safetensors").is_file()
    from transformers import pipeline

    assert len(pipeline("fill-mask", str(tmp_path / "my-bert"))("The value must be a [MASK].")) == 5


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".venv" / ".core").is_file(), reason="tests run outside the environment that make made")
def test_make_quickstart(tmp_path):
    command = ["make", "quickstart", f"ARGS=--steps 10 --out {tmp_path}/first"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "first" / "model" / "config.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash", "python")])
def test_docs_work_as_printed(page, tmp_path):
    run(page, tmp_path)


def test_both_readmes_have_the_same_commands():
    assert blocks("README.md", "bash", "python", "text") == blocks("README.zh-CN.md", "bash", "python", "text")


def test_every_command_printed_anywhere_exists():
    """Also in `text` blocks, which are not run."""
    for page in ("README.md", "README.zh-CN.md", *PAGES):
        for line in re.findall(r"^clozeworks (\S+.*)", (ROOT / page).read_text(), re.MULTILINE):
            names = line.split()[0], " ".join(line.split()[:2])
            assert any(name in COMMANDS for name in names) or names[0] == "COMMAND", f"{page}: clozeworks {line}"


def commands_page() -> str:
    """docs/commands.md: what the help of each command says, whatever the layout of this Python's argparse."""
    lines = ["# Commands", "", "What `clozeworks COMMAND --help` says.", "", "```text", overview(), "```", ""]
    for name in COMMANDS:
        parser = parser_of(name)
        lines += [
            f"## {name}",
            "",
            f"{parser.description}",
            "",
            "```text",
            *parser.examples,
            "```",
            "",
            "| | |",
            "|---|---|",
        ]
        for action in parser._actions[1:]:
            written = " ".join(filter(None, [*action.option_strings[:1], str(action.metavar or "")]))
            lines.append(f"| `{written.replace('|', chr(92) + '|')}` | {action.help} |")
        lines.append("")
    codes = (
        "0: done; 2: bad input, told in one sentence; 130 or 143: interrupted by Ctrl-C or SIGTERM; 1: a bug of ours"
    )
    lines += [f"Exit code {codes}.", ""]
    return "\n".join(lines)


def test_commands_page_is_the_help():
    page = (ROOT / "docs" / "commands.md").read_text()
    assert page == commands_page(), "run `python tests/test_readme.py` to write it again"


if __name__ == "__main__":
    (ROOT / "docs" / "commands.md").write_text(commands_page())
