"""A task for the new model, pretrained beside fresh weights: what was pretraining worth, and text without labels?"""

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from clozeworks.corpus import areas
from clozeworks.data.tables.table import Table
from clozeworks.evaluate.baselines import measure_baselines
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.quickstart.messages import MESSAGES
from clozeworks.screen.console import columns
from clozeworks.train.finetune.entry import finetune
from clozeworks.train.finetune.result import FinetuneResult

MODEL = "model.safetensors"
ROWS, MEASURED, SHOWN = 600, 1000, 3
EPOCHS, LENGTH = 22, 128  # the epochs are those of fresh weights, twice what pretrained ones have
LAST = str(10**6)  # steps after which a run would be evaluated before its end
STARTS = {"pretrained": "area", "fresh": "area-fresh"}


def learn_areas(encoder: TextEncoder, lang: str, out: Path, seed: int, console: Console) -> int:
    """Fine-tune both, report how well each answers, and some answers; 0, or the signal that interrupted it.

    The rows that measure choose nothing: each is the model of its last step.
    """
    rows = areas.rows(lang)
    train, dev = rows[:ROWS], rows[ROWS : ROWS + MEASURED]
    others = [{"text": row["text"]} for row in rows[ROWS + MEASURED :]]
    changes = {"train.seed": str(seed), "train.evaluate_every": LAST}
    how: dict[str, dict[str, Any]] = {
        "pretrained": {"unlabelled": others},
        "fresh": {"from_scratch": True, "epochs": EPOCHS},
    }
    results: dict[str, FinetuneResult] = {}
    for start, name in STARTS.items():
        silent = (out / name / MODEL).exists()
        results[start] = finetune(
            "classify", encoder, train, dev, out=out / name, max_length=LENGTH, changes=changes, **how[start],
            console=Console(quiet=True) if silent else console,
        )  # fmt: skip
        if not results[start].finished:
            return results[start].signal
    messages, counts = MESSAGES[lang], Counter(row["label"] for row in train)
    numbers = {"train": len(train), "dev": len(dev), "others": len(others)}
    console.print(messages["rows"].format(labels=", ".join(counts), **numbers), soft_wrap=True)
    console.print()
    model = results["pretrained"].model
    assert model.recipe.task is not None
    beside = measure_baselines(model.recipe.task, Table("train", train), Table("dev", dev))
    console.print(table_of(results, messages, beside.metrics))
    for note in beside.notes:
        console.print(Text(note), soft_wrap=True)
    console.print()
    for row in dev[:SHOWN]:
        console.print(answer_of(row, model.predict([row["text"]])[0], messages, console.width))
    return 0


def table_of(results: dict[str, FinetuneResult], messages: dict[str, str], baselines: dict[str, float]) -> Grid:
    """The share of right answers of each, with the interval of a model that is there; TF-IDF, the better of its two,
    where it can be had."""
    counted = [value for name, value in baselines.items() if name != "majority"]
    pretrained, fresh = (results[start] for start in STARTS)
    shares = {
        messages["pretrained"]: pretrained.teacher["accuracy"],
        messages["unlabelled"]: pretrained.metrics["accuracy"],
        messages["fresh"]: fresh.metrics["accuracy"],
        **({"TF-IDF": max(counted)} if counted else {}),
        messages["majority"]: baselines["majority"],
    }
    ranges = {
        messages[name]: "{:.0%} – {:.0%}".format(*one.intervals["accuracy"])
        for name, one in (("unlabelled", pretrained), ("fresh", fresh))
    }
    table = columns(messages["answers"], *shares, right=tuple(shares))
    table.add_row(messages["accuracy"], *(f"{share:.1%}" for share in shares.values()))
    table.add_row(messages["interval"], *(ranges.get(name, "") for name in shares))
    return table


def answer_of(row: dict[str, str], answer: dict, messages: dict[str, str], width: int) -> Text:
    """A text as far as it fits, and what it is about; the truth beside a wrong answer."""
    right = answer["label"] == row["label"]
    line = Text(f"   {messages['is']} ").append(answer["label"], "bold green" if right else "bold red")
    if not right:
        line.append(f" ({messages['truth']} {row['label']})", "dim")
    text = Text(row["text"])
    text.truncate(width - 1, overflow="ellipsis")
    return Text("\n").join([text, line])
