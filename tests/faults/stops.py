"""SIGTERM at any moment: the step is finished, saved and durable before the process leaves, and no step is lost."""

import random
import signal
import time
from pathlib import Path
from typing import Any

from clozeworks.exchange import checkpoint
from clozeworks.train import metrics_log
from tests.faults import scene
from tests.faults.scene import Figures, Scene

STEPS = 160
CODES = (143, 130)


def run(place: Scene, stops: int = 10, steps: int = STEPS) -> Figures:
    """One run, stopped again and again; nothing else saves it before its end."""
    settings = {"steps": steps, "save_every": 10 * steps, "evaluate_every": steps}
    assert place.run(place.pretrain(place.folder / "whole", **settings)).status == 0
    out, draw, figures, seconds = place.folder / "stopped", random.Random(3), Figures(), []
    words = place.pretrain(out, **settings)
    for number in range(stops):
        before = _rows(out)
        child = place.start(words)
        more = len(before) + draw.randint(1, steps // (stops + 2))
        scene.until(lambda: child.ended() or len(_rows(out)) >= more)  # noqa: B023
        time.sleep(draw.random() * 0.01)
        begin = time.monotonic()
        child.signal(signal.SIGTERM)
        status = child.wait()
        seconds.append(time.monotonic() - begin)
        newest, rows = checkpoint.newest(out), _rows(out)
        lost = rows[-1]["step"] - (newest.step if newest else 0)
        figures.cases += 1
        figures.add("steps_lost", lost)
        figures.add(f"exit_{status}")
        figures.expect(status in CODES, f"stop {number}: exit code {status}: {child.says()[-300:]}")
        figures.expect(lost == 0, f"stop {number}: {lost} steps were lost")
    last = place.run(words)
    differs = scene.unlike(scene.end_of(place.folder / "whole"), scene.end_of(out))
    figures.expect(last.status == 0, f"it was not resumed: {last.says()[-300:]}")
    figures.expect(not differs, f"{', '.join(differs)} differ from the uninterrupted run's")
    figures.figures |= {"longest_seconds": round(max(seconds), 2), "identical": not differs}
    return figures


def _rows(run: Path) -> list[dict[str, Any]]:
    return metrics_log.read(run / "metrics.jsonl")
