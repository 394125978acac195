"""The matrix of faults at a small scale; `make faults` does all of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import matrix, page

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "kinds",
    [("kills", "stops", "damage", "poison"), ("disk",), ("imports", "devices", "bombs", "escapes")],
    ids=" ".join,
)
def test_nothing_breaks(kinds: tuple[str, ...], tmp_path: Path):
    for figures in _figures(kinds, tmp_path):
        assert figures["cases"] > 0


@pytest.mark.slow
def test_nothing_breaks_among_several_processes(tmp_path: Path):
    _figures(("ranks",), tmp_path)


def test_every_kind_is_tried():
    at_all = {"kills", "stops", "damage", "poison", "disk", "ranks", "imports", "devices", "bombs", "escapes"}
    assert at_all == set(matrix.KINDS) == set(page.ABOUT) == set(page.SAID)


def _figures(kinds: tuple[str, ...], folder: Path) -> list[dict]:
    """In a process of their own, which forks: one that has computed must not."""
    words = [sys.executable, "-m", "tests.faults", "--quick", "--only", *kinds, "--json", str(folder / "figures.json")]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tried = json.loads((folder / "figures.json").read_text())["kinds"]
    assert list(tried) == list(kinds)
    for figures in tried.values():
        assert not figures["broken"]
        if figures["skipped"]:
            pytest.skip(figures["skipped"])
    return list(tried.values())


def test_a_page_gets_its_table(tmp_path: Path):
    file = tmp_path / "page.md"
    file.write_text(f"above\n\n{page.BEGIN}\nold\n{page.END}\n\nbelow\n")
    figures = {"during_a_save": 2, "unresumable": 0, "identical": 1, "runs": 1}
    one = {"cases": 3, "figures": figures, "broken": [], "skipped": "", "seconds": 6}
    none = {"cases": 0, "figures": {}, "broken": [], "skipped": "no compiler", "seconds": 0}
    results = {
        "machine": {"cores": 2},
        "versions": {"python": "3"},
        "quick": False,
        "kinds": {"kills": one, "disk": none},
    }
    page.write(file, results)
    text = file.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    assert "old" not in text
    assert "(`kills`) | 3 | 2 hit a save; 0 runs unresumable; 1 of 1 ended" in text
    assert "not tried: no compiler" in text


def test_figures_of_another_day_say_where_they_were_seen(tmp_path: Path):
    file, none = tmp_path / "figures.json", {"cases": 0, "figures": {}, "broken": [], "skipped": "later", "seconds": 0}
    for cores, kind in ((2, "kills"), (1, "bombs"), (1, "escapes")):
        seen = {"machine": {"cores": cores}, "versions": {"python": "3"}, "quick": False, "kinds": {kind: none}}
        results = page.write_json(file, seen)
    assert list(json.loads(file.read_text())["kinds"]) == ["kills", "bombs", "escapes"]
    said = page.table(results).splitlines()
    assert said[-3:] == [
        "`kills`: seen on , 2 cores; python 3.",
        "",
        "`bombs`, `escapes`: seen on , 1 cores; python 3.",
    ]


def test_the_published_page_tells_of_every_kind():
    text = (ROOT / "docs" / "reliability.md").read_text()
    for kind in matrix.KINDS:
        assert f"(`{kind}`)" in text.split(page.BEGIN)[1].split(page.END)[0]
