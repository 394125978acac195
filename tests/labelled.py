"""Labelled rows that a tiny model learns in a second, as files."""

import json
import random
from pathlib import Path
from typing import Any

SIDES = {"warm": ["red", "fox", "runs"], "cold": ["blue", "hen", "sleeps"]}
PLAIN = ["the", "a", "small", "old", "tree", "stone"]
QUICK = ["--epochs", "6", "--batch-size", "8", "--max-length", "16", "--set", "train.learning_rate=3e-3"]


def rows(count: int = 48, seed: int = 0) -> list[dict[str, Any]]:
    """Which of two kinds of words has a text?"""
    draw, records = random.Random(seed), []
    for number in range(count):
        label = draw.choice([*SIDES])
        words = [draw.choice(SIDES[label]), *draw.choices(PLAIN, k=draw.randint(0, 4))]
        draw.shuffle(words)
        records.append({"text": " ".join(words), "label": label, "number": number})
    return records


def write(file: Path, given: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in given), encoding="utf-8")
    return file
