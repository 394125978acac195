"""A small real corpus, prepared once, and recipes that train on it in a second."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clozeworks.data.shards.prepare import prepare
from clozeworks.data.text.documents import Document
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.recipe import Recipe
from clozeworks.recipes import recipe

TEXT = "the a small large red blue fox dog hen cat runs sleeps sees eats near under over old tree stone house"


def documents(count: int, seed: int) -> list[Document]:
    draw, words = random.Random(seed), TEXT.split()
    sentence = lambda: " ".join(draw.choices(words, k=draw.randint(4, 12))) + " ."  # noqa: E731
    return [Document(sentences=[sentence() for _ in range(draw.randint(3, 9))]) for _ in range(count)]


def tiny_recipe(steps: int = 12, **train: object) -> Recipe:
    r = recipe("bert_tiny")
    r.encoder.width = 32
    block = r.encoder.stack.block_at(0)
    block.mixer, block.ffn = Attention(2, dropout=0.1), FeedForward(64)
    r.objective.segments.length = 32
    r.train.steps, r.train.batch_tokens, r.train.micro_tokens = steps, 256, 128
    r.train.log_every, r.train.save_every, r.train.evaluate_every = 2, 5, 6
    r.train.precision = "fp32"
    for name, value in train.items():
        setattr(r.train, name, value)
    return r


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Recipe]:
    """A fresh small recipe; keywords are fields of `train`."""
    return tiny_recipe


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("prepared") / "data"
    prepare(documents(150, 1), out, vocab=400, heldout=0.1)
    return out


@pytest.fixture(scope="session")
def more_data(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Other text under the same tokenizer."""
    out = tmp_path_factory.mktemp("prepared") / "more"
    prepare(documents(60, 2), out, tokenizer=data, heldout=0.1)
    return out


@pytest.fixture(scope="session")
def foreign_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other text and another tokenizer."""
    out = tmp_path_factory.mktemp("prepared") / "foreign"
    prepare(documents(60, 3), out, vocab=330, heldout=0.1)
    return out
