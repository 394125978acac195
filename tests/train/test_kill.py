"""SIGKILL at any moment, the same command again: the weights of the uninterrupted run, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clozeworks import spec
from clozeworks.train import checkpoint, log

KILLS = 24


@pytest.mark.slow
def test_killed_and_uninterrupted_runs_end_alike(tiny, data: Path, tmp_path: Path):
    recipe = tiny(300, save_every=2, evaluate_every=50, log_every=1)
    (tmp_path / "recipe.json").write_text(json.dumps(spec.to_dict(recipe)))
    script = [sys.executable, str(Path(__file__).with_name("killing.py")), str(tmp_path / "recipe.json"), str(data)]
    told = []
    for name, kills in (("whole", 0), ("killed", KILLS)):
        done = subprocess.run([*script, str(tmp_path / name), str(kills)], capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert [each["status"] for each in told] == [0, 0]
    assert told[1]["kills"] >= KILLS
    assert 2 * told[1]["during_save"] >= KILLS
    assert 2 * told[1]["reached"] >= KILLS, "kills that never let a run get further would prove nothing"
    ends = [checkpoint.verify(tmp_path / name / checkpoint.name_of(300)) for name in ("whole", "killed")]
    for file in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        assert (ends[0].path / file).read_bytes() == (ends[1].path / file).read_bytes()
    assert ends[0].state["position"] == ends[1].state["position"]
    rows = [
        [{k: v for k, v in row.items() if k not in log.TIMINGS} for row in log.read(tmp_path / name / "metrics.jsonl")]
        for name in ("whole", "killed")
    ]
    assert len(rows[0]) == 306
    assert rows[0] == rows[1]
    left = sorted(path.name for path in (tmp_path / "killed").iterdir() if path.name.startswith("."))
    assert left == [], "what the killed left was swept"
