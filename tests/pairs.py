"""A toy language pair, and how a small model of it is trained in seconds."""

import json
import random
from pathlib import Path

ENGLISH = ["the", "a", "small", "large", "red", "blue", "fox", "dog", "hen", "cat", "runs", "sleeps"]
GERMAN = ["das", "ein", "klein", "gross", "rot", "blau", "fuchs", "hund", "huhn", "katze", "rennt", "ruht"]
TINY = {
    "encoder.width": 64,
    "encoder.stack.depth": 1,
    "decoder.stack.depth": 1,
    "objective.segments.length": 32,
    "objective.segments.target_length": 16,
    "train.batch_tokens": 512,
    "train.warmup": 30,
    "train.learning_rate": 0.003,
    "train.precision": "fp32",
}


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences that are translated word by word."""
    draw, results = random.Random(seed), []
    for _ in range(count):
        words = [draw.randrange(len(ENGLISH)) for _ in range(draw.randint(2, 6))]
        sides = [" ".join(language[word] for word in words) for language in (ENGLISH, GERMAN)]
        results.append((f"{sides[0]}.", f"{sides[1]}!"))
    return results


def write_json(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(json.dumps({"en": a, "de": b}) + "\n" for a, b in rows))
    return path


def write_table(path: Path, rows: list[tuple[str, str]], header: bool = False) -> Path:
    path.write_text("en\tde\n" * header + "".join(f"{a}\t{b}\n" for a, b in rows))
    return path


def settings(**more: object) -> list[str]:
    """The words of a command line that make `transformer_mini` tiny; `train_steps=4` sets train.steps."""
    changed = TINY | {name.replace("_", ".", 1): value for name, value in more.items()}
    return [word for name, value in changed.items() for word in ("--set", f"{name}={value}")]
