"""The batches of a fine-tuning run: every unit once an epoch, in an order of (seed, epoch), from any step."""

from collections.abc import Iterator
from typing import Any

from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.core.examples import NOTHING
from clozeworks.core.token_info import Kind
from clozeworks.data.batches.labelled import Labelled, make_batch, order
from clozeworks.data.shards.corpus import Corpus
from clozeworks.objectives.shift import next_tokens
from clozeworks.optim.settings import Train


class LabelledBatches:
    """Step t is a pure function of (rows, seed, t): a position says nothing that the number of the step does not."""

    def __init__(self, labelled: Labelled, batch: int, train: Train, kind: Kind, pad: int):
        self.labelled, self.batch, self.train, self.pad = labelled, batch, train, pad
        self.kind: Kind = kind
        self.start = 0
        self.position: dict[str, Any] = {"phase": 0, "place": None}
        self.notes: list[str] = []
        self.corpora: list[tuple[Corpus, float]] = []

    @property
    def phase_ends(self) -> list[int]:
        return [self.train.steps]

    def check_first_examples(self) -> None:
        if not len(self.labelled):
            raise InputError("rows", "none", "at least one is needed to learn from", "add some")

    def __iter__(self) -> Iterator[list[Batch]]:
        step, each = self.start, steps_an_epoch(len(self.labelled), self.batch)
        while True:
            epoch, at = divmod(step, each)
            units = order(len(self.labelled), self.train.seed, epoch)
            while at < each:
                chosen = units[at * self.batch : (at + 1) * self.batch]
                at, step = at + 1, step + 1
                yield make_batch(self.labelled, chosen, self.kind, self.pad, self.train.micro_tokens)


def predict_words(labelled: Labelled) -> None:
    """Have each token of the examples predict the next one, their specials too."""
    if (labelled.examples.labels != NOTHING).any():
        needed = "the task has labels for tokens, which then predict no words beside them"
        raise InputError("lm_weight", "a loss for words", needed, "leave it out")
    labelled.examples.labels = next_tokens(labelled.examples)


def steps_an_epoch(units: int, batch: int) -> int:
    return max(-(-units // batch), 1)
