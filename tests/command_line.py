"""What the tests of the command line share; `road`, the directory most of them start from, is in conftest.py."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from clozeworks.cli.main import main

WORDS = [
    "the", "a", "small", "large", "red", "blue", "fox", "dog", "hen", "cat", "runs", "sleeps",
    "sees", "eats", "near", "under", "over", "old", "tree", "stone", "house",
]  # fmt: skip
SMALL = ["--set", "train.batch_tokens=256", "--set", "objective.segments.length=32", "--set", "train.steps=4"]
OWN_PART = '''
from dataclasses import dataclass

from torch import Tensor, nn

from clozeworks.nn.mixer import Mixer, MixerLayer
from clozeworks.recipes.bert import bert_tiny


@dataclass(slots=True)
class Average(Mixer):
    """Each token sees the mean of its row."""

    honours = frozenset({"full"})

    def build(self, width):
        return AverageLayer(width)


class AverageLayer(MixerLayer):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, width)

    def extend(self, past, x):
        raise NotImplementedError

    def forward(self, query: Tensor, memory, context):
        return self.out(query.mean(1, keepdim=True).expand_as(query)), None


def averaged():
    r = bert_tiny()
    r.name = "averaged"
    r.encoder.stack.block.mixer = Average()
    return r
'''


def text(documents: int, seed: int) -> str:
    draw = random.Random(seed)
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randint(4, 12))) + "."  # noqa: E731
    return "\n\n".join(" ".join(sentence() for _ in range(draw.randint(3, 9))) for _ in range(documents)) + "\n"


def override(words: list[str], *more: object) -> list[str]:
    """Options, a value each, but for those that are given again, which the command line refuses, and the others."""
    given = list(map(str, more))
    pairs = [words[at : at + 2] for at in range(0, len(words), 2)]
    return [word for pair in pairs if pair[0] == "--set" or pair[0] not in given for word in pair] + given


def size(data: Path) -> int:
    return json.loads((data / "manifest.json").read_text())["tokenizer"]["size"]


def facts(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    """The one JSON object a command prints."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The sentence with which a command refuses."""
    capsys.readouterr()
    assert main([*map(str, words)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def child(*words: object, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clozeworks", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **more)  # pyright: ignore[reportCallIssue, reportArgumentType]
