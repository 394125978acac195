import os
from pathlib import Path

import pytest

# Real text to try on, beside the checkout; tests that want it do without where it is absent.
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"


def pytest_configure() -> None:
    """Several workers on few cores: one torch thread each is faster than all of them fighting."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's doctor once said must not decide a test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
