"""clozeworks pretrain"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from clozeworks.cli.arguments import (
    MODEL,
    RECIPE,
    DeviceOptions,
    Idle,
    JsonOptions,
    PickleOptions,
    argument,
    changes,
    choice,
    integer,
    option,
    positive,
    random_seed,
)
from clozeworks.cli.paths import existing
from clozeworks.core.bounds import MOST_PROCESSES
from clozeworks.core.durations import read_duration
from clozeworks.core.errors import InputError
from clozeworks.train.listing import RECIPE as RECIPE_FILE
from clozeworks.train.writers import KINDS

if TYPE_CHECKING:
    from clozeworks.inference.text_encoder import TextEncoder
    from clozeworks.recipe import Recipe
    from clozeworks.train.resources.dry_run import Forecast
    from clozeworks.train.run import Result
    from clozeworks.train.startup.setup import Start
    from clozeworks.vectors.table import Vectors

WORTH_MEASURING = 300  # CPU seconds of a budget above which seventeen seconds of measuring pay


@dataclass(kw_only=True)
class Options(JsonOptions, PickleOptions, DeviceOptions):
    """Pretrain a recipe on prepared text

    Interrupted? The same command resumes from the last checkpoint and ends with the same weights. Ctrl-C and SIGTERM
    finish the step, save and end with exit code 130 or 143; a second one stops at once. A finished run ends with 0.
    --set reaches every field of the recipe: train.precision=bf16 (mixed precision), train.micro_tokens=4096 (gradient
    accumulation in pieces of so many tokens), train.recompute=true (gradient checkpointing), train.warmup=0.1.

    clozeworks pretrain cloze --data data --out run --budget 10m
    clozeworks pretrain bert_mini --data data --out run
    clozeworks pretrain bert_mini --data A:0.7 B:0.3 --out run --steps 2000 --learning-rate 5e-4
    clozeworks pretrain bert_mini --data data --out run --start neighbours,counted
    clozeworks pretrain bert_mini --from HF_DIR --data data --out run
    clozeworks pretrain distilbert_mini --teacher run --data data --out small
    clozeworks pretrain bert_mini --data data --out run --processes 2
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(
            ("parts", "allow_pickle"),
            lambda options: options.source is None and options.teacher is None,
            "it is about the model of --from or --teacher, and there is none",
        ),
        Idle(("start",), lambda options: options.source is not None, "with --from no weights are fresh"),
    )
    recipe: str = argument("RECIPE", RECIPE)
    data: list[str] = option(
        "what prepare wrote; several directories are mixed by weight", required=True, nargs="+", metavar="DIR[:WEIGHT]"
    )
    out: str | None = option("the run directory", metavar="RUN")
    steps: int | None = integer("training steps (train.steps)", otherwise="the recipe's")
    learning_rate: float | None = option(
        "peak learning rate (train.learning_rate)",
        type=positive,
        metavar="R",
        otherwise="the recipe's; with --from a tenth of it, 1e-4 at most",
    )
    batch_tokens: int | None = integer("batch size: tokens of a step (train.batch_tokens)", otherwise="the recipe's")
    max_length: int | None = integer(
        "sequence length: tokens of an example at most (objective.segments.length)", otherwise="the recipe's"
    )
    seed: int | None = random_seed("random seed (train.seed)", otherwise="the recipe's")
    budget: str | None = option(
        "CPU time of the run, such as 10m: sets its steps, and the size where the recipe is cloze", metavar="TIME"
    )
    start: str | None = option(
        "how fresh weights begin (start): neighbours, counted, skipgram, distilled, fitted, prior, several with "
        "commas, or none",
        metavar="NAMES",
        otherwise="the recipe's",
    )
    set: list[str] = changes("encoder.stack.depth=4 or train.precision=bf16")
    source: str | None = option(
        "continue pretraining from a run, a model or a Hugging Face directory; the encoder is then that one",
        flag="--from",
        metavar="DIR",
    )
    teacher: str | None = option(f"for recipes that distil: the teacher, {MODEL}", metavar="DIR")
    word_vectors: str | None = option("file of word vectors that the token embeddings begin as", metavar="FILE")
    freeze_word_vectors: bool = option("keep the token embeddings of --word-vectors as they are", False)
    parts: str | None = option("a file with parts of your own, of --from and --teacher", metavar="FILE.py")
    dry_run: bool = option("print tokens, epochs, hours and memory; train nothing", False)
    log: list[str] = choice("write the metrics to this tracker, too; may be repeated", *KINDS, repeat=True)
    processes: int | None = integer(
        "data-parallel processes on this machine (train.processes)", most=MOST_PROCESSES, otherwise="the recipe's, 1"
    )
    launch: str | None = choice(
        "with --dry-run: print what starts --processes on each of several machines", "slurm", "torchrun"
    )
    nodes: int = integer("number of machines, for --launch", 1)

    def wants_verdict(self) -> bool:
        """A run that plans by time: bf16, where it is faster, has room for more steps."""
        self.check_budget()
        if self.budget is None or self.device not in ("auto", "cpu"):
            return False
        begun = self.out is not None and (Path(self.out) / RECIPE_FILE).exists()
        return not begun and read_duration("--budget", self.budget) >= WORTH_MEASURING

    def check_budget(self) -> None:
        """Refuse what would choose the steps, too, or make their time another."""
        if self.budget is None:
            return
        fields = {change.partition("=")[0].strip() for change in self.set}
        several = self.processes not in (None, 1) or "train.processes" in fields
        others = {
            "--from": self.source is not None,
            "train.steps": self.steps is not None or "train.steps" in fields,
            "train.processes": several,
        }
        for other in (name for name, given in others.items() if given):
            needed = "it is the time of one process" if several else "it chooses the steps of a new model"
            raise InputError("--budget", f"together with {other}", needed, "leave one out")


def run(options: Options) -> int:
    """Train in this process, alone or as one of several, or start several that do."""
    from clozeworks.cli import named
    from clozeworks.core.process_group import LostError, is_distributed
    from clozeworks.screen.console import emit, note, screen
    from clozeworks.train import writers
    from clozeworks.train.pretrain import pretrain
    from clozeworks.train.resources.dry_run import forecast
    from clozeworks.train.startup import processes

    if options.launch or options.nodes > 1:
        return launch(options)
    named.check_device(options.device)
    data = named.weighted(options.data)
    recipe, start, notes = begin(options, data)
    if recipe.train.processes > 1 and not options.dry_run and not is_distributed():
        need_out(options)
        return processes.run(options.words, recipe.train.processes)
    notes = notes if is_first_process() else []
    if not options.json:
        for text in notes:
            note(screen(), text)
    if options.dry_run:
        cost = forecast(recipe, data, start.source, options.device, start.teacher)
        emit({"recipe": recipe.name, **asdict(cost), "notes": notes}) if options.json else show_forecast(cost)
        return 0
    out = need_out(options)
    try:
        done = pretrain(
            recipe,
            data,
            out,
            source=start.source,
            teacher=start.teacher,
            device=options.device,
            progress=not options.json,
            console=screen(),
            writers=writers.named(options.log, out),
            words=start.words,
        )
    except LostError as error:
        print(f"other processes are gone, so this one ends: {error}", file=sys.stderr)
        return processes.LOST
    if is_first_process():
        report(options, recipe, done, notes)
    return 128 + done.signal if done.signal else 0


def is_first_process() -> bool:
    """Whether this process reports: of several that train together, one does."""
    return os.environ.get("RANK", "0") == "0"


def need_out(options: Options) -> str:
    """The run directory, which everything but a dry run needs."""
    if options.out is None:
        raise InputError("clozeworks pretrain", "no --out", "a run needs a directory", "add --out run, or --dry-run")
    return options.out


def launch(options: Options) -> int:
    """Print what starts the processes of several machines."""
    from clozeworks.cli import named
    from clozeworks.train.startup import cluster

    if options.launch is None:
        given = f"{options.nodes} machines"
        raise InputError("--nodes", given, "several are started by torchrun or slurm", "add --launch slurm --dry-run")
    if not options.dry_run:
        raise InputError("--launch", options.launch, "it prints a command and starts nothing", "add --dry-run")
    need_out(options)
    recipe = named.recipe(options.recipe, changes_of(options))
    print(cluster.line(options.launch, options.words, options.nodes, recipe.train.processes))
    return 0


def begin(options: Options, data: list) -> tuple[Recipe, Start, list[str]]:
    """The recipe to train, what its weights begin from, and what to say of that."""
    from clozeworks.cli import named
    from clozeworks.exchange.continue_from import continue_recipe, lower_learning_rate
    from clozeworks.train.pretrain import open_data
    from clozeworks.train.startup.setup import Start

    teacher = named.model(options.teacher, options.parts, options.allow_pickle) if options.teacher else None
    recipe, source, notes = named_recipe(options, data, teacher)
    if options.source is not None:
        encoder = named.model(options.source, options.parts, options.allow_pickle)
        recipe, encoder, notes = continue_recipe(recipe, encoder, open_data(data)[1])
        source = encoder.model
    changes = changes_of(options)
    recipe = named.changed(recipe, changes)
    if source is not None and not any(change.partition("=")[0].strip() == "train.learning_rate" for change in changes):
        notes += lower_learning_rate(recipe)
    if options.max_length is not None and recipe.train.phases:
        given, needed = f"{options.max_length} for {recipe.name}", "each of its train.phases has a sequence length"
        raise InputError("--max-length", given, needed, "set these, or add --set 'train.phases=[]'")
    words = load_word_vectors(options, recipe)
    return recipe, Start(source=source, teacher=teacher, words=words), notes


def named_recipe(options: Options, data: list, teacher: TextEncoder | None) -> tuple[Recipe, None, list[str]]:
    """What the first argument names, fitted to --budget where that is given."""
    from clozeworks.cli import named
    from clozeworks.train.resources.budget import fit_to_budget

    sized = options.recipe == "cloze"
    if options.budget is None:
        if sized:
            needed = "its size is chosen by --budget"
            raise InputError("clozeworks pretrain", "cloze", needed, "add --budget 10m, or name cloze_mini")
        return named.recipe(options.recipe), None, []
    options.check_budget()
    recipe = None if sized else named.changed(named.recipe(options.recipe), changes_of(options))
    recipe, notes = fit_to_budget(recipe, data, options.budget, options.out, options.device, teacher)
    return recipe, None, notes


def load_word_vectors(options: Options, recipe: Recipe) -> Vectors | None:
    """What the token embeddings begin as; that they are frozen is a field of the recipe."""
    from clozeworks.vectors.table import load_vectors

    if options.word_vectors is None:
        if options.freeze_word_vectors:
            todo = "add --word-vectors FILE"
            raise InputError("--freeze-word-vectors", "no --word-vectors", "it keeps the vectors of a file", todo)
        return None
    if options.source is not None:
        needed = "the model brings a table of words that it was trained with"
        raise InputError("--word-vectors", "together with --from", needed, "leave one of them out")
    recipe.encoder.embed.frozen |= options.freeze_word_vectors
    return load_vectors(existing(options.word_vectors, "a file of vectors"))


def report(options: Options, recipe: Recipe, done: Result, notes: list[str]) -> None:
    """What was trained, and what to do with it."""
    from clozeworks.cli.next_command import suggest_command
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.exchange.huggingface import fits
    from clozeworks.screen.console import closing, emit, facts, screen, short, span

    if options.json:
        paths = {"run": str(done.run), "checkpoint": str(done.checkpoint)}
        emit({**asdict(done), **paths, "finished": done.finished, "notes": notes + done.notes})
        return
    console = screen()
    console.print()
    if not done.finished:
        console.print(f"stopped at step {done.step:,} of {done.steps:,}; run the same command again to resume")
        return
    rows = [("trained", f"{done.steps:,} steps, {short(done.tokens)} tokens, {span(done.seconds)}")]
    if done.heldout:
        scores = [f"{name.replace('_', ' ')} {value:.1%}" for name, value in done.heldout.items() if "accuracy" in name]
        rows.append(("held-out", ", ".join([f"loss {done.heldout['loss']:.3f}", *scores])))
    console.print(facts(rows))
    run, first = shlex.quote(str(done.run)), shlex.quote(options.data[0].rpartition(":")[0] or options.data[0])
    closing(
        console,
        f"{done.run}: recipe.json, metrics.jsonl, {done.checkpoint.name}/",
        f"clozeworks evaluate {run} --data {first}",
        suggest_command(recipe, str(done.run), Tokenizer.load(done.run)),
        f"clozeworks export {run} --to {'hf' if fits(recipe) else 'clozeworks'} --out my-model",
    )


def show_forecast(cost: Forecast) -> None:
    """Tokens, epochs, time, memory and disk of a run that has not begun."""
    from clozeworks.screen.console import closing, facts, screen, short, size, span

    console = screen()
    free = "" if cost.memory_free_bytes is None else f"; {size(cost.memory_free_bytes)} are free"
    rows = [
        ("tokens", f"{short(cost.tokens)} in {cost.steps:,} steps"),
        ("epochs", f"{cost.epochs:,.1f} over {short(cost.corpus_tokens)} tokens of text"),
        ("time", f"{span(cost.seconds)} at {cost.tokens_per_second:,.0f} tokens a second, measured here just now"),
        ("memory", f"about {size(cost.memory_bytes)} for {cost.parameters:,} parameters{free}"),
        ("disk", f"{size(cost.disk_bytes)} for the last checkpoints"),
    ]
    console.print(facts(rows))
    closing(console, None, "the same command without --dry-run, with --out RUN")


def changes_of(options: Options) -> list[str]:
    """Every PATH=VALUE: those of options with a name of their own first, so that --set has the last word."""
    from clozeworks.starts.initializer import write_initializers

    own = {
        "train.steps": options.steps,
        "train.learning_rate": options.learning_rate,
        "train.batch_tokens": options.batch_tokens,
        "train.seed": options.seed,
        "objective.segments.length": options.max_length,
        "train.processes": options.processes,
        "start": None if options.start is None else write_initializers(options.start),
    }
    return [*(f"{path}={value}" for path, value in own.items() if value is not None), *options.set]
