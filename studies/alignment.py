"""Strings that are copied and turned round, by length: `python -m studies.alignment`.

A recurrent model reads a string of drawn symbols and writes it again, forwards or backwards. With one context for the
whole string (Cho et al. 2014) everything has to pass through a vector of one size; with attention (Bahdanau et al.
2015) each step looks at the position it needs. Reported is how many strings of each length come out without a
mistake, for one context and for the scores dot, cosine and MLP, and where one of them looked.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch

from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.context import AttentionCapture
from clozeworks.model import Model
from clozeworks.nn.mixers.recurrent_across import RecurrentAcross
from clozeworks.nn.score import Additive, Cosine, Dot
from clozeworks.objectives.losses.next_token import NextTokenLayer
from clozeworks.plots import charts
from studies.study import Study, fit_batches, mean_interval

SYMBOLS, START, END = 32, 0, 1  # to draw from, besides these two
LONGEST, WIDTH = 16, 64
STEPS, ROWS, RATE = 400, 32, 5e-3
LENGTHS = (4, 8, 12, 16)
TESTED = 128  # strings of each length that nobody trained on
TASKS = ("copy", "reverse")
DECODERS = {
    "one context": RecurrentAcross(None),
    "dot": RecurrentAcross(Dot()),
    "cosine": RecurrentAcross(Cosine()),
    "MLP": RecurrentAcross(Additive()),
    "dot, after": RecurrentAcross(Dot(), order="after"),
}
EXAMPLE = "python -m studies.alignment --seeds 0,1,2 --plot attention.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS) -> dict[str, Any]:
    """Share of strings without a mistake: {"exact": {task: {decoder: {length: [one a seed]}}}}, how it was measured,
    and the weights with which the first MLP turned one string round."""
    exact: dict[str, dict[str, dict[str, list[float]]]] = {}
    looked: list[list[float]] = []
    for task in TASKS:
        exact[task] = {}
        for name in DECODERS:
            shares = exact[task][name] = {str(length): [] for length in LENGTHS}
            for seed in seeds:
                model = train(name, task, seed, steps)
                for length in LENGTHS:
                    shares[str(length)].append(score_exact(model, strings(task, seed, -length, TESTED, length)))
                if task == "reverse" and name == "MLP" and not looked:
                    looked = weights(model, strings(task, seed, -1, 1, 12))
    return {
        "steps": steps,
        "strings_a_step": ROWS,
        "seeds": list(seeds),
        "symbols": SYMBOLS,
        "longest": LONGEST,
        "parameters": {name: sum(p.numel() for p in fresh(name, 0).parameters()) for name in DECODERS},
        "exact": exact,
        "mean": {task: {name: {length: mean_interval(values) for length, values in each.items()}
                        for name, each in arms.items()} for task, arms in exact.items()},
        "weights": looked,
    }  # fmt: skip


def strings(task: str, seed: int, step: int, count: int, length: int | None = None) -> Batch:
    """So many strings of one length, which is drawn where none is given, and what is to be written from them."""
    draw = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    length = int(torch.randint(1, LONGEST + 1, (), generator=draw)) if length is None else length
    symbols = torch.randint(2, SYMBOLS + 2, (count, length), generator=draw)
    start, end = (torch.full((count, 1), token) for token in (START, END))
    written = torch.cat([start, symbols.flip(1) if task == "reverse" else symbols, end], 1)
    batch = from_padded(written[:, :-1], kind="causal")
    batch.source = from_padded(torch.cat([symbols, end], 1))
    batch.targets, batch.labels = torch.arange(count * (length + 1)), written[:, 1:].flatten()
    return batch


def recipe_for(name: str, seed: int) -> Any:
    """`rnn_attention_mini` with width 64 and one of the decoders."""
    import clozeworks  # what a user calls, and nothing behind it

    r = clozeworks.recipe("rnn_attention_mini")
    r.name, r.train.seed = f"alignment_{name}", seed
    r.encoder.width, r.encoder.vocab, r.encoder.init = WIDTH, SYMBOLS + 2, WIDTH**-0.5
    r.encoder.embed.dropout = 0.0
    assert r.decoder is not None
    for stack in (r.encoder.stack, r.decoder.stack):
        stack.block_at(0).dropout = 0.0
    r.decoder.stack.block_at(0).mixer = DECODERS[name]
    return r


def fresh(name: str, seed: int) -> Model:
    import clozeworks

    return clozeworks.build(recipe_for(name, seed))


def train(name: str, task: str, seed: int, steps: int) -> Model:
    return fit_batches(
        fresh(name, seed), lambda step: strings(task, seed, step, ROWS), seed=seed, steps=steps, learning_rate=RATE
    )


@torch.no_grad()
def score_exact(model: Model, batch: Batch) -> float:
    """The share of strings that are written without a mistake: each token is the likeliest after those before it."""
    head = model.head("next_token")
    assert isinstance(head, NextTokenLayer)
    assert batch.labels is not None
    predicted = head.logits(model.read(batch, model.specs).at(batch)).argmax(-1)
    good = (predicted == batch.labels).view(batch.tokens.shape).all(1)
    return round(float(good.float().mean()), 4)


@torch.no_grad()
def weights(model: Model, batch: Batch) -> list[list[float]]:
    """Where the decoder looked while it wrote the first string: a row a token that was written."""
    assert model.decoder is not None
    capture = AttentionCapture()
    model.decoder(batch.tokens, batch.token_info, batch.context(source=model.source(batch.source), capture=capture))
    return [[round(share, 4) for share in row] for row in capture.captured["weights.0"][0, 0].tolist()]


def draw(results: dict[str, Any], path: str) -> None:
    """Exact strings by length, a panel a task, and where the decoder looked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), dpi=150, layout="constrained")
    for number, task in enumerate(TASKS, 1):
        axes = figure.add_subplot(1, 3, number)
        for at, (name, each) in enumerate(results["exact"][task].items()):
            values = [sum(shares) / len(shares) for shares in each.values()]
            axes.plot(LENGTHS, values, marker="o", markersize=4, color=charts.COLOURS[at], label=name)
            dots = [(int(length), value) for length, shares in each.items() for value in shares]
            axes.plot(*zip(*dots, strict=True), ".", color=charts.COLOURS[at], alpha=0.35, markersize=5)
        axes.set_title(f"{task}: strings without a mistake", loc="left", fontsize=11)
        axes.set_xlabel("symbols")
        axes.set_xticks(LENGTHS)
        axes.set_ylim(-0.03, 1.05)
        charts.finish(axes, legend=number == 1)
    axes = figure.add_subplot(1, 3, 3)
    axes.imshow(results["weights"], cmap="Blues", vmin=0, vmax=1)
    axes.set_title("reverse: where the MLP looked", loc="left", fontsize=11)
    axes.set_xlabel("read")
    axes.set_ylabel("written")
    charts.write(figure, path)


STUDY = Study(
    name="alignment",
    about="Strings copied and turned round by recurrent models, with one context and with attention, by length.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
