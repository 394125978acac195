"""Windows that grow upward, stay alike or shrink: `python -m studies.windows`.

Lower layers of a model of characters find what is near, upper ones join it (Beltagy et al. 2020, 4.2), so that the same
number of pairs should be worth more where windows grow from layer to layer. Here a small model learns characters with
windows that grow, are all alike, or shrink, and with two of four heads dilated at the top; the windows add up to the
same, and text and order are the same.
"""

import copy
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.heldout import evaluate
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.window import Window
from studies import figures
from studies.study import Study, mean_difference, mean_interval, prepare_characters, pretrain, set_budget, workspace

STEPS, LENGTH, ROWS = 600, 256, 8
WIDTH, HEADS = 64, 4
LEFT = {"growing": (8, 16, 40, 64), "alike": (32,) * 4, "shrinking": (64, 40, 16, 8), "dilated": (8, 16, 40, 64)}
DILATED = (1, 1, 2, 2)  # steps of the heads of the upper two layers
EXAMPLE = "python -m studies.windows --text book.txt --seeds 0,1,2 --plot windows.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS, text: str | None = None) -> dict[str, Any]:
    """Bits a character of held-out text, {"bits": {arrangement: [one a seed]}}, with how it was measured."""
    bits: dict[str, list[float]] = {}
    with workspace("windows") as folder:
        data = folder / "data"
        prepare_characters(text, data)
        for kind in LEFT:
            bits[kind] = [round(train(kind, data, folder / f"{kind}-{seed}", seed, steps), 4) for seed in seeds]
    more = {kind: mean_difference(each, bits["growing"]) for kind, each in bits.items() if kind != "growing"}
    return {
        "steps": steps,
        "tokens_a_step": ROWS * LENGTH,
        "seeds": list(seeds),
        "windows": {kind: list(left) for kind, left in LEFT.items()},
        "bits": bits,
        "mean": {kind: mean_interval(each) for kind, each in bits.items()},
        "bits_more_than_growing": more,
    }


def train(kind: str, data: Path, out: Path, seed: int, steps: int) -> float:
    """Train one model; its bits a character of held-out text."""
    r = recipe_for(kind, seed, steps)
    encoder = pretrain(r, data, out)
    metrics = evaluate(encoder.model, Corpus.open(data, "heldout"), r.objective, encoder.vocabulary())
    return metrics["next_token"] / math.log(2)


def recipe_for(kind: str, seed: int, steps: int) -> Any:
    """Four layers of width 64 over characters, the norm before each branch, with windows of such a kind."""
    import clozeworks

    r = clozeworks.recipe("gpt_mini")
    r.name, r.encoder.width = f"windows_{kind}", WIDTH
    block = r.encoder.stack.block_at(0)
    assert block.ffn is not None
    block.place, block.dropout, block.ffn.inner = "pre", 0.0, 4 * WIDTH
    blocks = []
    for layer, left in enumerate(LEFT[kind]):
        steps_of = DILATED if kind == "dilated" and layer >= 2 else 1
        blocks.append(copy.deepcopy(block))
        blocks[-1].mixer = Attention(HEADS, window=Window(left, 0, steps_of))
    r.encoder.stack.block = tuple(blocks)
    r.encoder.stack.norm = block.norm
    r.encoder.embed.positions, r.encoder.embed.dropout = LearnedPositions(LENGTH), 0.0
    r.encoder.init = 0.06  # 0.02 suits a width of 768
    r.objective.segments.length = LENGTH
    set_budget(r, seed=seed, steps=steps, batch_tokens=ROWS * LENGTH, learning_rate=3e-3)
    return r


def draw(results: dict[str, Any], path: str) -> None:
    """A bar the mean of an arrangement, a dot each seed."""
    labels = {kind: f"{kind}\n{', '.join(map(str, left))}" for kind, left in results["windows"].items()}
    bars = {labels[kind]: values for kind, values in results["bits"].items()}
    figures.bar_panels({"bits a character": bars}, path, "Windows by layer, from the first")


STUDY = Study(
    name="windows",
    about="Windows that grow from layer to layer, stay alike or shrink.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
    text=True,
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
