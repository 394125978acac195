"""clozeworks pretrain"""

import os
import shlex
import sys
from dataclasses import asdict

import torch

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.cli.to_try import to_try
from clozeworks.core.errors import InputError
from clozeworks.core.process_group import LostError, is_distributed
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.continue_from import continue_recipe
from clozeworks.exchange.huggingface import fits
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.model import Model
from clozeworks.recipe import Recipe
from clozeworks.screen.console import closing, emit, facts, note, screen, short, size, span
from clozeworks.train import writers
from clozeworks.train.pretrain import open_data, pretrain
from clozeworks.train.resources.dry_run import Forecast, forecast
from clozeworks.train.run import Result
from clozeworks.train.startup import cluster, processes
from clozeworks.vectors.table import Vectors, load_vectors


def run(options: Options) -> int:
    if options.launch or options.nodes > 1:
        return launch(options)
    device(options.device)
    data = named.weighted(options.data)
    recipe, source, notes = start(options, data)
    words = vectors(options, recipe)
    teacher = named.model(options.teacher, options.parts, options.allow_pickle) if options.teacher else None
    if recipe.train.processes > 1 and not options.dry_run and not is_distributed():
        needed(options)
        return processes.run(options.command, recipe.train.processes)
    main = os.environ.get("RANK", "0") == "0"
    try:
        return train(options, recipe, data, source, teacher, words, notes if main else [])
    except LostError as error:
        print(f"other processes are gone, so this one ends: {error}", file=sys.stderr)
        return processes.LOST


def train(
    options: Options,
    recipe: Recipe,
    data: list,
    source: Model | None,
    teacher: TextEncoder | None,
    words: Vectors | None,
    notes: list[str],
) -> int:
    """In this process, alone or as one of several."""
    console = screen()
    if not options.json:
        for text in notes:
            note(console, text)
    if options.dry_run:
        found = forecast(recipe, data, source, options.device, teacher)
        emit({"recipe": recipe.name, **asdict(found), "notes": notes}) if options.json else tell(found)
        return 0
    needed(options)
    done = pretrain(
        recipe,
        data,
        options.out,
        source=source,
        teacher=teacher,
        device=options.device,
        progress=not options.json,
        console=console,
        writers=writers.named(options.log, options.out),
        words=words,
    )
    if os.environ.get("RANK", "0") != "0":
        pass  # the first process reports
    elif options.json:
        paths = {"run": str(done.run), "checkpoint": str(done.checkpoint)}
        emit({**asdict(done), **paths, "finished": done.finished, "notes": notes + done.notes})
    else:
        report(options, recipe, done)
    return 128 + done.signal if done.signal else 0


def needed(options: Options) -> None:
    if options.out is None:
        raise InputError("clozeworks pretrain", "no --out", "a run needs a directory", "add --out run, or --dry-run")


def launch(options: Options) -> int:
    """Print what starts the processes of several machines."""
    if options.launch is None:
        given = f"{options.nodes} machines"
        raise InputError("--nodes", given, "several are started by torchrun or slurm", "add --launch slurm --dry-run")
    if not options.dry_run:
        raise InputError("--launch", options.launch, "it prints a command and starts nothing", "add --dry-run")
    needed(options)
    count = options.processes or named.recipe(options.recipe, options.set).train.processes
    print(cluster.line(options.launch, options.command, options.nodes, count))
    return 0


def start(options: Options, data: list) -> tuple[Recipe, Model | None, list[str]]:
    """The recipe to train, and the model it goes on from if there is one."""
    if options.source is None:
        return spread(named.recipe(options.recipe, options.set), options), None, []
    encoder = named.model(options.source, options.parts, options.allow_pickle)
    _, tokenizer = open_data(data)
    recipe, encoder, notes = continue_recipe(named.recipe(options.recipe), encoder, tokenizer)
    return spread(named.changed(recipe, options.set), options), encoder.model, notes


def vectors(options: Options, recipe: Recipe) -> Vectors | None:
    """What the table of words begins as; that it never learns is a fact of the recipe."""
    if options.word_vectors is None:
        if options.freeze_word_vectors:
            raise InputError(
                "--freeze-word-vectors",
                "no --word-vectors",
                "it keeps the vectors of a file",
                "add --word-vectors FILE",
            )
        return None
    if options.source is not None:
        needed = "the model brings a table of words that it was trained with"
        raise InputError("--word-vectors", "together with --from", needed, "leave one of them out")
    recipe.encoder.embed.frozen |= options.freeze_word_vectors
    return load_vectors(existing(options.word_vectors, "a file of vectors"))


def spread(recipe: Recipe, options: Options) -> Recipe:
    if options.processes is not None:
        recipe.train.processes = options.processes
    return recipe


def device(name: str) -> None:
    if name == "auto":
        return
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        given = f"{name} ({str(error).splitlines()[0]})"
        raise InputError("--device", given, "a device of this machine is needed", "see clozeworks doctor") from None


def report(options: Options, recipe: Recipe, done: Result) -> None:
    console = screen()
    console.print()
    if not done.finished:
        console.print(f"stopped at step {done.step:,} of {done.steps:,}; run the same command again to go on")
        return
    rows = [("trained", f"{done.steps:,} steps, {short(done.tokens)} tokens, {span(done.seconds)}")]
    if done.heldout:
        told = [f"{name.replace('_', ' ')} {value:.1%}" for name, value in done.heldout.items() if "accuracy" in name]
        rows.append(("held-out", ", ".join([f"loss {done.heldout['loss']:.3f}", *told])))
    console.print(facts(rows))
    run, first = shlex.quote(str(done.run)), shlex.quote(options.data[0].rpartition(":")[0] or options.data[0])
    closing(
        console,
        f"{done.run}: recipe.json, metrics.jsonl, {done.checkpoint.name}/",
        f"clozeworks evaluate {run} --data {first}",
        to_try(recipe, str(done.run), Tokenizer.load(done.run)),
        f"clozeworks export {run} --to {'hf' if fits(recipe) else 'clozeworks'} --out my-model",
    )


def tell(found: Forecast) -> None:
    console = screen()
    free = "" if found.memory_free_bytes is None else f"; {size(found.memory_free_bytes)} are free"
    rows = [
        ("tokens", f"{short(found.tokens)} in {found.steps:,} steps"),
        ("epochs", f"{found.epochs:,.1f} over {short(found.corpus_tokens)} tokens of text"),
        ("time", f"{span(found.seconds)} at {found.tokens_per_second:,.0f} tokens a second, measured here just now"),
        ("memory", f"about {size(found.memory_bytes)} for {found.parameters:,} parameters{free}"),
        ("disk", f"{size(found.disk_bytes)} for the last checkpoints"),
    ]
    console.print(facts(rows))
    closing(console, None, "the same command without --dry-run, with --out RUN")
