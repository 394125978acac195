"""The matrix of faults at a small scale; `make faults` does all of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import matrix, page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", [kind for kind in matrix.KINDS if kind != "ranks"])
def test_nothing_breaks(kind: str, tmp_path: Path):
    assert _figures(kind, tmp_path)["cases"] > 0


@pytest.mark.slow
def test_nothing_breaks_among_several_processes(tmp_path: Path):
    _figures("ranks", tmp_path)


def _figures(kind: str, folder: Path) -> dict:
    """In a process of its own, which forks: one that has computed must not."""
    words = [sys.executable, "-m", "tests.faults", "--quick", "--only", kind, "--json", str(folder / "figures.json")]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((folder / "figures.json").read_text())["kinds"][kind]
    assert not found["broken"]
    if found["skipped"]:
        pytest.skip(found["skipped"])
    return found


def test_a_page_gets_its_table(tmp_path: Path):
    file = tmp_path / "page.md"
    file.write_text(f"above\n\n{page.BEGIN}\nold\n{page.END}\n\nbelow\n")
    figures = {"during_a_save": 2, "unresumable": 0, "identical": 1, "runs": 1}
    one = {"cases": 3, "figures": figures, "broken": [], "skipped": "", "seconds": 6}
    none = {"cases": 0, "figures": {}, "broken": [], "skipped": "no compiler", "seconds": 0}
    told = {"machine": {"cores": 2}, "versions": {"python": "3"}, "quick": False, "kinds": {"kills": one, "disk": none}}
    page.write(file, told)
    text = file.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "old" not in text
    assert "(`kills`) | 3 | 2 hit a save; 0 runs unresumable; 1 of 1 ended" in text
    assert "not tried: no compiler" in text


def test_the_published_page_tells_of_every_kind():
    text = (ROOT / "docs" / "reliability.md").read_text()
    for kind in matrix.KINDS:
        assert f"(`{kind}`)" in text.split(page.BEGIN)[1].split(page.END)[0]
