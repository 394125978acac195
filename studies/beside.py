"""Our fine-tuning beside the Trainer of `transformers`: `python -m studies.beside`.

Both start from the same weights (a Hugging Face directory), learn the same rows with the same optimizer, schedule,
batch and dropout, measure after each epoch and keep the best, seed by seed in turns. Told are the figure of each seed,
whether the means differ by more than two pooled standard errors, and the seconds: from rows of text to the best model
on disk.
"""

import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table
from studies import figures
from studies.study import Study, finetune, read_numbers, workspace

COLUMNS = {"classify": ("text",), "pair": ("text_a", "text_b")}
SIDES = ("ours", "theirs")
EXAMPLE = "python -m studies.beside --model HF_DIR --train train.jsonl --test dev.jsonl --seeds 0,1,2,3,4"


def run(
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    model: str = "",
    task: str = "classify",
    train: str = "",
    test: str = "",
    rows: str = "2000",
    epochs: str = "3",
    length: str = "128",
) -> dict[str, Any]:
    """The accuracy of each seed on the other rows, and the seconds of each side."""
    if task not in COLUMNS:
        raise InputError("--task", task, "classify or pair is needed", "choose one")
    table, dev = (read_table(file, COLUMNS[task], ("label",)).table for file in (train, test))
    count = {name: read_numbers(f"--{name}", given, 1)[0] for name, given in
             (("rows", rows), ("epochs", epochs), ("length", length))}  # fmt: skip
    results: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    given = (table.rows[: count["rows"]], dev.rows, count["epochs"], count["length"])
    settings = None
    with workspace("beside") as folder:
        for turn, seed in enumerate(seeds):
            for side in SIDES if turn % 2 == 0 else reversed(SIDES):
                out, clocks = folder / f"{side}-{seed}", (time.perf_counter(), time.process_time())
                if side == "ours":
                    figure, settings = ours(task, model, *given, seed, out)
                else:
                    figure = theirs(task, model, *given, seed, out, settings)
                seconds, processor = time.perf_counter() - clocks[0], time.process_time() - clocks[1]
                results[side].append({"accuracy": figure, "seconds": seconds, "cpu_seconds": processor})
    return {"task": task, "rows": len(given[0]), "measured": len(dev), "seeds": list(seeds), **summary(results)}


def summary(results: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Of each side the figures and their mean; their difference beside two pooled standard errors; ratios of time."""
    figures = {side: [round(each["accuracy"], 4) for each in runs] for side, runs in results.items()}
    means = {side: statistics.mean(values) for side, values in figures.items()}
    error = math.sqrt(sum(statistics.variance(values) / len(values) for values in figures.values()))
    clocks = {
        clock: [theirs[clock] / ours[clock] for ours, theirs in zip(results["ours"], results["theirs"], strict=True)]
        for clock in ("seconds", "cpu_seconds")
    }
    return {
        "accuracy": figures,
        "mean": {side: round(value, 4) for side, value in means.items()},
        "difference": round(means["ours"] - means["theirs"], 4),
        "two_pooled_errors": round(2 * error, 4),
        "times_faster": {
            clock: {"median": round(statistics.median(ratios), 2), "lowest": round(min(ratios), 2),
                    "highest": round(max(ratios), 2)}
            for clock, ratios in clocks.items()
        },
        "seconds": {side: round(statistics.mean(one["seconds"] for one in runs), 1) for side, runs in results.items()},
    }  # fmt: skip


def ours(
    task: str, model: str, rows: list[Any], dev: list[Any], epochs: int, length: int, seed: int, out: Path
) -> tuple[float, Any]:
    """The accuracy of the best epoch, and what it was trained with."""
    import clozeworks  # what a user calls, and nothing behind it

    changes = {"train.seed": str(seed), "train.precision": "fp32"}
    done = finetune(task, model, rows, dev, out=out, epochs=epochs, max_length=length, changes=changes)
    return done.metrics["accuracy"], clozeworks.load(out).recipe.train


def theirs(
    task: str,
    model: str,
    rows: list[Any],
    dev: list[Any],
    epochs: int,
    length: int,
    seed: int,
    out: Path,
    settings: Any,
) -> float:
    """The same with the settings that ours was trained with."""
    import transformers

    transformers.logging.set_verbosity_error()
    labels = sorted({row["label"] for row in rows})
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    transformers.set_seed(seed)
    net = transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=len(labels))

    def tokens(row: Any) -> dict[str, Any]:
        texts = [row[name] for name in COLUMNS[task]]
        return {**tokenizer(*texts, truncation=True, max_length=length), "labels": labels.index(row["label"])}

    def accuracy(evaluated: Any) -> dict[str, float]:
        return {"accuracy": float(np.mean(evaluated.predictions.argmax(-1) == evaluated.label_ids))}

    trainer = transformers.Trainer(
        net,
        training_arguments(out, seed, epochs, settings),
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        train_dataset=[tokens(row) for row in rows],  # pyright: ignore[reportArgumentType]
        eval_dataset=[tokens(row) for row in dev],  # pyright: ignore[reportArgumentType]
        compute_metrics=accuracy,
    )
    trainer.train()
    assert trainer.state.best_metric is not None
    return float(trainer.state.best_metric)


def training_arguments(out: Path, seed: int, epochs: int, settings: Any) -> Any:
    """The Trainer's settings, equal to those that ours was trained with."""
    import transformers

    optimizer = settings.optimizer
    return transformers.TrainingArguments(
        str(out),
        seed=seed,
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        lr_scheduler_type="linear",
        weight_decay=optimizer.decay,
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        adam_epsilon=optimizer.eps,
        max_grad_norm=settings.clip,
        optim="adamw_torch_fused",
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )


def draw(results: dict[str, Any], path: str) -> None:
    """A bar the mean over the seeds and a dot each of them."""
    title = f"{results['task']}: {results['rows']:,} rows, measured on {results['measured']:,} others"
    figures.grouped_bars({"": results["accuracy"]}, path, title, "accuracy")


STUDY = Study(
    name="beside",
    about="Our fine-tuning beside the Trainer of transformers: same weights, examples and settings, in turns.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    options={
        "--model": {"required": True, "metavar": "HF_DIR", "help": "a Hugging Face directory with its tokenizer"},
        "--task": {"default": "classify", "help": "classify or pair (classify)"},
        "--train": {"required": True, "metavar": "FILE", "help": "labelled examples to learn from"},
        "--test": {"required": True, "metavar": "FILE", "help": "labelled examples to measure on"},
        "--limit": {"dest": "rows", "default": "2000", "help": "how many to learn from, the first ones (2000)"},
        "--epochs": {"default": "3", "help": "(3)"},
        "--max-length": {"dest": "length", "default": "128", "help": "tokens of an example at most (128)"},
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
