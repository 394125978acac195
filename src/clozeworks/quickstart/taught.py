"""A task for the new model, pretrained beside fresh weights: what was pretraining worth?"""

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clozeworks.corpus import areas
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.quickstart.said import SAID
from clozeworks.screen.console import columns
from clozeworks.train.finetune.entry import finetune
from clozeworks.train.finetune.result import FinetuneResult

MODEL = "model.safetensors"
ROWS, MEASURED, SHOWN = 600, 1000, 3
EPOCHS, RATE, LENGTH = 4, 2e-3, 64
STARTS = {"pretrained": "area", "fresh": "area-fresh"}


def taught(encoder: TextEncoder, lang: str, out: Path, seed: int, console: Console) -> int:
    """Fine-tune both, report how well each answers, and some answers; 0, or the signal that interrupted it."""
    rows = areas.rows(lang)
    train, dev = rows[:ROWS], rows[ROWS : ROWS + MEASURED]
    changes = {
        "train.learning_rate": str(RATE),
        "train.seed": str(seed),
        "task.summary.place": "mean",  # no token of this encoder has learned to stand for its text
        "task.summary.dense": "none",
    }
    results: dict[str, FinetuneResult] = {}
    for start, name in STARTS.items():
        results[start] = finetune(
            "classify", encoder, train, dev, out=out / name, epochs=EPOCHS, max_length=LENGTH, changes=changes,
            from_scratch=start == "fresh", console=Console(quiet=True) if (out / name / MODEL).exists() else console,
        )  # fmt: skip
        if not results[start].finished:
            return results[start].signal
    said = SAID[lang]
    counts = Counter(row["label"] for row in train)
    console.print(said["rows"].format(train=len(train), labels=", ".join(counts), dev=len(dev)), soft_wrap=True)
    console.print()
    console.print(table_of(results, said, sum(row["label"] == counts.most_common(1)[0][0] for row in dev) / len(dev)))
    console.print()
    model = results["pretrained"].model
    for row in dev[:SHOWN]:
        console.print(answer_of(row, model.predict([row["text"]])[0], said, console.width))
    return 0


def table_of(results: dict[str, FinetuneResult], said: dict[str, str], baseline: float) -> Table:
    """The share of right answers of each, with its interval."""
    names = (*(said[start] for start in results), said["majority"])
    table = columns(said["answers"], *names, right=names)
    shares = [f"{one.metrics['accuracy']:.1%}" for one in results.values()]
    table.add_row(said["accuracy"], *shares, f"{baseline:.1%}")
    ranges = [one.intervals["accuracy"] for one in results.values()]
    table.add_row(said["interval"], *(f"{low:.0%} – {high:.0%}" for low, high in ranges), "")
    return table


def answer_of(row: dict[str, str], answer: dict, said: dict[str, str], width: int) -> Text:
    """A text as far as it fits, and what it is about; the truth beside a wrong answer."""
    right = answer["label"] == row["label"]
    line = Text(f"   {said['is']} ").append(answer["label"], "bold green" if right else "bold red")
    if not right:
        line.append(f" ({said['truth']} {row['label']})", "dim")
    text = Text(row["text"])
    text.truncate(width - 1, overflow="ellipsis")
    return Text("\n").join([text, line])
