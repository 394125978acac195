"""The work that both sides do: one model, one text, one number of tokens a step."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import SETTING
from benchmarks.side import Meter
from clozeworks.core.batch import Batch
from clozeworks.core.examples import ExamplePlan, RaggedBatch, Vocabulary, assemble
from clozeworks.corpus import documents
from clozeworks.data.batches.loader import Loader
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import files
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.model import Model
from clozeworks.objectives.objective import Segments, Text
from clozeworks.optim import parameter_groups
from clozeworks.recipe import Recipe, build, count_parameters
from clozeworks.recipes import recipe
from clozeworks.train.loop import Policy, fit
from clozeworks.train.resources.allocator import keep_freed

DATA, MODEL = "data", "model"
ROWS = 16  # steps in a measured segment of full rows, which are all alike
THEIRS = "theirs"  # the same weights under the peer's names


@dataclass(slots=True)
class OneSentence(Segments):
    """Each sentence is an example, cut at `length`: ragged text, the same examples for both sides."""

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        starts, ends = text.sentences[:-1], text.sentences[1:]
        starts, ends = starts[ends > starts], ends[ends > starts]
        count = len(starts)
        return ExamplePlan(
            starts, np.minimum(ends, starts + self.length - 2), np.zeros(count, np.int8), np.arange(count + 1)
        )


@dataclass(slots=True)
class Blocks(Segments):
    """The text as it comes, cut every `length` tokens: full rows, whatever sentence or document ends in them."""

    def plan(self, text: Text, key: np.ndarray) -> ExamplePlan:
        body = self.length - 2
        count = int(text.sentences[-1]) // body
        starts = np.arange(count) * body
        return ExamplePlan(starts, starts + body, np.zeros(count, np.int8), np.arange(count + 1))


PARTS = [OneSentence, Blocks]


def make(folder: Path) -> "Workload":
    """Everything the sides read, written once: text, weights, and the weights as the peer wants them.

    Text that is there already is taken; a vocabulary larger than its tokenizer's leaves rows that no token has.
    """
    setting = json.loads((folder / SETTING).read_text())
    if not (folder / DATA).exists():
        text = itertools.islice(documents("en"), setting["documents"])
        prepare(text, (folder / DATA).resolve(), vocab=setting["vocab"], heldout=0)
    tokenizer = Tokenizer.load(folder / DATA)
    r = recipe(setting["recipe"])
    r.encoder.vocab = max(tokenizer.size, setting.get("rows") or 0)
    r.train.batch_tokens = setting.get("tokens") or r.train.batch_tokens
    full = setting.get("full")
    r.objective.segments = Blocks(full) if full else OneSentence(min(r.objective.segments.length, 128))
    r.objective.losses = r.objective.losses[:1]  # what the peer's class does
    encoder = TextEncoder(build(r), tokenizer, r)
    save(encoder, folder / MODEL)
    save(encoder, folder / THEIRS, "hf")
    return Workload.open(folder)


@dataclass(slots=True)
class Workload:
    """A model and a text in a folder, as every side opens them."""

    folder: Path
    recipe: Recipe
    text: Corpus
    vocabulary: Vocabulary

    @staticmethod
    def open(folder: Path) -> "Workload":
        return Workload(
            folder,
            files.read_recipe(folder / MODEL / "recipe.json", PARTS),
            Corpus.open(folder / DATA),
            Tokenizer.load(folder / DATA).vocabulary(),
        )

    def model(self) -> Model:
        return load(self.folder / MODEL, PARTS).model

    def steps(self) -> Iterator[list[Batch]]:
        objective, train = self.recipe.objective, self.recipe.train
        loader = Loader(
            [(self.text, 1.0)],
            objective.segments,
            objective.corruption,
            self.vocabulary,
            seed=0,
            batch_tokens=train.batch_tokens,
        )
        return (micro for micro, _ in loader.steps())

    def examples(self) -> RaggedBatch:
        """Every example, nothing masked."""
        plan = self.recipe.objective.segments.plan(self.text, np.zeros((), np.uint64))
        return assemble(plan, np.arange(len(plan)), self.text.take, self.vocabulary)

    def examples_a_step(self) -> int:
        """As many sentences as have the tokens of a step on average: what a batch of the peer holds."""
        return max(1, round(self.recipe.train.batch_tokens / float(self.examples().lengths.mean())))

    def segment(self) -> int:
        """Steps in a measured segment: one sweep of the peer's sampler from its longest sentences to its shortest.

        It sorts so many batches at once; any other number of steps would measure long or short sentences only.
        """
        if isinstance(self.recipe.objective.segments, Blocks):
            return ROWS
        return max(1, min(len(self.examples()) // (4 * self.examples_a_step()), 50))

    def facts(self) -> dict[str, Any]:
        lengths = self.examples().lengths
        train = self.recipe.train
        return {
            "recipe": self.recipe.name,
            "vocabulary": self.recipe.encoder.vocab,
            "parameters": count_parameters(self.recipe),
            "longest_example": self.recipe.objective.segments.length,
            "examples": len(lengths),
            "tokens": int(lengths.sum()),
            "tokens_an_example": {f"{q}%": int(np.percentile(lengths, q)) for q in (5, 25, 50, 75, 95)},
            "tokens_a_step": train.batch_tokens,
            "peer_examples_a_step": self.examples_a_step(),
            "steps_a_segment": self.segment(),
        }


def train(folder: Path, meter: Meter) -> None:
    """Our training, until the meter has had enough."""
    keep_freed()
    work = Workload.open(folder)
    train, model = work.recipe.train, work.model()
    adam = parameter_groups.build_optimizer(model, train.optimizer, train.learning_rate)
    if not meter.wait():
        return
    policy = Policy(clip=train.clip)
    for step in fit(model, work.steps(), adam, lambda _: train.learning_rate, steps=10**9, policy=policy):
        if not meter.step(step.tokens, train.batch_tokens):
            return
