"""Carrying out a plan: folds and pretraining on the task's text where that is wished, a run for each seed, the best one
kept."""

import copy
import dataclasses
import os
from pathlib import Path
from typing import Any

from rich.console import Console

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.evaluate.examination import examine
from clozeworks.exchange import files, tensors
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.train import metrics_log, run_dir
from clozeworks.train.finetune.continue_pretraining import continue_pretraining
from clozeworks.train.finetune.folds import FOLDS, answer_fold, divide_folds, plan_fold, score_folds
from clozeworks.train.finetune.plan import Plan
from clozeworks.train.finetune.result import FinetuneResult
from clozeworks.train.finetune.self_training import plan_student, plan_teacher
from clozeworks.train.finetune.seq2seq import join_models
from clozeworks.train.finetune.train import describe_table, finetune_run
from clozeworks.train.run import Result

SEEDS = "seeds.json"


def run_plan(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    device: str = "auto",
    progress: bool = True,
    console: Console | None = None,
) -> FinetuneResult:
    """Train as planned; the same call resumes where it stopped, and in the end `out` is a model directory."""
    how: dict[str, Any] = {"device": device, "progress": progress, "console": console}
    return (cross_validate if plan.folds else train_all)(plan, Path(out), **how)


def cross_validate(plan: Plan, run: Path, **how: Any) -> FinetuneResult:
    """The model of all rows, with the metrics of models that learned from all folds but one, in directories of the run;
    pretraining that continues does so with the texts of their own rows."""
    now = {"tokenizer": plan.tokenizer.fingerprint, "data": [describe_table(plan.train)]}
    first = run if plan.unlabelled is None else run / run_dir.TEACHER
    run_dir.expect(run)
    run_dir.compare(first, plan.recipe, now, {})  # before the folds are trained, and again by the run of all rows
    answers, folds = [], len(plan.folds)
    for number, (train, test) in enumerate(divide_folds(plan), start=1):
        tuned = train_all(plan_fold(plan, train), run / f"{run_dir.FOLD}{number}", **how)
        if not tuned.finished:
            return dataclasses.replace(tuned, out=run, rows=plan.rows, folds=folds)
        answers.append(answer_fold(tuned.model, test))
    tuned = train_all(plan, run, **how)
    if not tuned.finished:
        return dataclasses.replace(tuned, folds=folds)
    scores = score_folds(plan, answers)
    measured = {"metrics": scores.metrics, "intervals": scores.intervals}
    atomic_io.write_json(run / FOLDS, {"folds": folds, "rows": plan.rows["train"], **measured})
    return dataclasses.replace(tuned, folds=folds, **measured)


def train_all(plan: Plan, run: Path, **how: Any) -> FinetuneResult:
    """A run of each seed on all rows of the plan."""
    several = plan.options.seeds > 1
    _expect(run, several)
    source, signal = plan.encoder, 0
    if plan.options.pretraining_steps:
        if not several:
            run_dir.expect(run)
        done, source = continue_pretraining(plan, run, **how)
        if not done.finished:
            return FinetuneResult(
                run, plan.task.name, plan.rows, {}, notes=[*plan.notes, *done.notes], signal=done.signal
            )
    rows, teacher = plan.rows, dict[str, float]()
    if plan.unlabelled is not None:
        if not several:
            run_dir.expect(run)
        place = run / run_dir.TEACHER
        taught = train_all(plan_teacher(plan, source), place, **how)
        if not taught.finished:
            return dataclasses.replace(taught, out=run, rows=rows)
        plan, teacher = plan_student(plan, source, taught.model, place), taught.metrics
        source = plan.encoder
    first, runs = plan.recipe.train.seed, {}
    for seed in range(first, first + plan.options.seeds):
        place = run / f"seed-{seed}" if several else run
        runs[seed] = done = run_seed(plan, place, seed, None if plan.options.from_scratch else source, **how)
        signal = done.signal
        if not done.finished:
            break
    notes = [*plan.notes, *(note for done in runs.values() for note in done.notes)]
    tuned = FinetuneResult(
        out=run,
        task=plan.task.name,
        rows=rows,
        runs=runs,
        teacher=teacher,
        notes=list(dict.fromkeys(notes)),
        signal=signal,
        parts=(type(plan.task),),
    )
    return _evaluate_best(plan, tuned, several) if tuned.finished else tuned


def run_seed(plan: Plan, place: Path, seed: int, source: TextEncoder | None, **how: Any) -> Result:
    """The run of one seed."""
    recipe = copy.deepcopy(plan.recipe)
    recipe.train.seed = seed
    begin, notes = source, list[str]()
    if source is not None and plan.decoder is not None:
        begin, notes = join_models(recipe, source, plan.decoder)
    how |= {"source": begin, "examples": plan.examples, "words": plan.word_vectors}
    result = finetune_run(recipe, plan.tokenizer, plan.train, plan.dev, place, **how)
    result.notes.extend(notes)
    return result


def _evaluate_best(plan: Plan, tuned: FinetuneResult, several: bool) -> FinetuneResult:
    """The best of the seeds as the model of the directory, and its metrics."""
    rows = {seed: metrics_log.read(done.run / run_dir.METRICS) for seed, done in tuned.runs.items()}
    by_seed = {seed: metrics_log.last_metrics(rows[seed], done.best or 0) or {} for seed, done in tuned.runs.items()}
    if several:
        metric = plan.task.metric
        best = max(by_seed, key=lambda n: (by_seed[n].get(metric, 0.0), -(by_seed[n].get("loss") or 0.0), -n))
        _publish(tuned.runs[best].run, tuned.out)
        atomic_io.write_json(
            tuned.out / SEEDS, {"best": best, "metrics": {str(n): each for n, each in by_seed.items()}}
        )
    if plan.dev is None:
        return tuned
    task = tuned.model.recipe.task
    assert task is not None
    scores = examine(tuned.model.model, task, plan.dev, plan.tokenizer, tuned.model.kind)
    return dataclasses.replace(tuned, metrics=scores.metrics, intervals=scores.intervals, seeds=by_seed)


def _publish(run: Path, out: Path) -> None:
    for name, content in run_dir.model_files(run).items():
        atomic_io.write_bytes(out / name, content)
    with atomic_io.file(out / tensors.FILE) as weights:
        tensors.write(weights, tensors.read(run / tensors.FILE))


def _expect(run: Path, several: bool) -> None:
    """Refuse a directory of something else; one of a single run is none of several seeds."""
    if not several or not run.is_dir():
        return
    own = {SEEDS, tensors.FILE, files.RECIPE, "tokenizer.json", "tokenizer_config.json"}
    own |= {run_dir.TEACHER, *run_dir.STAGES}
    strange = [path.name for path in run.iterdir() if path.name not in own]
    strange = [name for name in strange if not name.startswith((".", "seed-"))]
    given = ""
    if (run / tensors.FILE).exists() and not (run / SEEDS).exists() and not list(run.glob("seed-*")):
        given = "a model"
    elif strange:
        given = "one run" if run_dir.RUN in strange else f"a directory that holds {strange[0]}"
    if given:
        raise InputError(run, given, "a run of each seed goes into a directory of their own", "choose another --out")
