"""Losses that are no numbers, or far too large, for certain examples: the run passes over them and ends well.

The poison is a part in a recipe's file, as a user would write one: it depends on the examples of a batch alone.
"""

import math
import random
import signal
from pathlib import Path
from typing import Any

from clozeworks.exchange import checkpoint
from clozeworks.train import metrics_log
from tests.faults import scene
from tests.faults.scene import Figures, Scene

STEPS = 80
EVERY = 67  # one example in so many is poisoned
KINDS = {"nan": math.nan, "inf": math.inf, "spike": 1e3, "back": math.nan}
# A short run, so the guard must know its losses soon; `back` goes back to a checkpoint after two bad steps in a row.
GUARD = {"guard.window": 20, "guard.rollbacks": 9}
CODE = '''
from dataclasses import dataclass

from clozeworks.objectives.losses.masked_lm import MaskedLM, MaskedLMLayer
from clozeworks.recipes.bert import bert_tiny


@dataclass(slots=True)
class Poisoned(MaskedLM):
    """MaskedLM that goes wrong on some examples."""

    def build(self, width, embed):
        return PoisonedLayer(self, width, embed)


class PoisonedLayer(MaskedLMLayer):
    def forward(self, hidden, batch):
        loss, metrics = super().forward(hidden, batch)
        bad = loss.requires_grad and any(int(number) % {every} == {rest} for number in batch.index)
        return (loss * float("{factor}") if bad else loss), metrics


def poisoned():
    r = bert_tiny()
    r.name = "poisoned"
    r.objective.losses = (Poisoned(), *r.objective.losses[1:])
    return r
'''


def run(place: Scene, cases: int = 5, kinds: tuple[str, ...] = tuple(KINDS), steps: int = STEPS) -> Figures:
    """`cases` poisoned runs of each kind, each compared with a sound one, and with itself killed on the way."""
    assert place.run(place.pretrain(place.folder / "sound", steps=steps, save_every=10, **GUARD)).status == 0
    sound = _loss(place.folder / "sound")
    chosen = [(kind, number) for kind in kinds for number in range(cases)]
    figures = Figures(figures={"recovered": 0, "identical_after_a_kill": 0, "sound_loss": round(sound, 4)})
    for result in scene.each(lambda case: _case(place, *case, steps), chosen, place.folder):
        figures.cases += 1
        well = result["status"] == 0 and abs(result["loss"] - sound) < 0.1 * sound
        figures.figures["recovered"] += well
        figures.figures["identical_after_a_kill"] += result["identical"]
        figures.add(f"{result['kind']}_steps_skipped", result["skipped"])
        figures.add("rollbacks", result["rollbacks"])
        figures.figures["worst_loss"] = max(figures.figures.get("worst_loss", 0.0), result["loss"])
        figures.expect(
            well, f"{result['label']}: exit code {result['status']}, loss {result['loss']}: {result['says']}"
        )
        figures.expect(result["identical"], f"{result['label']}: killed and resumed, it ends otherwise")
        figures.expect(result["skipped"] + result["rollbacks"] > 0, f"{result['label']}: no step was skipped")
    return figures


def _case(place: Scene, kind: str, number: int, steps: int) -> dict[str, object]:
    rest = random.Random(f"{kind} {number}").randrange(EVERY)
    file = place.folder / f"{kind}_{number}.py"
    file.write_text(CODE.format(every=EVERY, rest=rest, factor=KINDS[kind]))
    outs = [place.folder / f"{kind}-{number}-{name}" for name in ("whole", "killed")]
    guard = GUARD | {"guard.patience": 2 if kind == "back" else 10}
    words = [place.pretrain(out, recipe=f"{file}:poisoned", steps=steps, save_every=10, **guard) for out in outs]
    whole = place.run(words[0])
    child = place.start(words[1])
    half = f"step-{steps // 2:08d}"
    scene.until(lambda: child.ended() or scene.saved(outs[1]) >= half)
    child.signal(signal.SIGKILL)
    child.wait()
    place.run(words[1])
    rows = metrics_log.read(outs[0] / "metrics.jsonl")
    return {
        "kind": kind,
        "label": f"{kind}, examples {rest} of every {EVERY}",
        "status": whole.status,
        "says": whole.says()[-300:] if whole.status else "",
        "loss": _loss(outs[0]),
        "skipped": sum(bool(row.get("skipped")) for row in rows),
        "rollbacks": len(_state(outs[0]).get("guard", {}).get("passed", [])),
        "identical": whole.status == 0 and not scene.unlike(*map(scene.end_of, outs)),
    }


def _state(run: Path) -> dict[str, Any]:
    newest = checkpoint.newest(run)
    return newest.state if newest else {}


def _loss(run: Path) -> float:
    """The last loss on held-out text."""
    rows = [row for row in metrics_log.read(run / "metrics.jsonl") if row.get("split") == "heldout"]
    return rows[-1]["loss"] if rows and rows[-1]["loss"] is not None else math.inf
