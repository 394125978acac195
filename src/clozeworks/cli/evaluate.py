"""clozeworks evaluate"""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeworks.cli import against
from clozeworks.cli.arguments import refuse_given
from clozeworks.cli.evaluate_options import BEAMS, Options, check_task_options, limit_task, read_test
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from clozeworks.evaluate.examination import Examination
    from clozeworks.evaluate.mistakes import Mistakes
    from clozeworks.inference.text_encoder import TextEncoder


def run(options: Options) -> None:
    """Measure by what the model was trained for: words, translations, or a task."""
    from clozeworks.cli import named
    from clozeworks.evaluate.text import adapt

    if (options.data is None) == (options.test is None):
        given = "neither --data nor --test" if options.data is None else "both --data and --test"
        raise InputError("clozeworks evaluate", given, "one of them is needed", "for example: --data data")
    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    if options.against is not None:
        against.run(options, encoder)
        return
    if encoder.recipe.task is not None:
        evaluate_task(options, encoder)
        return
    needed, todo = "it is about labelled rows, and the model has no task", "leave it out, or see clozeworks finetune"
    refuse_given(options, ("report", "columns"), needed, todo)
    encoder = adapt(encoder, options.max_length, options.memory, options.rounds)
    if options.test is not None or encoder.recipe.decoder is not None:
        refuse_given(options, ("context", "stride", "max_tokens"), "it is about text of one side", "leave it out")
        evaluate_pairs(options, encoder)
        return
    refuse_given(options, BEAMS, "it is about a model that translates", "leave it out")
    if options.context is not None:
        evaluate_context(options, encoder, options.context)
    else:
        evaluate_heldout(options, encoder)


def evaluate_heldout(options: Options, encoder: TextEncoder) -> None:
    """Held-out text in examples as the model was trained on."""
    from clozeworks.cli.next_command import suggest_command
    from clozeworks.evaluate.text import evaluate_text
    from clozeworks.screen.console import closing, emit, screen
    from clozeworks.screen.heldout import ENGLISH, NEXT, ORDERED, show_heldout

    refuse_given(options, ("stride", "max_tokens"), "it is about a sliding window", "give --context, too")
    assert options.data is not None
    directory = existing(options.data, "a prepared directory")
    with screen(stderr=True).status("reading held-out text"):
        metrics = evaluate_text(encoder, directory, options.seed)
    if options.json:
        emit({"model": options.model, "data": options.data, "split": "heldout", **metrics})
        return
    console = screen()
    ahead = "next_token" in metrics
    console.print(f"{metrics['count']:,} {'' if ahead else 'masked '}tokens of the held-out text of {directory}")
    if "streams" in metrics:
        shape = f"{metrics['streams']} side by side, rows of {metrics['length']}, a memory of {metrics['memory']}"
        console.print(f"read as one text in streams: {shape}")
    console.print()
    show_heldout(console, metrics, NEXT if ahead else ORDERED if "permuted_lm" in metrics else ENGLISH)
    closing(console, None, suggest_command(encoder.recipe, options.model, encoder.tokenizer))


def evaluate_context(options: Options, encoder: TextEncoder, context: int) -> None:
    """Held-out text by a sliding window, and with a memory where the model has one."""
    from rich.progress import Progress

    from clozeworks.cli.next_command import suggest_command
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.evaluate.sliding import evaluate_sliding
    from clozeworks.evaluate.text import check_tokenizer
    from clozeworks.screen.console import closing, emit, screen
    from clozeworks.screen.sliding import show_sliding

    assert options.data is not None
    directory, console = existing(options.data, "a prepared directory"), screen()
    text = Corpus.open(directory, "heldout")
    check_tokenizer(encoder, text)
    hide = options.json or not console.is_terminal
    with Progress(console=screen(stderr=True), disable=hide, transient=True) as progress:

        def watch(name: str, total: int) -> Any:
            task = progress.add_task(name, total=total)
            return lambda count: progress.update(task, completed=count)

        metrics = evaluate_sliding(
            encoder, text, context=context, stride=options.stride, max_tokens=options.max_tokens, watch=watch
        )
    if options.json:
        emit({"model": options.model, "data": options.data, "split": "heldout", **metrics})
        return
    show_sliding(console, metrics, directory)
    closing(console, None, suggest_command(encoder.recipe, options.model, encoder.tokenizer))


def evaluate_pairs(options: Options, encoder: TextEncoder) -> None:
    """A model that translates: metrics of each token, and BLEU of whole translations."""
    from clozeworks.cli.translate import translate_texts
    from clozeworks.metrics.bleu import bleu
    from clozeworks.screen.console import closing, emit, note, screen
    from clozeworks.screen.translations import show_translations
    from clozeworks.train.finetune.plan import require_tokenizer

    if encoder.recipe.decoder is None:
        if options.pairs is not None:
            needed = "a model with a decoder translates, and this one has none"
            raise InputError("--pairs", options.pairs, needed, "pretrain transformer_mini on pairs")
        given, needed = f"{encoder.recipe.name}, a model without a task", "labelled rows show how well a task is solved"
        raise InputError("--test", given, needed, "fine-tune it (clozeworks finetune), or use --data for held-out text")
    tokenizer = require_tokenizer(encoder)
    pairs, metrics, about = read_test(options, encoder, tokenizer)
    console = screen()
    how = {"beams": options.beams, "length_penalty": options.length_penalty}
    translations = translate_texts(encoder, [a for a, _ in pairs], console=console, show=not options.json, **how)
    references = [b for _, b in pairs]
    metrics |= {"accuracy": metrics["next_accuracy"], "translated": len(pairs)}
    metrics |= bleu([one.text for one in translations], references, lowercase=tokenizer.lowercase)
    if options.json:
        emit({"model": options.model, **about, **how, **metrics})
        return
    show_translations(console, metrics, translations, references)
    if options.test is None:
        note(console, "the references are held-out tokens written back as text; --test compares with the text itself")
    closing(console, None, f"clozeworks translate {shlex.quote(options.model)} {shlex.quote(pairs[0][0])}")


def evaluate_task(options: Options, encoder: TextEncoder) -> None:
    """A fine-tuned model on labelled rows."""
    from clozeworks.cli import named
    from clozeworks.core import atomic_io
    from clozeworks.data.tables import balance, read_table
    from clozeworks.evaluate.examination import examine
    from clozeworks.evaluate.mistakes import mistakes
    from clozeworks.evaluate.report import page
    from clozeworks.inference.predict import match_columns
    from clozeworks.screen.console import closing, emit, note, screen
    from clozeworks.screen.task_metrics import show_task_metrics
    from clozeworks.train.finetune.plan import require_tokenizer

    task = limit_task(options, encoder)
    check_task_options(options, task.name)
    tokenizer = require_tokenizer(encoder)
    assert options.test is not None
    file, columns = existing(options.test, "a labelled file"), named.pairs(options.columns, "--columns")
    rows = read_table(file, match_columns(task), task.truth, columns, maybe=task.maybe)
    result = examine(encoder.model, task, rows.table, tokenizer, encoder.kind, options.seed)
    wrong = mistakes(task, result.answers, rows.table)
    baseline = measure_majority(balance(rows.table).counts) if wrong.confusion is not None else {}
    if options.report is not None:
        about = [("model", options.model), ("task", task.name), ("rows", f"{len(rows.table):,} of {options.test}")]
        about += [("always the same", f"{name}: accuracy {share:.4f}") for name, share in baseline.items()]
        title = f"{Path(options.model).name}: {task.name}"
        atomic_io.write_text(Path(options.report), page(title, about, result, wrong))
    if options.json:
        outcome = as_json(task.name, result, wrong, baseline, rows.notes)
        emit({"model": options.model, "test": options.test, **outcome})
        return
    console = screen()
    for text in rows.notes:
        note(console, text)
    console.print(f"{len(rows.table):,} rows of {options.test}\n", soft_wrap=True)
    show_task_metrics(console, result, wrong, baseline)
    place = f"{shlex.quote(options.model)} --test {shlex.quote(options.test)}"
    more = [] if options.report else [f"clozeworks evaluate {place} --report report.html"]
    command = f"clozeworks predict {shlex.quote(options.model)} {shlex.quote(options.test)}"
    closing(console, options.report, command, *more)


def measure_majority(counts: dict[str, int]) -> dict[str, float]:
    """The most frequent class, with the accuracy of always predicting it."""
    name = next(iter(counts))
    return {name: counts[name] / sum(counts.values())}


def as_json(
    name: str, result: Examination, wrong: Mistakes, baseline: dict[str, float], notes: list[str]
) -> dict[str, Any]:
    """What --json prints of labelled rows."""
    matrix = wrong.confusion
    return {
        "task": name,
        "rows": len(result.answers),
        **result.metrics,
        "loss": result.loss,
        "intervals": result.intervals,
        "most_frequent": baseline,
        "classes": {label: each._asdict() for label, each in wrong.classes.items()},
        "confusion": None if matrix is None else {"labels": matrix.labels, "counts": matrix.counts.tolist()},
        "worst": [dataclasses.asdict(each) for each in wrong.worst],
        "notes": notes,
    }
