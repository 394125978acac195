"""What an idea of the family costs in time: steps of one recipe with it and without it, in turns.

A comparison names its sides; each is a function from the folder to the tokens of one step after another, and lives in
a process of its own. The ratio is the time of the first side by the others' together: shared layers by layers of their
own weights; a taught step by the same step with the teacher's part ready, and the teacher's pass; a taught step by one
of the same student that predicts hidden tokens alone.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import Contestant, turns
from benchmarks.figures import footer, setting_of, spread, told
from clozeworks.machine import doctor

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clozeworks.core.batch import Batch
    from clozeworks.nn.stack import Share
    from clozeworks.recipe import Recipe
    from clozeworks.train.teacher import Teacher

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
    from clozeworks.data.shards.prepare import prepare

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
    """One comparison, its sides in turns."""
    sides = {side: Contestant("family", folder, threads, name, side) for side in COMPARISONS[name]}
    segments = turns(sides, setting.warmup, setting.repetitions, setting.steps)
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
    from clozeworks.recipe import count_parameters

    recipes = {side: recipe_of(setting, share()) for side, share in SHARES.items()}
    recipes |= {side: pupil(setting) for side in ("taught", "student", "alone")} | {"teacher": master(setting)}
    return {side: count_parameters(recipes[side]) for side in COMPARISONS[comparison]}


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
    return layers(setting, folder, one_set())


def own(setting: Setting, folder: Path) -> Iterator[int]:
    return layers(setting, folder, own_sets())


def layers(setting: Setting, folder: Path, share: "Share") -> Iterator[int]:
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.train.pretrain import fit_to_data

    r = fit_to_data(recipe_of(setting, share), Tokenizer.load(folder / DATA))
    return training(r, batches_of(r, folder))


# ---- a teacher


def pupil(setting: Setting) -> "Recipe":
    from clozeworks.recipes import recipe

    r = recipe("distilbert_mini")
    r.encoder.vocab, r.train.batch_tokens = setting.vocab, setting.batch_tokens
    return r


def master(setting: Setting) -> "Recipe":
    from clozeworks.recipes import recipe

    r = recipe("bert_mini")
    r.encoder.vocab = setting.vocab
    return r


def lesson(setting: Setting, folder: Path) -> "tuple[Recipe, Teacher, list[list[Batch]]]":
    """A recipe, its teacher with fresh weights, and the same few steps for every side."""
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.recipe import build
    from clozeworks.train.pretrain import fit_to_data
    from clozeworks.train.teacher import Teacher

    tokenizer = Tokenizer.load(folder / DATA)
    r = fit_to_data(pupil(setting), tokenizer)
    above = build(fit_to_data(master(setting), tokenizer))
    teacher = Teacher(above, r.objective.losses, r.encoder.stack.depth)
    return r, teacher, list(itertools.islice(batches_of(r, folder), setting.steps))


def taught(setting: Setting, folder: Path) -> Iterator[int]:
    r, teacher, batches = lesson(setting, folder)
    return training(r, itertools.cycle(batches), teacher)


def student(setting: Setting, folder: Path) -> Iterator[int]:
    """The same losses, with what the teacher finds found before."""
    r, teacher, batches = lesson(setting, folder)
    return training(r, itertools.cycle([[teacher(batch) for batch in micro] for micro in batches]))


def teacher(setting: Setting, folder: Path) -> Iterator[int]:
    _, above, batches = lesson(setting, folder)
    for micro in itertools.cycle(batches):
        yield sum(above(batch).real for batch in micro)


def alone(setting: Setting, folder: Path) -> Iterator[int]:
    """Hidden tokens and nothing else."""
    r, _, batches = lesson(setting, folder)
    r.objective.losses = tuple(loss for loss in r.objective.losses if "teacher" not in loss.reads)
    return training(r, itertools.cycle(batches))


# ---- what all sides do


def batches_of(r: "Recipe", folder: Path) -> "Iterator[list[Batch]]":
    from clozeworks.data.batches.loader import Loader
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.data.tokens.tokenizer import Tokenizer

    corpora = [(Corpus.open(folder / DATA), 1.0)]
    objective, vocabulary = r.objective, Tokenizer.load(folder / DATA).vocabulary()
    tokens = r.train.batch_tokens
    loader = Loader(corpora, objective.segments, objective.corruption, vocabulary, seed=0, batch_tokens=tokens)
    return (micro for micro, _ in loader.steps())


def training(r: "Recipe", batches: "Iterator[list[Batch]]", teach: "Teacher | None" = None) -> Iterator[int]:
    """The loop that `pretrain` runs, without its panel and its checkpoints."""
    from clozeworks.optim import parameter_groups
    from clozeworks.recipe import build
    from clozeworks.train.loop import Policy, fit
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    model, train = build(r), r.train
    optimizer = parameter_groups.build_optimizer(model, train.optimizer, train.learning_rate)
    rate, policy = train.learning_rate, Policy(clip=train.clip, teacher=teach)
    for step in fit(model, batches, optimizer, lambda _: rate, steps=10**9, policy=policy):
        yield step.tokens


Side = Callable[[Setting, Path], Iterator[int]]
COMPARISONS: dict[str, dict[str, Side]] = {
    "sharing": {"shared": shared, "own": own},
    "distillation": {"taught": taught, "student": student, "teacher": teacher},
    "teaching": {"taught": taught, "alone": alone},
}


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    lines: list[Any] = [
        f"{figures['recipe']} with {figures['depth']} layers to share, distilbert_mini with a teacher; "
        f"{figures['tokens_a_step']:,} tokens a step; "
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
