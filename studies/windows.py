"""Windows that grow upward, stay alike or shrink: `python -m studies.windows`.

Lower layers of a model of characters find what is near, upper ones join it (Beltagy et al. 2020, 4.2), so that the same
number of pairs should be worth more where windows grow from layer to layer. Here a small model learns characters with
windows that grow, are all alike, or shrink, and with two of four heads dilated at the top; the windows add up to the
same, and text and order are the same.
"""

import copy
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.heldout import evaluate
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.window import Window
from clozeworks.plots import charts
from studies import script
from studies.independence import mean

STEPS, LENGTH, ROWS = 600, 256, 8
WIDTH, HEADS = 64, 4
LEFT = {"growing": (8, 16, 40, 64), "alike": (32,) * 4, "shrinking": (64, 40, 16, 8), "dilated": (8, 16, 40, 64)}
DILATED = (1, 1, 2, 2)  # steps of the heads of the upper two layers
EXAMPLE = "python -m studies.windows --text book.txt --seeds 0,1,2 --plot windows.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS, text: str | None = None) -> dict[str, Any]:
    """Bits a character of held-out text, {"bits": {arrangement: [one a seed]}}, with how it was measured."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="clozeworks-windows-") as name:
        data = Path(name) / "data"
        script.characters(text, data)
        for kind in LEFT:
            found[kind] = [round(learnt(kind, data, Path(name) / f"{kind}-{seed}", seed, steps), 4) for seed in seeds]
    more = {
        kind: mean([a - b for a, b in zip(each, found["growing"], strict=True)])
        for kind, each in found.items()
        if kind != "growing"
    }
    return {
        "steps": steps,
        "tokens_a_step": ROWS * LENGTH,
        "seeds": list(seeds),
        "windows": {kind: list(left) for kind, left in LEFT.items()},
        "bits": found,
        "mean": {kind: mean(each) for kind, each in found.items()},
        "bits_more_than_growing": more,
    }


def learnt(kind: str, data: Path, out: Path, seed: int, steps: int) -> float:
    """Train one model; its bits a character of held-out text."""
    r = recipe_for(kind, seed, steps)
    encoder = script.trained(r, data, out)
    figures = evaluate(encoder.model, Corpus.open(data, "heldout"), r.objective, encoder.vocabulary())
    return figures["next_token"] / math.log(2)


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
    r.train.batch_tokens, r.train.learning_rate, r.train.precision = ROWS * LENGTH, 3e-3, "fp32"
    r.train.steps = r.train.save_every = r.train.evaluate_every = steps
    r.train.seed = seed
    return r


def draw(figures: dict[str, Any], path: str) -> None:
    """A bar the mean of an arrangement, a dot each seed."""
    told = {kind: f"{kind}\n{', '.join(map(str, left))}" for kind, left in figures["windows"].items()}
    bars = {told[kind]: values for kind, values in figures["bits"].items()}
    charts.bar_panels({"bits a character": bars}, path, "Windows by layer, from the first")


def main(words: Sequence[str] | None = None) -> int:
    """0 done, 2 bad input, told in one sentence."""
    about = "Windows that grow from layer to layer, stay alike or shrink."
    parser = script.Arguments("windows", about, EXAMPLE, STEPS, text=True)
    return script.answer(parser, words, run, draw)


if __name__ == "__main__":
    sys.exit(main())
