"""A task is one file: one that is defined here is fine-tuned, answers and is measured like those of the library."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import InputError
from clozeworks.core.spec import Spec
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Row, Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.examination import examine
from clozeworks.evaluate.mistakes import mistakes
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.recipe import build
from clozeworks.tasks.task import HeadLayer, Task, find_task, list_tasks

COUNT = "count_of"


@dataclass(slots=True)
class CountWords(Task):
    """How many words has a text? The square of the error of w h_first + b."""

    name: ClassVar[str] = "count_words"
    columns: ClassVar[tuple[str, ...]] = ("text",)

    @property
    def metric(self) -> str:
        return "near"

    @property
    def truth(self) -> tuple[str, ...]:
        return ("score",)

    def computed(self, batch: Batch) -> bool:
        return COUNT in batch.example

    def count(self, batch: Batch) -> int:
        return len(batch.example[COUNT]) if self.computed(batch) else 0

    def build(self, width: int, embed: EmbedLayer) -> "CountWordsLayer":
        return CountWordsLayer(self, width, embed)

    def with_labels(self, table: Table) -> "CountWords":
        return dataclasses.replace(self)

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        examples = self.template.lay(tokenizer, tokenizer.encode([row["text"] for row in table.rows])).examples
        if truth:
            examples.fields[COUNT] = np.array([float(row["score"]) for row in table.rows], np.float32)
        return Labelled.one_each(examples)

    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        return [{"words": float(each[0])} for each in outputs]

    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        near = [abs(answer["words"] - float(row["score"])) < 1 for answer, row in zip(answers, table.rows, strict=True)]
        return {"near": float(np.mean(near))}

    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        return abs(answer["words"] - float(row["score"]))

    def describe_answer(self, answer: Mapping[str, Any]) -> str:
        return f"{answer['words']:.1f} words"


class CountWordsLayer(HeadLayer):
    def __init__(self, spec: CountWords, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.out = Linear(self.width, 1)

    def counts(self, hidden: Hidden, batch: Batch) -> Tensor:
        return self.out(self.read(hidden, batch).flatten(0, 1).index_select(0, batch.firsts))[:, 0].float()

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return F.mse_loss(self.counts(hidden, batch), batch.example[COUNT], reduction="sum"), {}

    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        return list(self.counts(hidden, batch)[:, None].cpu().numpy())


def rows(count: int) -> list[dict[str, Any]]:
    return [{"text": " ".join(["red", "old", "hot"][: 1 + n % 3]), "score": 1 + n % 3} for n in range(count)]


def test_a_task_of_ones_own_is_trained_answers_and_is_measured(tmp_path: Path):
    tokenizer = Tokenizer.train(["red old hot"], "words", vocab=64)
    recipe = cw.recipe("bert_tiny")
    recipe.encoder.vocab = tokenizer.size
    encoder = TextEncoder(build(recipe), tokenizer, recipe)
    changes = {"train.learning_rate": "3e-3"}
    how = {"epochs": 30, "batch_size": 8, "max_length": 16, "changes": changes, "progress": False}
    done = cw.finetune("count_words", encoder, rows(24), rows(6), out=tmp_path / "run", **how)
    assert done.finished
    assert done.metrics["near"] == 1.0
    assert done.model.predict("red old")[0]["words"] == pytest.approx(2, abs=1)
    loaded = cw.load(tmp_path / "run", parts=[CountWords])
    task, table = loaded.recipe.task, Table("rows", [{"text": "red", "score": 9}, {"text": "red", "score": 1}])
    assert isinstance(task, CountWords)
    scores = examine(loaded.model, task, table, tokenizer, loaded.kind)
    wrong = mistakes(task, scores.answers, table).worst[0]
    assert (wrong.right, wrong.predicted[-5:]) == ("9", "words")


def test_tasks_are_found_by_their_names():
    library = {"choice", "classify", "embed", "pair", "qa", "seq2seq", "tag"}
    assert library <= set(list_tasks())
    assert all(issubclass(kind, Spec) and kind.name == name for name, kind in list_tasks().items())
    with pytest.raises(InputError, match="did you mean classify"):
        find_task("clssify")
