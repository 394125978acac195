"""What an idea of the family costs in time: steps of one recipe with it and without it, in turns.

A comparison names its sides; each is a function from the folder to the tokens of one step after another, and lives in
a process of its own. The ratio is the time of the first side by the others' together: shared layers by layers of their
own weights.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeworks import doctor
from clozeworks.bench.child import Contestant
from clozeworks.bench.figures import footer, setting_of, spread, told

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clozeworks.nn.stack import Share
    from clozeworks.pretraining import Recipe

PACKAGES = ("torch", "numpy")
DATA, SETTING = "data", "setting.json"


@dataclass(frozen=True, slots=True)
class Setting:
    recipe: str = "bert_mini"
    depth: int = 12  # layers: as many as are shared in the published model
    batch_tokens: int = 4096
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    repetitions: int = 5
    steps: int = 12  # of a side, in a repetition
    warmup: int = 3  # steps
    threads: int | None = None  # None: every core this process may use

    @staticmethod
    def quick() -> "Setting":
        return Setting(documents=60, repetitions=3, steps=4, batch_tokens=1024, warmup=2)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    from clozeworks.corpus import documents
    from clozeworks.data.prepare import prepare

    threads, begin = setting.threads or doctor.cores(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        prepare(itertools.islice(documents("en"), setting.documents), folder / DATA, vocab=setting.vocab, heldout=0)
        found = {each: compared(setting, each, folder, threads) for each in COMPARISONS}
    return {
        "benchmark": "family",
        "dtype": "fp32",
        "recipe": setting.recipe,
        "depth": setting.depth,
        "tokens_a_step": setting.batch_tokens,
        "steps": setting.steps,
        "repetitions": setting.repetitions,
        "comparisons": found,
        **setting_of(threads, PACKAGES, begin),
    }


def compared(setting: Setting, name: str, folder: Path, threads: int) -> dict[str, Any]:
    """One comparison, its sides in turns; who goes first changes each time."""
    names = list(COMPARISONS[name])
    sides = {side: Contestant("family", folder, threads, name, side) for side in names}
    segments: dict[str, list[Any]] = {side: [] for side in names}
    try:
        for side in names:
            sides[side].go(setting.warmup)
        for turn in range(setting.repetitions):
            for side in names if turn % 2 == 0 else reversed(names):
                segments[side].append(sides[side].go(setting.steps))
    finally:
        for side in sides.values():
            side.close()
    return {**summary(segments), "parameters": parameters(setting, name), "segments": segments}


def summary(segments: dict[str, list[Any]]) -> dict[str, Any]:
    """Milliseconds a step of each side, and of each repetition the first side's time by that of the others."""
    first, *others = segments
    ratios = {}
    for label, field in (("ratio", "seconds"), ("cpu_ratio", "cpu_seconds")):
        each = {side: [row[field] / row["steps"] for row in rows] for side, rows in segments.items()}
        together = [sum(values) for values in zip(*(each[side] for side in others), strict=True)]
        ratios[label] = spread([mine / theirs for mine, theirs in zip(each[first], together, strict=True)])
    steps = {side: spread([1e3 * row["seconds"] / row["steps"] for row in rows], 1) for side, rows in segments.items()}
    memory = {side: max(row["peak_mb"] or 0.0 for row in rows) for side, rows in segments.items()}
    return {**ratios, "ms_a_step": steps, "peak_mb": memory}


def steps_of(folder: Path, comparison: str, side: str) -> Iterator[int]:
    """The tokens of one step after another, each made when it is asked for."""
    setting = Setting(**json.loads((folder / SETTING).read_text()))
    return COMPARISONS[comparison][side](setting, folder)


def parameters(setting: Setting, comparison: str) -> dict[str, int]:
    from clozeworks.pretraining import count_parameters

    return {
        side: count_parameters(recipe_of(setting, SHARES[side]())) for side in COMPARISONS[comparison] if side in SHARES
    }


# ---- sharing


def one_set() -> "Share":
    from clozeworks.nn.stack import Share

    return Share(attention=1, ffn=1)


def own_sets() -> "Share":
    from clozeworks.nn.stack import Share

    return Share()


SHARES = {"shared": one_set, "own": own_sets}


def recipe_of(setting: Setting, share: "Share") -> "Recipe":
    from clozeworks.recipes import recipe

    r = recipe(setting.recipe)
    r.encoder.vocab = setting.vocab  # about what the data's tokenizer has
    r.encoder.stack.depth, r.encoder.stack.share = setting.depth, share
    r.train.batch_tokens = setting.batch_tokens
    return r


def shared(setting: Setting, folder: Path) -> Iterator[int]:
    return training(recipe_of(setting, one_set()), folder)


def own(setting: Setting, folder: Path) -> Iterator[int]:
    return training(recipe_of(setting, own_sets()), folder)


def training(r: "Recipe", folder: Path) -> Iterator[int]:
    """The loop that `pretrain` runs, without its panel and its checkpoints."""
    from clozeworks.data.loader import Loader
    from clozeworks.data.shards import Corpus
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.pretraining import build
    from clozeworks.train import allocator, optim
    from clozeworks.train.loop import fit
    from clozeworks.train.run import fitted

    allocator.keep_freed()
    tokenizer = Tokenizer.load(folder / DATA)
    r = fitted(r, tokenizer)
    model, objective, train = build(r), r.objective, r.train
    loader = Loader(
        [(Corpus.open(folder / DATA), 1.0)],
        objective.segments,
        objective.corruption,
        tokenizer.vocabulary(),
        seed=0,
        batch_tokens=train.batch_tokens,
    )
    optimizer = optim.optimizer(model, train.optimizer, train.learning_rate)
    batches = (micro for micro, _ in loader.steps())
    for step in fit(model, batches, optimizer, lambda _: train.learning_rate, steps=10**9, clip=train.clip):
        yield step.tokens


Side = Callable[[Setting, Path], Iterator[int]]
COMPARISONS: dict[str, dict[str, Side]] = {"sharing": {"shared": shared, "own": own}}


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    lines: list[Any] = [
        f"{figures['recipe']} with {figures['depth']} layers, {figures['tokens_a_step']:,} tokens a step; "
        f"fp32, {figures['machine']['threads']} threads; "
        f"{figures['repetitions']} repetitions of {figures['steps']} steps"
    ]
    for name, found in figures["comparisons"].items():
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading in (name, "ms a step", "parameters", "peak MB"):
            table.add_column(heading, justify="left" if heading == name else "right")
        for side, took in found["ms_a_step"].items():
            count = found["parameters"].get(side)
            table.add_row(side, told(took), f"{count:,}" if count else "", f"{found['peak_mb'][side]:,.0f}")
        first, *others = found["ms_a_step"]
        ratio = f"{first} by {' + '.join(others)}: {told(found['ratio'])}, processor time {told(found['cpu_ratio'])}"
        lines += ["", table, ratio]
    return Group(*lines, "", footer(figures))
