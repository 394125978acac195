"""The wheel, installed where nothing of the checkout can be seen, walks the whole road."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path, **env: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, env={**clean, **env}, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_sdist_holds_what_makes_the_pages_and_figures(tmp_path):
    pytest.importorskip("build")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (archive,) = tmp_path.glob("clozeworks-*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for name in ("src/clozeworks/py.typed", "benchmarks/__main__.py", "studies/__init__.py", "docs/tools/trace.py"):
        assert name in names
    assert not [name for name in names if name.startswith((".venv", "site/", "dist/")) or name.endswith(".pyc")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """An environment of its own with the wheel in it; dependencies come from the one that runs the tests."""
    home = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", home, ROOT, cwd=home)
    (wheel,) = home.glob("clozeworks-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "clozeworks/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"clozeworks"}, "the wheel holds the library only"
    assert not [name for name in names if name.endswith((".pyc", ".pt", ".bin"))]
    run(sys.executable, "-m", "venv", home / "env", cwd=home)
    python = home / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--quiet", wheel, cwd=home)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    # A path in a .pth file is searched, but its own .pth files are not read: the checkout stays out of sight.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import clozeworks; print(clozeworks.__file__)", cwd=home).strip()
    assert Path(where).is_relative_to(site)
    return home


def test_quickstart_runs_from_the_wheel(installed):
    bin = installed / "env" / "bin"
    out = run(
        bin / "clozeworks", "quickstart", "--steps", "5", "--out", "first", cwd=installed, XDG_CACHE_HOME=str(installed)
    )
    assert "clozeworks" in out
    assert list((installed / "first").rglob("config.json"))
    assert list((installed / "first").rglob("*.png"))


def test_the_module_is_a_command(installed):
    assert "quickstart" in run(installed / "env" / "bin" / "python", "-m", "clozeworks", "--help", cwd=installed)
