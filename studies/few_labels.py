"""What few labelled rows are worth, by how they are learned: `python -m studies.few_labels`.

From one Hugging Face directory, the same rows and as many epochs: a tenth of the rows aside to pick the epoch by, or
all of them and the last step; a head over the first token (the pooler), or over the mean of all; beside them the
Trainer of `transformers` with its usual settings. Each seed draws its own rows; all are measured on the same others.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import clozeworks
from clozeworks.data.tables import fewer, read_table
from clozeworks.evaluate.baselines import measure_baselines
from clozeworks.tasks.classify import Classify
from studies import figures
from studies.study import Study, finetune, read_numbers, workspace

FIRST, MEAN = "Summary()", "Summary(place=mean, dense=None)"
OURS = {  # the share put aside, the summary, the rate (None: the library's)
    "a tenth aside, first token": (0.1, FIRST, None),
    "all rows, first token": (0.0, FIRST, None),
    "all rows, mean": (0.0, MEAN, None),
    "all rows, mean, 2e-4": (0.0, MEAN, 2e-4),
}
THEIRS = {"Trainer, 5e-5": 5e-5, "Trainer, 2e-4": 2e-4}
EXAMPLE = "python -m studies.few_labels --model HF_DIR --train train.jsonl --test dev.jsonl --limit 200"


def run(
    seeds: Sequence[int] = (0, 1, 2),
    model: str = "",
    train: str = "",
    test: str = "",
    rows: str = "200",
    epochs: str = "10",
    length: str = "64",
) -> dict[str, Any]:
    """The accuracy of each way and seed on the other rows."""
    table, others = (read_table(file, ("text",), ("label",)).table for file in (train, test))
    many, passes, tokens = (read_numbers(*pair, 1)[0] for pair in
                            (("--limit", rows), ("--epochs", epochs), ("--max-length", length)))  # fmt: skip
    accuracy: dict[str, list[float]] = {way: [] for way in ("tfidf_words", *OURS, *THEIRS)}
    with workspace("few_labels") as folder:
        for seed in seeds:
            some = fewer(table, many, seed)
            for way, (share, summary, rate) in OURS.items():
                changes = {"train.seed": str(seed), "train.precision": "fp32", "task.summary": summary}
                changes |= {} if rate is None else {"train.learning_rate": str(rate)}
                out, how = folder / f"{way}-{seed}", {"epochs": passes, "max_length": tokens, "dev_share": share}
                tuned = finetune("classify", model, some.rows, None, out=out, changes=changes, **how).model
                accuracy[way].append(clozeworks.evaluate(tuned, test=others.rows)["accuracy"])
                print(way, seed, accuracy[way][-1], file=sys.stderr, flush=True)
            beside = measure_baselines(Classify().with_labels(some), some, others).metrics
            accuracy["tfidf_words"].append(beside["tfidf_words"])
            for way, rate in THEIRS.items():
                out = folder / f"{way}-{seed}"
                accuracy[way].append(theirs(model, some.rows, others.rows, passes, tokens, rate, seed, out))
                print(way, seed, accuracy[way][-1], file=sys.stderr, flush=True)
    mean = {way: round(float(np.mean(values)), 4) for way, values in accuracy.items()}
    return {"rows": many, "measured": len(others), "seeds": list(seeds), "accuracy": accuracy, "mean": mean}


def theirs(
    model: str, rows: list[Any], others: list[Any], epochs: int, length: int, rate: float, seed: int, out: Path
) -> float:
    """The accuracy of the last step of the Trainer."""
    import transformers

    transformers.logging.set_verbosity_error()
    labels = sorted({row["label"] for row in rows})
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    transformers.set_seed(seed)
    net = transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=len(labels))

    def tokens(row: Any) -> dict[str, Any]:
        return {**tokenizer(row["text"], truncation=True, max_length=length), "labels": labels.index(row["label"])}

    settings = transformers.TrainingArguments(
        str(out),
        seed=seed,
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        learning_rate=rate,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = transformers.Trainer(
        net,
        settings,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        train_dataset=[tokens(row) for row in rows],  # pyright: ignore[reportArgumentType]
    )
    trainer.train()
    answers = trainer.predict([tokens(row) for row in others])  # pyright: ignore[reportArgumentType]
    return float(np.mean(np.asarray(answers.predictions).argmax(-1) == answers.label_ids))


def draw(results: dict[str, Any], path: str) -> None:
    """A bar the mean over the seeds and a dot each of them."""
    title = f"{results['rows']:,} rows, measured on {results['measured']:,} others"
    figures.grouped_bars({"": results["accuracy"]}, path, title, "accuracy")


STUDY = Study(
    name="few_labels",
    about="Few labelled rows: a tenth aside or all, first token or mean, beside the Trainer of transformers.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    options={
        "--model": {"required": True, "metavar": "HF_DIR", "help": "a Hugging Face directory with its tokenizer"},
        "--train": {"required": True, "metavar": "FILE", "help": "labelled examples to draw from"},
        "--test": {"required": True, "metavar": "FILE", "help": "labelled examples to measure on"},
        "--limit": {"dest": "rows", "default": "200", "help": "how many to learn from (200)"},
        "--epochs": {"default": "10", "help": "(10)"},
        "--max-length": {"dest": "length", "default": "64", "help": "tokens of an example at most (64)"},
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
