"""Every command and snippet of the README and of docs/ works as printed, in order, in an empty directory."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clozeworks.cli.main import COMMANDS, overview, parser_of

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    return [block for block in BLOCK.findall((ROOT / page).read_text()) if block[0] in languages]


def run(page: str, folder: Path, server: str | None = None) -> None:
    """The bash and python blocks of a page, `clozeworks` and the folders beside it being those of this checkout, and a
    long quickstart a short one; in forks of a server, if there is one."""
    ours = ["-m", "clozeworks"] if server is None else ["-ISs", f"{ROOT}/tests/preloaded.py", server]
    (folder / "bin").mkdir()
    for name, words in {"clozeworks": ours, "python": [], "python3": []}.items():
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *words])} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    environment = environment_of({"PATH": f"{folder}/bin:{os.environ['PATH']}"})
    for language, code in blocks(page, "bash", "python"):
        code = re.sub(r"^clozeworks quickstart$", "clozeworks quickstart --steps 20", code, flags=re.MULTILINE)
        python = [sys.executable] if server is None else [f"{folder}/bin/clozeworks"]
        command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [*python, "-c", code]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def environment_of(more: dict[str, str]) -> dict[str, str]:
    paths = filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), **more}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Where `tests.preloaded` listens; the path of a socket has to be short."""
    with tempfile.TemporaryDirectory(prefix="cw-") as folder:
        command = [sys.executable, "-m", "tests.preloaded", "--serve", f"{folder}/socket"]
        with subprocess.Popen(command, cwd=ROOT, env=environment_of({}), stdout=subprocess.PIPE, text=True) as serving:
            assert serving.stdout is not None
            assert serving.stdout.readline() == "ready\n"
            yield f"{folder}/socket"
            serving.kill()


@pytest.mark.slow
@pytest.mark.long
def test_readme_works_as_printed(tmp_path):
    """Each command in a process of its own, as a reader's shell starts it."""
    run("README.md", tmp_path)
    assert (tmp_path / "my-bert" / "model.safetensors").is_file()
    from transformers import pipeline

    assert len(pipeline("fill-mask", str(tmp_path / "my-bert"))("The value must be a [MASK].")) == 5


@pytest.mark.slow
@pytest.mark.skipif(
    not (ROOT / ".venv" / ".core").is_file() or (ROOT / ".venv").is_symlink(),  # make would install into another's
    reason="tests run outside the environment that make made",
)
def test_make_quickstart(tmp_path):
    command = ["make", "quickstart", f"ARGS=--steps 10 --out {tmp_path}/first"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "first" / "model" / "config.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash", "python")])
def test_docs_work_as_printed(page, tmp_path, server):
    run(page, tmp_path, server)


@pytest.mark.slow
def test_a_command_that_the_server_starts_ends_as_one_of_its_own(server, tmp_path):
    ask = [sys.executable, "-ISs", f"{ROOT}/tests/preloaded.py", server]
    refused = subprocess.run([*ask, "show", "bert_bse"], cwd=tmp_path, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "did you mean bert_base" in refused.stderr
    code = "import os, sys; print(os.getcwd(), os.environ['MINE'], sys.stdin.read()); raise ValueError('no')"
    environment = environment_of({"MINE": "here"})
    failed = subprocess.run(
        [*ask, "-c", code], cwd=tmp_path, env=environment, input="read", capture_output=True, text=True
    )
    assert (failed.returncode, failed.stdout) == (1, f"{tmp_path} here read\n")
    assert failed.stderr.endswith("ValueError: no\n")
    killed = subprocess.run([*ask, "-c", "import os; os.kill(os.getpid(), 9)"], cwd=tmp_path)
    assert killed.returncode == 137


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
    lines += [
        "Exit code 0: done; 2: bad input, or what this machine cannot give (memory, room, an output), reported in one",
        "sentence; 130 or 143: interrupted by Ctrl-C or SIGTERM; 141: its reader has gone; 1: a bug of ours.",
        "",
    ]
    return "\n".join(lines)


def test_commands_page_is_the_help():
    page = (ROOT / "docs" / "commands.md").read_text()
    assert page == commands_page(), "run `python tests/test_readme.py` to write it again"


if __name__ == "__main__":
    (ROOT / "docs" / "commands.md").write_text(commands_page())
