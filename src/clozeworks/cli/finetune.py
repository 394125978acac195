"""clozeworks finetune"""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from clozeworks.cli.arguments import (
    MODEL,
    ColumnOptions,
    DeviceOptions,
    JsonOptions,
    PickleOptions,
    argument,
    changes,
    choice,
    integer,
    number,
    one_of,
    option,
    positive,
    random_seed,
)
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError
from clozeworks.tasks.names import TASKS, suggest_task
from clozeworks.train.finetune.options import Architecture, Features, FinetuneOptions

if TYPE_CHECKING:
    from rich.console import Console

    from clozeworks.evaluate.baselines import Baselines
    from clozeworks.tasks.task import Task
    from clozeworks.train.finetune.forecast import FinetuneForecast
    from clozeworks.train.finetune.plan import Plan
    from clozeworks.train.finetune.result import FinetuneResult

READ = {
    "SumLayers": "the last layers summed",
    "JoinLayers": "the last layers concatenated",
    "ScalarMix": "a mix of all layers",
}
PLACES = {"mean": "the mean of all tokens", "concat": "the last token, the largest units and the mean"}
DENSE = {"pooler": "the encoder's pooler", "own": "a layer of its own"}
BASELINES = {
    "majority": "accuracy of always predicting the most frequent class",
    "tfidf_words": "accuracy of TF-IDF with logistic regression, n-grams of words",
    "tfidf_characters": "accuracy of TF-IDF with logistic regression, n-grams of characters",
}
SHOWN = 12  # labels that are shown with their counts


@dataclass(kw_only=True)
class Options(JsonOptions, PickleOptions, DeviceOptions, ColumnOptions):
    """Fine-tune a model on labelled rows

    Tasks: classify (text classification), pair (of two texts, such as natural language inference), tag (sequence
    labelling: named entity recognition, part-of-speech tagging), qa (extractive question answering), choice (multiple
    choice), seq2seq (translation, summarization), embed (sentence embedding with a bi-encoder). Reads JSON lines, JSON
    (also SQuAD's), .csv, .tsv, CoNLL, .conllu, .parquet, .arrow and .feather files, plain or compressed (.gz .xz .bz2
    .zst); docs/labelled_data.md says which columns a task needs. Without --dev a
    tenth of the rows is held out; of fewer than 1,000 nothing is, all are learned from, and --folds 5 estimates the
    metrics by cross-validation. Interrupted? The same command resumes and ends with the same weights.

    clozeworks finetune classify --model run --train train.jsonl --dev dev.jsonl --out task
    clozeworks finetune tag --model HF_DIR --train train.conll --out ner --learning-rate 3e-5 --epochs 5
    clozeworks finetune classify --model HF_DIR --train train.csv --columns text=review label=stars --out task
    clozeworks finetune classify --model run --train train.jsonl --out task --freeze --features concat
    clozeworks finetune classify --model HF_DIR --train few.csv --out task --folds 5
    clozeworks finetune pair --model run --train train.jsonl --out task --continue-pretraining 500 --seeds 3
    """

    task: str = argument("TASK", ", ".join(TASKS), type=one_of(*TASKS, advice=suggest_task))
    model: str = option(f"the model to fine-tune: {MODEL}", required=True, metavar="M")
    train: str = option("labelled rows to train on", required=True, metavar="FILE")
    dev: str | None = option("labelled rows to evaluate on", metavar="FILE", otherwise="see --dev-share")
    dev_share: float | None = option(
        "share of --train to put aside and evaluate on, such as 0.1",
        type=number,
        metavar="X",
        otherwise="0.1; 0 for fewer than 1,000 rows, unless --seeds or --patience choose by them",
    )
    folds: int | None = integer(
        "K-fold cross-validation for the metrics: K models more; that of RUN learns from all rows",
        least=2,
        metavar="K",
    )
    out: str | None = option("the run directory, a model directory in the end", metavar="RUN")
    epochs: int | None = integer("passes over the training rows", otherwise="3, more for few rows")
    learning_rate: float | None = option(
        "peak learning rate (train.learning_rate)",
        type=positive,
        metavar="R",
        otherwise="as the model and task suggest",
    )
    batch_size: int = integer("rows of a step", 32)
    max_length: int | None = integer("sequence length: tokens of an example at most", otherwise="512, or the model's")
    seed: int | None = random_seed("random seed (train.seed)", otherwise=0)
    seeds: int = integer("N runs with different seeds; the best is the model of RUN", 1, most=1000)
    patience: int | None = integer("early stopping: end after N epochs without a better metric", otherwise="never")
    set: list[str] = changes("train.warmup=0.1 or task.crf=CRF")
    freeze: bool = option("train the head alone, on features of the frozen encoder", False)
    features: str = choice(
        "what the head reads: the last layer, the last four summed or concatenated, a learned mix of all",
        *get_args(Features),
        default="last",
    )
    from_scratch: bool = option("begin with random weights, to compare: what is pretraining worth?", False)
    word_vectors: str | None = option(
        "with --from-scratch: file of word vectors that the token embeddings begin as", metavar="FILE"
    )
    freeze_word_vectors: bool = option("keep the token embeddings of --word-vectors as they are", False)
    layer_decay: float | None = option(
        "layer-wise learning rate decay: each layer at X times the rate of the one above, such as 0.9",
        type=number,
        metavar="X",
    )
    gradual_unfreezing: bool = option("unfreeze one layer more each epoch, from the top, lower ones slower", False)
    continue_pretraining: int | None = integer(
        "first continue pretraining on the text of --train (task-adaptive pretraining)", metavar="STEPS"
    )
    text: list[str] = option(
        "unlabelled text of the domain, files or what prepare wrote: pretraining continues with it, too",
        nargs="+",
        metavar="TEXT",
        otherwise="none; with it 500 steps",
    )
    unlabelled: str | None = option(
        "rows without labels, learned as a teacher answers them: the model of the labelled rows, with TF-IDF",
        metavar="FILE",
    )
    lm_weight: float = option(
        "of causal models: weight of the language-model loss beside the task's, such as 0.5",
        0.0,
        type=number,
        metavar="W",
        otherwise="0",
    )
    architecture: str = choice(
        "seq2seq: an encoder with a decoder made of it, or one stack as a prefix language model",
        *get_args(Architecture),
        default="decoder",
    )
    decoder: str | None = option(
        "seq2seq: the model that the decoder begins as", metavar="M", otherwise="that of --model"
    )
    limit: int | None = integer("train on about N of the rows", otherwise="all")
    dry_run: bool = option("say what was read, what would be done, its time and memory; train nothing", False)
    parts: str | None = option("a file with parts of your own that the model is made of", metavar="FILE.py")


def run(options: Options) -> int:
    """Plan the fine-tuning, carry it out, and report."""
    from clozeworks.cli import named
    from clozeworks.screen.console import emit, screen
    from clozeworks.train.finetune.entry import plan
    from clozeworks.train.finetune.forecast import forecast_finetuning
    from clozeworks.train.finetune.run import run_plan

    named.check_device(options.device)
    if options.out is None and not options.dry_run:
        raise InputError("clozeworks finetune", "no --out", "a run needs a directory", "add --out run, or --dry-run")
    asked = finetune_options(options)
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    train = existing(options.train, "a labelled file")
    dev = None if options.dev is None else existing(options.dev, "a labelled file")
    if options.unlabelled is not None:
        existing(options.unlabelled, "a file of rows")
    for text in options.text:
        existing(text, "text, or what prepare wrote")
    made = plan(options.task, encoder, train, dev, named.pairs(options.columns, "--columns"), asked)
    console = screen()
    if not options.json:
        show_plan(console, made)
    if options.out is None or options.dry_run:
        forecast, notes = forecast_finetuning(made, options.device)
        if options.json:
            emit({**as_json(made), **dataclasses.asdict(forecast), "notes": made.notes + notes})
        else:
            show_forecast(console, forecast, notes)
        return 0
    done = run_plan(made, options.out, device=options.device, progress=not options.json, console=console)
    beside = compare(made, done)
    if options.json:
        emit(result_as_json(options, made, done, beside))
    else:
        report(console, options, done, beside)
    return 128 + done.signal if done.signal else 0


def finetune_options(options: Options) -> FinetuneOptions:
    """The options as the library takes them; --set has the last word."""
    from clozeworks.cli import named

    names = [field.name for field in dataclasses.fields(FinetuneOptions) if hasattr(options, field.name)]
    own = {"train.learning_rate": options.learning_rate, "train.seed": options.seed}
    changes = {path: str(value) for path, value in own.items() if value is not None}
    changes |= named.pairs(options.set, "--set")
    return FinetuneOptions(**{name: getattr(options, name) for name in names}, changes=changes)


def show_plan(console: Console, plan: Plan) -> None:
    """What was read, and what will be done."""
    from clozeworks.data.tables import balance
    from clozeworks.screen.console import facts, note

    for text in plan.notes:
        note(console, text)
    train, tune = plan.recipe.train, plan.recipe.finetune
    assert tune is not None
    epochs = "1 epoch" if tune.epochs == 1 else f"{tune.epochs} epochs"
    begin = "fresh weights" if plan.options.from_scratch else plan.encoder.recipe.name
    held = f", {len(plan.dev):,} to measure on" if plan.dev else ""
    held += f", measured in {len(plan.folds)} folds" if plan.folds else ""
    rows = [("rows", f"{len(plan.train):,} to learn from{held}")]
    rows.append(("columns", ", ".join(f"{name} = {column}" for name, column in plan.columns.items())))
    if counts := balance(plan.train).counts:
        rows.append(("labels", list_labels(counts)))
    learns = "all but its words learns" if plan.recipe.encoder.embed.frozen else "all of it learns"
    rows += [
        ("encoder", f"{begin}, {'frozen' if tune.freeze else learns}, texts of {plan.task.template.length}"),
        ("head", describe_head(plan.task)),
        ("training", f"{epochs}, {train.steps:,} steps of {tune.batch_size}, rate {train.learning_rate:.1e}"),
    ]
    if plan.unlabelled is not None:
        rows.append(("then", f"again with {len(plan.unlabelled):,} rows without labels, as that model answers them"))
    if steps := plan.options.pretraining_steps:
        texts = "these texts and those of --text" if plan.options.text else "these texts"
        at = [name for name, _ in rows].index("training")
        rows.insert(at, ("before", f"{steps:,} steps of pretraining on {texts}"))
    console.print(facts(rows))
    console.print()


def show_forecast(console: Console, forecast: FinetuneForecast, notes: list[str]) -> None:
    """Time and memory of a run that has not begun."""
    from clozeworks.screen.console import closing, facts, note, short, size, span

    free = "" if forecast.memory_free_bytes is None else f"; {size(forecast.memory_free_bytes)} are free"
    speed = f"{short(forecast.tokens)} tokens at {forecast.tokens_per_second:,.0f} a second, measured here just now"
    rows = [
        ("time", f"about {span(forecast.seconds)}: {speed}"),
        ("memory", f"about {size(forecast.memory_bytes)} for {forecast.parameters:,} parameters{free}"),
    ]
    console.print(facts(rows))
    for text in notes:
        note(console, text)
    closing(console, None, "the same command without --dry-run, with --out RUN")


def list_labels(counts: dict[str, int]) -> str:
    """Labels with the number of rows that have them, the most frequent first."""
    shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:SHOWN])
    return f"{shown} and {len(counts) - SHOWN} more" if len(counts) > SHOWN else shown


def describe_head(task: Task) -> str:
    """What the head reads, and how many labels it distinguishes."""
    summary = task.head_parts().summary
    reading = type(task.reading).__name__
    parts = [] if reading == "Reading" else [READ[reading]]
    parts += [] if task.task_encoder is None else [f"a task encoder (BiLSTM) of {task.task_encoder.cells} cells"]
    if summary is not None:
        parts.append(PLACES.get(summary.place, f"the {summary.place} token"))
        parts += [DENSE[summary.dense]] if summary.dense else []
    parts += task.describe()
    parts += [f"{len(task.labels)} labels"] if task.labels else []
    return f"{task.name}: {', '.join(parts)}" if parts else task.name


def as_json(plan: Plan) -> dict[str, Any]:
    """What --json prints of a plan."""
    from clozeworks.data.tables import balance

    train, tune = plan.recipe.train, plan.recipe.finetune
    return {
        "task": plan.task.name,
        "rows": plan.rows,
        "columns": plan.columns,
        "labels": balance(plan.train).counts,
        "epochs": tune and tune.epochs,
        "steps": train.steps,
        "learning_rate": train.learning_rate,
    }


def compare(plan: Plan, done: FinetuneResult) -> Baselines | None:
    """What needs no model at all, on the same rows, beside a finished classifier; none for other tasks."""
    from clozeworks.evaluate.baselines import measure_baselines, measure_folds
    from clozeworks.train.finetune.folds import divide_folds

    if done.finished and plan.folds:
        return measure_folds(plan.task, divide_folds(plan))
    if not done.finished or plan.dev is None:
        return None
    return measure_baselines(plan.task, plan.train, plan.dev)


def result_as_json(options: Options, plan: Plan, done: FinetuneResult, beside: Baselines | None) -> dict[str, Any]:
    """The one object of --json."""
    seeds = [{"seed": seed, **metrics} for seed, metrics in done.seeds.items()]
    more = {"seeds": seeds, "mean": done.mean, "spread": done.spread}
    place = {"model": options.model, "run": str(done.out), "finished": done.finished}
    more |= {"folds": done.folds} if done.folds else {}
    more |= {"teacher": done.teacher} if done.teacher else {}
    metrics = {**done.metrics, "intervals": done.intervals}
    notes = [*done.notes, *(beside.notes if beside else [])]
    return {**as_json(plan), **place, **metrics, **more, "baselines": beside.metrics if beside else {}, "notes": notes}


def report(console: Console, options: Options, done: FinetuneResult, beside: Baselines | None) -> None:
    """The metrics, with confidence intervals and over the seeds, baselines below, and what to do with the model."""
    from clozeworks.screen.console import closing, facts, note

    console.print()
    if not done.finished:
        console.print("stopped; run the same command again to resume")
        return
    rows = []
    if done.folds:
        others = f"each by the one of {done.folds} models that did not learn from it"
        rows.append(("measured", f"{done.rows['train']:,} rows, {others}"))
    for name, value in done.metrics.items():
        low, high = done.intervals[name]
        rows.append((name.replace("_", " "), f"{value:.4f}   95 % of resampled rows: {low:.4f} to {high:.4f}"))
        if name in done.spread:
            rows.append(("", f"{done.mean[name]:.4f} +- {done.spread[name]:.4f} over {len(done.seeds)} seeds"))
    if done.teacher:
        about = "of the model of the labelled rows alone, which taught this one"
        rows.append(("teacher", f"{next(iter(done.teacher.values())):.4f}   {next(iter(done.teacher))} {about}"))
    if beside is not None:
        rows += [("baseline", f"{value:.4f}   {BASELINES[name]}") for name, value in beside.metrics.items()]
    console.print(facts(rows))
    for text in beside.notes if beside else []:
        note(console, text)
    run = shlex.quote(str(done.out))
    closing(
        console,
        f"{done.out}: recipe.json, model.safetensors, tokenizer.json",
        f"clozeworks predict {run} {shlex.quote(str(options.dev or options.train))}",
        f"clozeworks evaluate {run} --test FILE",
    )
