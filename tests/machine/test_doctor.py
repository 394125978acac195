"""The verdict follows from the measurements; children may die; the memory of it costs nothing and never fails."""

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from clozeworks.cli import main
from clozeworks.cli.doctor import render
from clozeworks.core.errors import InputError
from clozeworks.machine import doctor, trials
from clozeworks.machine.doctor import Verdict
from clozeworks.nn.kernels.windowed import BORDER

DIES = {"died": "SIGILL"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "clozeworks" / "doctor.json"


def facts(**changes: object) -> dict[str, object]:
    return {
        **doctor.machine(),
        "busy_share": 0.0,
        "software": {"python": "3.11", "torch": "2.13", "numpy": "2.4", "device": "cpu", "accelerator": None},
        "threads": {"step_ms": {"1": 200.0, "2": 110.0}},
        "bf16": {"fp32_ms": 100.0, "bf16_ms": 100.0},
        **changes,
    }


def test_bf16_must_pay():
    assert doctor.decide(facts(bf16={"fp32_ms": 114.0, "bf16_ms": 100.0})).precision == "fp32"
    verdict = doctor.decide(facts(bf16={"fp32_ms": 116.0, "bf16_ms": 100.0}))
    assert (verdict.precision, verdict.isa) == ("bf16", None)
    assert "1.16 times" in verdict.reasons[-1]


def test_bf16_that_kills_gets_the_safe_instruction_set_and_is_measured_there():
    slow = doctor.decide(facts(bf16=DIES, bf16_safe_isa={"fp32_ms": 100.0, "bf16_ms": 150.0}))
    assert (slow.isa, slow.precision) == ("AVX512_CORE_FP16", "fp32")
    assert "SIGILL" in slow.reasons[-1]
    fast = doctor.decide(facts(bf16=DIES, bf16_safe_isa={"fp32_ms": 150.0, "bf16_ms": 100.0}))
    assert (fast.isa, fast.precision) == ("AVX512_CORE_FP16", "bf16")
    never = doctor.decide(facts(bf16=DIES, bf16_safe_isa=DIES))
    assert (never.isa, never.precision) == (None, "fp32")


@pytest.mark.parametrize(
    ("step_ms", "threads"),
    [({"1": 200.0, "2": 110.0}, 2), ({"1": 100.0, "2": 110.0}, 1), ({"1": 300, "2": 101, "4": 100, "8": 120}, 2)],
)
def test_the_fewest_threads_that_are_fast(step_ms: dict[str, float], threads: int):
    assert doctor.decide(facts(threads={"step_ms": step_ms})).threads == threads


def times(*pairs: tuple[float, float]) -> dict[str, object]:
    return {"ms": {str(64 * n): {"pieces": pieces, "mask": mask} for n, (pieces, mask) in enumerate(pairs)}}


@pytest.mark.parametrize(
    ("window", "border"),
    [
        (times((1, 2), (1, 2), (1, 2)), 0),
        (times((2, 1), (1, 2), (1, 2)), 63),  # a row must be longer than the border
        (times((1, 2), (2, 1), (1, 2)), 127),
        (times((2, 1), (2, 1), (2, 1)), 128),
        (DIES, None),
        ({"late": "no answer"}, None),
    ],
)
def test_windows_are_cut_from_where_it_pays(window: dict[str, object], border: int | None):
    verdict = doctor.decide(facts(window=window))
    assert verdict.window == border
    assert any("in pieces" in reason for reason in verdict.reasons) == (border is not None)
    assert doctor.from_json(doctor.as_json(verdict)) == verdict


def test_a_verdict_from_before_windows_were_measured_still_holds(own_cache: Path):
    doctor._remember(doctor.decide(facts(window=times((1, 2)))))
    known = json.loads(own_cache.read_text())
    del known[doctor.machine_key()]["window"]
    own_cache.write_text(json.dumps(known))
    verdict = doctor.remembered()
    assert verdict is not None
    assert verdict.window is None


def test_the_border_is_for_what_does_not_learn_and_the_users_stays(monkeypatch: pytest.MonkeyPatch):
    for name in (*trials.CHOSEN_BY_US, BORDER):
        monkeypatch.setenv(name, "restored afterwards")
    monkeypatch.delenv(BORDER)
    verdict = Verdict(None, "fp32", 1, "cpu", window=63)
    doctor.apply(verdict, learns=True)
    assert BORDER not in os.environ
    doctor.apply(verdict)
    assert os.environ[BORDER] == "63"
    monkeypatch.setenv(BORDER, "5")
    doctor.apply(verdict)
    assert os.environ[BORDER] == "5"


@pytest.mark.parametrize(
    ("words", "learns"),
    [(["recipes", "--json"], False), (["pretrain", "bert_tiny", "--data", "x", "--out", "y"], True)],
)
def test_commands_that_train_learn(words: list[str], learns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[bool] = []
    monkeypatch.setattr(doctor, "apply", lambda _, learns: asked.append(learns))
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(InputError):  # there is no such data
        main.read_command(words)
    assert asked == [learns]


def test_threads_that_could_not_be_measured_are_all_cores():
    assert doctor.decide(facts(threads=DIES)).threads == doctor.cores()


def test_without_torch_the_verdict_says_so():
    verdict = doctor.decide(doctor.machine() | {"software": {"died": "No module named 'torch'"}})
    assert (verdict.isa, verdict.precision, verdict.threads) == (None, "fp32", doctor.cores())
    assert "No module named 'torch'" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (64, [1, 2, 4, 8, 16, 32, 64])]
)
def test_thread_counts(cores: int, counts: list[int]):
    assert doctor.thread_counts(cores) == counts


@pytest.mark.parametrize("late", ["software", "threads", "bf16", "bf16_safe_isa"])
def test_a_machine_too_busy_to_be_measured_gets_the_safe_choices(late: str):
    report = facts(bf16=DIES, bf16_safe_isa={"fp32_ms": 150.0, "bf16_ms": 100.0}) | {late: {"late": "no answer"}}
    verdict = doctor.decide(report)
    assert (verdict.isa, verdict.precision, verdict.threads) == (None, "fp32", doctor.cores())
    assert "too busy" in verdict.reasons[0]


def test_a_probe_keeps_to_its_time_and_does_not_remember_what_it_could_not_measure():
    begin = time.monotonic()
    verdict = doctor.probe(seconds=0.5)
    assert time.monotonic() - begin < 10
    assert "too busy" in verdict.reasons[0]
    assert doctor.remembered() is None


def test_children_answer_die_fail_and_hang(monkeypatch: pytest.MonkeyPatch):
    assert trials.run_child("print('noise'); print('{\"a\": 1}')") == {"a": 1}
    assert trials.run_child("import os, signal; os.kill(os.getpid(), signal.SIGILL)") == {"died": "SIGILL"}
    assert trials.run_child("raise ValueError('no such thing')") == {"died": "ValueError: no such thing"}
    assert trials.run_child("while True: pass", seconds=0.5) == {"late": "no answer within 0.5 seconds"}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    seen = "import os, json; print(json.dumps([os.getenv('OMP_NUM_THREADS'), os.getenv('ONEDNN_MAX_CPU_ISA')]))"
    assert trials.run_child(seen, isa="AVX2") == [None, "AVX2"]


def test_cores_respect_affinity():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert doctor.cores() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_busy_machine_is_seen_and_reported():
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        assert doctor.busy_share() > 0.5
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert "90% of the cores" in doctor.decide(facts(busy_share=0.9)).reasons[-1]
    assert "of the cores" not in doctor.decide(facts(busy_share=0.1)).reasons[-1]


def test_machine_facts_are_plausible():
    result = doctor.machine()
    assert 0 < result["memory_available_gb"] <= result["memory_gb"]
    assert result["disk_free_gb"] > 0
    assert result["processor"]


def test_extras_are_those_of_the_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = {
        name: tuple(requirement.split(">=")[0] for requirement in requirements)
        for name, requirements in project["optional-dependencies"].items()
        if name not in ("test", "dev")
    }
    assert declared == doctor.EXTRAS


def test_remembers_per_machine(own_cache: Path, monkeypatch: pytest.MonkeyPatch):
    assert doctor.remembered() is None
    verdict = doctor.decide(facts())
    doctor._remember(verdict)
    assert doctor.remembered() == verdict
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "another")
    assert doctor.remembered() is None
    doctor._remember(verdict)
    assert len(json.loads(own_cache.read_text())) == 2


def test_what_other_cores_of_this_machine_gave_holds_until_these_are_measured(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    verdict = dataclasses.replace(doctor.default(), precision="bf16", isa=doctor.SAFE_ISA, threads=1)
    for cores, precision in ((64, "fp32"), (4, "bf16")):
        monkeypatch.setattr(doctor, "cores", lambda cores=cores: cores)
        doctor._remember(dataclasses.replace(verdict, precision=precision))
    monkeypatch.setattr(doctor, "cores", lambda: 3)
    assert doctor.remembered() is None
    nearest = doctor.default()
    assert (nearest.precision, nearest.isa, nearest.threads) == ("bf16", doctor.SAFE_ISA, 3)
    assert nearest.reasons[0].startswith("Measured with other cores than the 3 ")
    monkeypatch.setattr(doctor, "_APPLIED", [])
    assert doctor.current() == nearest
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "another")
    assert doctor.default().precision == "fp32"
    own_cache.write_text(json.dumps({f"{doctor._key_of_processor()}-{cores}": {"threads": 0} for cores in (8, "x")}))
    assert doctor.default().precision == "fp32"


@pytest.mark.parametrize(
    "content", ["", "[]", "{", "null", '{"KEY": 3}', '{"KEY": {"isa": null}}', '{"KEY": {"threads": 0}}']
)
def test_a_damaged_cache_is_forgotten_and_mended(own_cache: Path, content: str):
    own_cache.parent.mkdir()
    own_cache.write_text(content.replace("KEY", doctor.machine_key()))
    assert doctor.remembered() is None
    verdict = doctor.decide(facts())
    doctor._remember(verdict)
    assert doctor.remembered() == verdict


def test_an_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    doctor._remember(doctor.default())
    assert doctor.remembered() is None


def test_json_round_trip():
    verdict = doctor.decide(facts(bf16=DIES, bf16_safe_isa=DIES))
    assert doctor.from_json(doctor.as_json(verdict)) == verdict
    assert "\n" not in doctor.as_json(verdict)
    with pytest.raises(ValueError, match="not a verdict"):
        doctor.from_json(doctor.as_json(verdict).replace('"fp32"', '"fp7"'))


def test_remembering_and_applying_import_no_torch_and_keep_the_users_choice():
    doctor._remember(Verdict("AVX2", "fp32", 1, "cpu"))
    code = (
        "import os, sys, json\nfrom clozeworks.machine import doctor\n"
        "verdict = doctor.remembered()\ndoctor.apply(verdict)\n"
        "print(json.dumps(['torch' in sys.modules, os.environ['ONEDNN_MAX_CPU_ISA'], os.environ['OMP_NUM_THREADS']]))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in trials.CHOSEN_BY_US}
    for own, expected in [({}, [False, "AVX2", "1"]), ({"OMP_NUM_THREADS": "3"}, [False, "AVX2", "3"])]:
        command = [sys.executable, "-c", code]
        answer = subprocess.run(command, env=environment | own, check=True, capture_output=True, text=True).stdout
        assert json.loads(answer) == expected


def test_remembering_is_quick():
    doctor._remember(doctor.decide(facts()))
    begin = time.perf_counter()
    assert doctor.remembered()
    assert time.perf_counter() - begin < 0.1


def test_apply_after_torch_sets_the_threads(monkeypatch: pytest.MonkeyPatch):
    import torch

    for name in trials.CHOSEN_BY_US:
        monkeypatch.setenv(name, "restored afterwards")
        monkeypatch.delenv(name)
    before = torch.get_num_threads()
    try:
        doctor.apply(Verdict(None, "fp32", 3, "cpu"))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_rendering_shows_choices_reasons_and_missing_extras():
    slow = {"fp32_ms": 100.0, "bf16_ms": 150.0}
    verdict = doctor.decide(facts(bf16=DIES, bf16_safe_isa=slow, window=times((2, 1), (1, 2))))
    verdict.facts["extras"] = {"zh": {"jieba": None}}
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(verdict))
    text = console.export_text()
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16" in text
    assert "longer than a piece by more than 63 tokens" in text
    assert "jieba missing: pip install 'clozeworks[zh]'" in text
    assert all(reason.split()[0] in text for reason in verdict.reasons)
    console.print(render(doctor.default()))


@pytest.mark.slow
def test_probe_measures_this_machine():
    verdict = doctor.probe(seconds=300)  # the other tests keep this machine busy
    assert 1 <= verdict.threads <= doctor.cores()
    assert verdict.facts["threads"]["step_ms"]["1"] > 0
    assert "too busy" not in verdict.reasons[0]
    assert verdict.facts["software"]["device"] != "cpu" or verdict.window is not None
    busy = verdict.facts["busy_share"] > doctor.BUSY
    assert doctor.remembered() == (None if busy else verdict)


@pytest.mark.slow
def test_probe_survives_a_machine_that_traps_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every interpreter below this one dies as on such a machine, unless the instruction set is capped."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        "if 'ONEDNN_MAX_CPU_ISA' not in os.environ:\n"
        "    import torch\n"
        "    plain = torch.nn.Linear.forward\n"
        "    def forward(self, x):\n"
        "        if x.dtype is torch.bfloat16:\n"
        "            os.kill(os.getpid(), signal.SIGILL)\n"
        "        return plain(self, x)\n"
        "    torch.nn.Linear.forward = forward\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    verdict = doctor.probe(remember=False, seconds=300)
    assert verdict.facts["bf16"] == {"died": "SIGILL"}
    assert verdict.isa == "AVX512_CORE_FP16"
    assert any("SIGILL" in reason for reason in verdict.reasons)
    assert doctor.remembered() is None


def test_a_verdict_that_is_not_remembered_holds_for_its_process(monkeypatch: pytest.MonkeyPatch, own_cache: Path):
    for name in (*trials.CHOSEN_BY_US, BORDER):
        monkeypatch.setenv(name, "restored afterwards")
    monkeypatch.setattr(doctor, "_APPLIED", [])
    assert doctor.current().precision == "fp32"
    doctor.apply(Verdict(None, "bf16", 1, "cpu"))
    assert doctor.current().precision == "bf16"
    doctor._remember(Verdict(None, "fp32", 1, "cpu"))
    assert doctor.current().precision == "fp32"
