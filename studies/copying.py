"""A word that is said twice, read with hashing: `python -m studies.copying`.

Rows are 0 w 0 w, w being drawn token by token (Kitaev et al. 2020, the synthetic task): the second w can be predicted
from the first and from nothing else, half a row away. One layer of `LSH` attention with 1, 2, 4 or 8 rounds learns
it, and each model is then read with 1, 2, 4 and 8, which changes no weight. Beside them attention over all pairs, once
with keys that are the queries and once with keys of their own.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch

from clozeworks.core.batch import Batch, from_padded
from clozeworks.model import Model
from clozeworks.nn.mixers.lsh import LSH, LSHLayer
from clozeworks.nn.positions import LearnedPositions
from studies import figures
from studies.study import Study, fit_batches, mean_interval

WORD, SYMBOLS = 31, 64  # tokens of w, and how many there are to draw from besides 0
LENGTH = 2 * (WORD + 1)
CHUNK, WIDTH, HEADS = 4, 64, 2
STEPS, ROWS, RATE = 800, 16, 3e-3  # steps, rows in each, and how far they go
ROUNDS = (1, 2, 4, 8)
TESTED = 512  # rows that nobody trained on
EXAMPLE = "python -m studies.copying --seeds 0,1,2 --plot copying.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS) -> dict[str, Any]:
    """Accuracy on the second w: {"accuracy": {trained with: {read with: [one a seed]}}} with how it was measured."""
    accuracies: dict[str, dict[str, list[float]]] = {str(rounds): {} for rounds in ROUNDS}
    whole: dict[str, list[float]] = {"shared": [], "separate": []}
    for seed in seeds:
        for trained in ROUNDS:
            model = train(trained, seed, steps)
            for read in ROUNDS:
                accuracies[str(trained)].setdefault(str(read), []).append(score(model, seed, read))
        for kind, values in whole.items():
            values.append(score(train(kind, seed, steps), seed))
    return {
        "steps": steps,
        "tokens_a_step": ROWS * LENGTH,
        "seeds": list(seeds),
        "length": LENGTH,
        "chunk": CHUNK,
        "accuracy": accuracies,
        "all_pairs": whole,
        "mean": {
            trained: {read: mean_interval(values) for read, values in each.items()}
            for trained, each in accuracies.items()
        },
        "mean_all_pairs": {kind: mean_interval(values) for kind, values in whole.items()},
    }


def rows(seed: int, step: int, count: int) -> Batch:
    """0 w 0 w, of which the second w is predicted."""
    draw = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    half = torch.randint(1, SYMBOLS + 1, (count, WORD + 1), generator=draw)
    half[:, 0] = 0
    batch = from_padded(torch.cat([half, half], 1), kind="causal")
    first = torch.arange(count)[:, None] * LENGTH
    batch.targets = (first + torch.arange(WORD + 1, LENGTH - 1)).flatten()
    batch.labels = half[:, 1:].flatten()
    return batch


def recipe_for(kind: int | str, seed: int) -> Any:
    """One layer of `gpt_mini`; `kind`: rounds of LSH, "shared" for all pairs with its keys, or "separate"."""
    import clozeworks

    r = clozeworks.recipe("gpt_mini")
    r.name, r.train.seed = f"copying_{kind}", seed
    r.encoder.width, r.encoder.vocab, r.encoder.stack.depth = WIDTH, SYMBOLS + 1, 1
    positions = r.encoder.embed.positions
    assert isinstance(positions, LearnedPositions)
    r.objective.segments.length = positions.length = LENGTH
    r.encoder.embed.dropout, r.encoder.init = 0.0, 0.1
    block = r.encoder.stack.block_at(0)
    assert block.ffn is not None
    block.dropout, block.ffn.inner = 0.0, 2 * WIDTH
    block.mixer.heads, block.mixer.dropout = HEADS, 0.0
    if isinstance(kind, int):
        block.mixer = LSH(HEADS, chunk=CHUNK, rounds=kind)
    elif kind == "shared":
        block.mixer = LSH(HEADS, chunk=LENGTH)
    return r


def train(kind: int | str, seed: int, steps: int) -> Model:
    import clozeworks

    model = clozeworks.build(recipe_for(kind, seed))
    return fit_batches(model, lambda step: rows(seed, step, ROWS), seed=seed, steps=steps, learning_rate=RATE)


@torch.no_grad()
def score(model: Model, seed: int, rounds: int | None = None) -> float:
    for layer in model.modules():
        if isinstance(layer, LSHLayer) and rounds is not None:
            layer.rounds = rounds
    ((_, right),) = model(rows(seed, -1, TESTED)).metrics.values()
    return round(float(right) / (TESTED * WORD), 4)


def draw(results: dict[str, Any], path: str) -> None:
    """A group for each number of rounds in training, a bar for each in reading."""
    groups = {
        f"trained with {trained}": {f"read with {read}": values for read, values in each.items()}
        for trained, each in results["accuracy"].items()
    }
    shared = results["mean_all_pairs"]["shared"][0]
    figures.grouped_bars(groups, path, "A word said twice, by rounds of hashing", "accuracy", shared, "all pairs")


STUDY = Study(
    name="copying",
    about="Attention by hashing on a word that is said twice, by rounds in training and in reading.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
