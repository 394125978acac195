import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Real text to try on, beside the checkout; tests that want it do without where it is absent.
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"

# How long an example takes says how busy the machine is, not whether the code is right. The same examples every
# time, so that a change is refused for what it changed; others are drawn by
# make test ARGS="--hypothesis-profile fresh".
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")


def pytest_configure() -> None:
    """Several workers on few cores: one torch thread each is faster than all of them fighting."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def _session_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same for what is made once for all tests, before any of them begins."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.getbasetemp() / "cache")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's doctor once said must not decide a test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("CLOZEWORKS_WINDOW_BORDER", raising=False)  # of a doctor that a command before has asked


@pytest.fixture(scope="session", autouse=True)
def _memory_measured_once() -> Iterator[None]:
    """Hundreds of small runs say what memory they need, and few of them are of another shape."""
    from clozeworks.core import spec
    from clozeworks.optim.settings import Train
    from clozeworks.train.resources import memory_check

    measure, measured = memory_check.measure_memory, {}

    def measure_once(recipe: Any, teacher: Any = None) -> Any:
        names = ("batch_tokens", "micro_tokens", "optimizer", "phases", "recompute")
        train = Train(**{name: getattr(recipe.train, name) for name in names})
        shape = json.dumps(spec.to_dict(dataclasses.replace(recipe, name="", start=(), train=train)))
        if teacher is not None:
            return measure(recipe, teacher)
        if shape not in measured:
            measured[shape] = measure(recipe)
        return measured[shape]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_check, "measure_memory", measure_once)
        yield


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command chooses threads for its process; here that process is the test's."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GOMP_SPINCOUNT", "10000")


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with corpus.txt, data, a run of four steps and its Hugging Face directory."""
    from clozeworks.cli.main import main
    from tests.command_line import SMALL, text

    folder = tmp_path_factory.mktemp("road")
    (folder / "corpus.txt").write_text(text(150, 1))
    (folder / "more.txt").write_text(text(60, 2).replace("stone", "gemstones"))
    os.environ["OMP_NUM_THREADS"] = "1"
    assert (
        main(["prepare", f"{folder}/corpus.txt", "--out", f"{folder}/data", "--vocab", "120", "--heldout", "0.1"]) == 0
    )
    assert main(["pretrain", "bert_tiny", "--data", f"{folder}/data", "--out", f"{folder}/run", *SMALL]) == 0
    assert main(["export", f"{folder}/run", "--to", "hf", "--out", f"{folder}/hf"]) == 0
    return folder


@pytest.fixture(scope="session")
def tuned(road: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that tells two kinds of texts apart."""
    from clozeworks.cli.main import main
    from tests.labelled import QUICK, rows, write

    folder = tmp_path_factory.mktemp("tuned")
    train = write(folder / "train.jsonl", rows(96))
    words = ["finetune", "classify", "--model", road / "run", "--train", train, "--out", folder / "task", *QUICK]
    assert main([str(word) for word in words]) == 0
    return folder / "task"
