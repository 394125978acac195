"""What was compiled is loaded again, wherever it can be kept, and never when a kernel has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import clozeworks

pytestmark = pytest.mark.slow  # each start imports numba

SOURCE = Path(clozeworks.__file__).parent
SCRIPT = """
import sys, numpy as np
from clozeworks.vectors.kernels import noise
found = noise.alias_of(noise.cumulative(np.array([3, 2, 1])))
stats = noise._alias.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), stats.cache_path)
"""


def start(package, cache=None, home=None):
    environment = {**os.environ, "PYTHONPATH": str(package)}
    environment |= {"NUMBA_CACHE_DIR": str(cache)} if cache else {}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home)} if home else {}
    out = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    hits, misses, *where = out.stdout.split()
    return int(hits), int(misses), where


@pytest.fixture
def package(tmp_path):
    """A copy of the library, as small as the kernels need it."""
    there = tmp_path / "lib" / "clozeworks"
    (there / "vectors" / "kernels").mkdir(parents=True)
    (there / "nn" / "kernels").mkdir(parents=True)
    (there / "core").mkdir()
    (there / "__init__.py").write_text("")
    for name in (
        "core/__init__.py",
        "core/errors.py",
        "nn/__init__.py",
        "nn/kernels/__init__.py",
        "nn/kernels/compiled.py",
        "vectors/__init__.py",
        "vectors/kernels/__init__.py",
        "vectors/kernels/noise.py",
    ):
        shutil.copy(SOURCE / name, there / name)
    (there / "vectors" / "other.py").write_text("\n@compiled\n")
    return there.parent


def test_a_second_start_compiles_nothing_until_a_kernel_changes(package):
    assert start(package)[:2] == (0, 1)
    assert start(package)[:2] == (1, 0)
    (package / "clozeworks" / "vectors" / "other.py").write_text("\n@compiled\n# changed\n")
    assert start(package)[:2] == (0, 1)
    assert start(package)[:2] == (1, 0)
    (package / "clozeworks" / "vectors" / "plain.py").write_text("# no kernel in it")
    assert start(package)[:2] == (1, 0)


def test_a_package_that_cannot_be_written_keeps_it_elsewhere(package, tmp_path):
    (package / "clozeworks" / "vectors" / "kernels" / "__pycache__").write_text("in the way, for root as well")
    home = tmp_path / "home"
    home.mkdir()
    hits, misses, where = start(package, home=home)
    assert (hits, misses) == (0, 1)
    assert where[0].startswith(str(home))
    assert start(package, home=home)[:2] == (1, 0)


def test_where_nothing_can_be_written_it_works_still(package, tmp_path):
    (package / "clozeworks" / "vectors" / "kernels" / "__pycache__").write_text("in the way")
    (tmp_path / "home").write_text("in the way too")
    hits, _, where = start(package, home=tmp_path / "home")
    assert hits == 0
    assert where == ["None"]
