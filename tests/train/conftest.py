"""A small real corpus, prepared once, and recipes that train on it in seconds."""

import random
from pathlib import Path

import pytest

from clozeworks.data.documents import Document
from clozeworks.data.prepare import prepare
from clozeworks.pretraining import Recipe
from clozeworks.recipes import recipe

WORDS = "the a small large red blue fox dog hen cat runs sleeps sees eats near under over old tree stone house".split()


def documents(count: int, seed: int) -> list[Document]:
    draw = random.Random(seed)
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randint(4, 12))) + "."  # noqa: E731
    return [Document(" ".join(sentence() for _ in range(draw.randint(3, 9)))) for _ in range(count)]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "data"
    prepare(documents(150, 1), out, vocab=120, heldout=0.1)
    return out


@pytest.fixture(scope="session")
def other_data(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Other text under the same tokenizer."""
    out = tmp_path_factory.mktemp("prepared") / "other"
    prepare(documents(60, 2), out, tokenizer=data, heldout=0.1)
    return out


def tiny(steps: int = 12, **train: object) -> Recipe:
    r = recipe("bert_tiny")
    r.encoder.width = 32
    r.encoder.stack.block.mixer.heads = 2
    r.encoder.stack.block.ffn.inner = 64
    r.objective.segments.length = 32
    r.train.steps, r.train.batch_tokens, r.train.micro_tokens = steps, 256, 128
    r.train.log_every, r.train.save_every, r.train.evaluate_every = 2, 5, 6
    r.train.precision = "fp32"
    for name, value in train.items():
        setattr(r.train, name, value)
    return r
