"""What an idea of the family costs in time: steps of one recipe with it and without it, in turns.

A comparison names its sides; each is a function from the folder to the tokens of one step after another, and lives in
a process of its own. The ratio is the time of the first side by the others' together: shared layers by layers of their
own weights; a taught step by the same step with the teacher's part ready, and the teacher's pass; a taught step by one
of the same student that predicts masked tokens alone.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.harness import Segments, Side, benchmark, footer, format_spread, per, spread
from benchmarks.side import Meter

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clozeworks.core.batch import Batch
    from clozeworks.nn.stack import Share
    from clozeworks.recipe import Recipe
    from clozeworks.train.teacher import Teacher

DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The recipe whose layers are shared, and how long each side works."""

    recipe: str = "bert_mini"
    depth: int = 12  # layers: as many as are shared in the published model
    batch_tokens: int = 4096
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    steps: int = 12  # of a side, in a repetition
    warmup: int = 3  # steps

    @classmethod
    def quick(cls) -> "Setting":
        return cls(documents=60, repetitions=3, steps=4, batch_tokens=1024, warmup=2)


@benchmark("family", ("torch", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure every comparison on one prepared text."""
    from clozeworks.corpus import documents
    from clozeworks.data.shards.prepare import prepare

    prepare(itertools.islice(documents("en"), setting.documents), folder / DATA, vocab=setting.vocab, heldout=0)
    return {
        "dtype": "fp32",
        "recipe": setting.recipe,
        "depth": setting.depth,
        "tokens_a_step": setting.batch_tokens,
        "steps": setting.steps,
        "repetitions": setting.repetitions,
        "comparisons": {each: measure_comparison(setting, each, folder) for each in COMPARISONS},
    }


def measure_comparison(setting: Setting, name: str, folder: Path) -> dict[str, Any]:
    """One comparison, its sides in turns."""
    sides = {side: Side("family", folder, setting.cores, name, side) for side in COMPARISONS[name]}
    segments = harness.compare(sides, warmup=setting.warmup, rounds=setting.repetitions, steps=setting.steps)
    return {**summary(segments), "parameters": parameters(setting, name), "segments": segments}


def serve(folder: Path, answers: IO[str], comparison: str, side: str) -> None:
    """What a side does: its steps, each made when it is asked for."""
    Meter(answers).follow(COMPARISONS[comparison][side](Setting.read(folder), folder))


def summary(segments: Segments) -> dict[str, Any]:
    """Milliseconds a step of each side, and of each repetition the first side's time by that of the others."""
    first, *others = segments
    ratios = {}
    for label, clock in (("ratio", "seconds"), ("cpu_ratio", "cpu_seconds")):
        each = {side: per(some, clock, "steps") for side, some in segments.items()}
        together = [sum(values) for values in zip(*(each[side] for side in others), strict=True)]
        ratios[label] = harness.ratio_of_pairs(each[first], together)
    steps = {side: spread([1e3 * took for took in per(some, "seconds", "steps")], 1) for side, some in segments.items()}
    memory = {side: max(each["peak_mb"] or 0.0 for each in some) for side, some in segments.items()}
    return {**ratios, "ms_a_step": steps, "peak_mb": memory}


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
    """The same losses, with what the teacher says computed before."""
    r, teacher, batches = lesson(setting, folder)
    return training(r, itertools.cycle([[teacher(batch) for batch in micro] for micro in batches]))


def teacher(setting: Setting, folder: Path) -> Iterator[int]:
    _, above, batches = lesson(setting, folder)
    for micro in itertools.cycle(batches):
        yield sum(above(batch).real for batch in micro)


def alone(setting: Setting, folder: Path) -> Iterator[int]:
    """Masked tokens and nothing else."""
    r, _, batches = lesson(setting, folder)
    r.objective.losses = tuple(loss for loss in r.objective.losses if "teacher" not in loss.needs.reads)
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


Work = Callable[[Setting, Path], Iterator[int]]
COMPARISONS: dict[str, dict[str, Work]] = {
    "sharing": {"shared": shared, "own": own},
    "distillation": {"taught": taught, "student": student, "teacher": teacher},
    "teaching": {"taught": taught, "alone": alone},
}


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    lines: list[Any] = [
        f"{results['recipe']} with {results['depth']} layers to share, distilbert_mini with a teacher; "
        f"{results['tokens_a_step']:,} tokens a step; "
        f"fp32, {results['machine']['threads']} threads; "
        f"{results['repetitions']} repetitions of {results['steps']} steps"
    ]
    for name, each in results["comparisons"].items():
        table = harness.make_table(name, "ms a step", "parameters", "peak MB")
        for side, took in each["ms_a_step"].items():
            count = each["parameters"].get(side)
            table.add_row(side, format_spread(took), f"{count:,}" if count else "", f"{each['peak_mb'][side]:,.0f}")
        first, *others = each["ms_a_step"]
        ratios = format_spread(each["ratio"]), format_spread(each["cpu_ratio"])
        lines += ["", table, f"{first} by {' + '.join(others)}: {ratios[0]}, processor time {ratios[1]}"]
    return Group(*lines, "", footer(results))
