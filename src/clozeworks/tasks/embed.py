"""Sentence embeddings (bi-encoder): how alike are two texts, each encoded by itself?"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Finite, Positive
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Row, Table
from clozeworks.data.tokens.tokenizer import Encoding, Tokenizer
from clozeworks.metrics import scores as rank_metrics
from clozeworks.metrics.scores import pearson, spearman
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.pooling import Pooling, pool_tokens, unpack
from clozeworks.tasks.contrastive import ordered, picked, ranks, squared
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.task import Answers, Task, TaskLayer, read_scores

TARGET, TEXT = "embed_target", "embed_text"  # columns of the batch
GROUP = 32  # rows that are compared with one another where a loss is measured, in the order of the table
THIRD = "text_c"


@dataclass(slots=True)
class SentenceEmbedding(Task):
    """A bi-encoder: sentence embeddings u, v of two texts, each read by itself by one encoder and pooled as `pooling`
    says (Reimers & Gurevych 2019). Contrastive learning of cosine(u, v); it has no weights of its own, and what learns
    is what `encode` gives.

    loss = cosine: sum (cosine - target)^2, the target being the score, which from `low` to `high` is 0 to 1;
    cosent: log(1 + sum exp(scale (cosine_j - cosine_i))) over pairs of rows with target_i > target_j (Su 2022);
    in_batch_negatives: -log softmax_j(scale cosine(a_i, b_j)) at j = i, the b of all other rows of the step being wrong
    answers (Henderson et al. 2017; `both`: also of a_i for b_i). Pairs without scores, or with one and the same, belong
    together; where scores differ, under `in_batch_negatives` those do that have `high`. A third text is one more wrong
    answer. None: cosent where there are scores, else in_batch_negatives. These two compare rows of a step with one
    another, so that it is one micro-batch. `graded`: rows to measure on have scores.

    Shapes: examples [N k, L] -> vectors [N, k, D] -> cosines [N], or [N, N (k - 1)]. Costs two passes of the encoder a
    row and O(N^2 D) for the products; a text is read once, however many it is compared with, where a cross-encoder
    (`Pair`) reads every pair.
    """

    name: ClassVar[str] = "embed"
    columns: ClassVar[tuple[str, ...]] = ("text_a", "text_b")
    answer_columns: ClassVar[tuple[str, ...]] = ()
    target_field: ClassVar[str] = TARGET
    maybe: ClassVar[tuple[str, ...]] = ("score", THIRD)
    has_head: ClassVar[bool] = False
    pipeline_tag: ClassVar[str | None] = "sentence-similarity"
    pooling: Pooling = field(default_factory=Pooling)
    loss: Literal["cosine", "cosent", "in_batch_negatives"] | None = None
    scale: Positive = 20.0
    both: bool = False
    low: Finite | None = None
    high: Finite | None = None
    graded: bool = False

    def check(self, where: str) -> None:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise RecipeError(f"{where}.low", self.low, f"less than high, {self.high}, is needed", "change it")
        self.only_the_last(where, "vectors are made of the last layer")
        if self.pooling.length is not None and self.pooling.length != self.template.length:
            needed = f"texts are cut after {self.template.length} tokens, and vectors are made of the same"
            raise RecipeError(f"{where}.pooling.length", self.pooling.length, needed, "use --max-length for both")

    @classmethod
    def for_encoder(cls, encoder: PretrainedEncoder) -> Self:
        """Vectors are made as those of the encoder are; `max_length`, where one is asked for, holds for both."""
        pooling = copy.deepcopy(encoder.recipe.pooling) or Pooling()
        longest = encoder.template.length
        most = min(encoder.max_length or pooling.length or longest, longest)
        pooling.length = most if most < encoder.recipe.length else None
        return cls(template=dataclasses.replace(encoder.template, length=most), pooling=pooling)

    @property
    def encodes(self) -> Pooling | None:
        return self.pooling

    def describe(self) -> list[str]:
        return [f"{self.pooling.mode} vectors of two texts", f"loss {self.loss}"]

    @property
    def metric(self) -> str:
        return "spearman" if self.graded else "mrr"

    @property
    def pools(self) -> bool:
        return self.pooling.mode == "pooled"

    @property
    def needs_whole_step(self) -> bool:
        return self.loss in ("cosent", "in_batch_negatives")

    def count(self, batch: Batch) -> int:
        if not self.computed(batch):
            return 0
        return int(_rows(batch.example[TARGET], batch).sum()) if self.loss == "in_batch_negatives" else len(batch.index)

    def divisor(self, count: int) -> float:
        return 1.0 if self.loss == "cosent" else count

    def read_positions(self, batch: Batch) -> Tensor | None:
        return batch.firsts if self.pooling.mode in ("first", "pooled") else None

    def build(self, width: int, embed: EmbedLayer) -> "SentenceEmbeddingLayer":
        return SentenceEmbeddingLayer(self)

    def with_labels(self, table: Table) -> "SentenceEmbedding":
        """With the loss that the rows allow, and the range of their scores."""
        scores = scores_of(table)
        graded = differ(scores)
        if len(table) < 2:
            needed = "a pair is learned from beside others"
            raise InputError(table.name, f"{len(table)} row" + "s" * (not len(table)), needed, "add some")
        if not graded and self.loss in ("cosine", "cosent"):
            given = "no scores" if scores is None else f"every score {scores[0]:g}"
            needed = f"loss {self.loss} learns from scores that differ"
            raise InputError(table.name, given, needed, "use loss in_batch_negatives")
        if not graded and scores is not None and scores[0] <= 0:
            needed = "pairs that belong together, or scores that differ, are needed"
            raise InputError(table.name, f"every score {scores[0]:g}", needed, "add rows with higher ones")
        if not graded or scores is None:
            return dataclasses.replace(self, loss="in_batch_negatives", low=None, high=None, graded=False)
        low, high = (
            given if given is not None else float(observed)
            for given, observed in ((self.low, scores.min()), (self.high, scores.max()))
        )
        return dataclasses.replace(self, loss=self.loss or "cosent", low=low, high=high, graded=True)

    def measured(self, table: Table) -> Self:
        """A copy that is chosen by the metrics that these rows give."""
        return dataclasses.replace(self, graded=differ(scores_of(table)))

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        names = (*self.columns, *([THIRD] if truth and table.rows and THIRD in table.rows[0] else []))
        texts = [self.pooling.prompt + row[name] for row in table.rows for name in names]
        encodings = tokenizer.encode(texts)
        examples = self.template.lay(tokenizer, encodings).examples
        if truth:
            examples.fields[TARGET] = np.repeat(self._targets(table), len(names))
            examples.fields[TEXT] = numbered(encodings, self.template.length - self.template.around(pair=False))
        return Labelled(examples, len(names) * np.arange(len(table) + 1), np.arange(len(table)))

    def _targets(self, table: Table) -> np.ndarray:
        """Of each row what its cosine should be, or under `in_batch_negatives` whether its texts belong together."""
        scores = scores_of(table)
        if scores is None and self.loss != "in_batch_negatives":
            needed, todo = "the model learns from scores", "name the column (columns score=NAME)"
            raise InputError(table.where(0) if len(table) else table.name, "no score", needed, todo)
        if self.loss == "in_batch_negatives":
            high = None if scores is None else scores.max() if self.high is None else self.high
            return np.ones(len(table), np.float32) if scores is None else (scores >= high).astype(np.float32)
        assert scores is not None
        assert self.low is not None
        assert self.high is not None
        return ((scores - self.low) / (self.high - self.low)).astype(np.float32)

    def loss_of(self, vectors: Tensor, text: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Summed loss and metrics of rows: vectors [N, k, D], text [N, k], target [N]."""
        vectors = F.normalize(vectors, dim=-1)
        if self.loss == "in_batch_negatives":
            loss, first = picked(vectors, text, target > 0, self.scale, self.both)
            return loss, {"embed_accuracy": first}
        cosine = (vectors[:, 0] * vectors[:, 1]).sum(-1)
        return squared(cosine, target) if self.loss == "cosine" else ordered(cosine, target, self.scale), {}

    def mean_loss(self, outputs: Sequence[np.ndarray], labelled: Labelled) -> float | None:
        fields = labelled.examples.fields
        if TARGET not in fields or not len(labelled):
            return None
        values = (np.stack(outputs), fields[TEXT], fields[TARGET])
        vectors, text, target = (torch.from_numpy(each).unflatten(0, (len(labelled), -1)) for each in values)
        total, count = 0.0, 0
        for begin in range(0, len(labelled), GROUP):
            some = slice(begin, begin + GROUP)
            total += float(self.loss_of(vectors[some], text[some], target[some, 0])[0])
            count += int(target[some, 0].sum()) if self.loss == "in_batch_negatives" else 1
        return total / count if count else None

    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        """The cosine of each pair; where pairs that belong together are to be measured, the rank of b for its a too."""
        if not len(table):
            return []
        fields = labelled.examples.fields
        vectors = F.normalize(torch.from_numpy(np.stack(outputs)), dim=-1).unflatten(0, (len(table), -1))
        answers = [{"cosine": value} for value in (vectors[:, 0] * vectors[:, 1]).sum(-1).tolist()]
        if TARGET in fields and not differ(scores_of(table)):
            found_at = ranks(vectors.numpy(), fields[TEXT].reshape(len(table), -1)).tolist()
            return [{**answer, "rank": rank} for answer, rank in zip(answers, found_at, strict=True)]
        return answers

    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        """spearman and pearson of cosines and scores; without scores mrr, the mean of 1 / rank, and accuracy, the share
        of rank 1."""
        if answers and all("rank" in answer for answer in answers) and not differ(scores_of(table)):
            at = np.array([answer["rank"] for answer in answers])
            return {"mrr": float((1 / at).mean()), "accuracy": float((at == 1).mean())}
        truth, predicted = [float(row["score"]) for row in table.rows], [answer["cosine"] for answer in answers]
        return {"spearman": spearman(truth, predicted), "pearson": pearson(truth, predicted)}

    def badness(self, answers: Answers, table: Table) -> np.ndarray:
        """How far each pair is from its place in the order of the scores, as a part of all rows; without scores, by its
        rank."""
        if not answers or "rank" in answers[0]:
            return Task.badness(self, answers, table)
        predicted = rank_metrics.ranks(np.array([answer["cosine"] for answer in answers]))
        right = rank_metrics.ranks(np.array([float(row["score"]) for row in table.rows]))
        return np.abs(predicted - right) / len(table)

    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        return 1 - 1 / answer["rank"]

    def describe_truth(self, row: Row) -> Any:
        return row.get("score", "rank 1")

    def describe_answer(self, answer: Mapping[str, Any]) -> Any:
        return f"cosine {answer['cosine']:.3g}" + (f", rank {answer['rank']}" if "rank" in answer else "")


def scores_of(table: Table) -> np.ndarray | None:
    """float64 [rows]; None where no row has one."""
    if all(row.get("score") is None for row in table.rows):
        return None
    return read_scores(table, "a number is needed, as in other rows")


def differ(scores: np.ndarray | None) -> bool:
    return scores is not None and bool((scores != scores[0]).any())


def numbered(texts: Sequence[Encoding], most: int) -> np.ndarray:
    """int64: of each text a number, the same where a model reads the same of it."""
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(text.ids[:most].tobytes(), len(known)) for text in texts], np.int64)


def _rows(values: Tensor, batch: Batch) -> Tensor:
    """[N] of examples -> [rows], where the examples of a row have the same."""
    return values.unflatten(0, (len(batch.index), -1))[:, 0]


class SentenceEmbeddingLayer(TaskLayer):
    """Sentence embeddings of the texts of a batch, and the loss that compares them; no weights of its own."""

    def __init__(self, spec: SentenceEmbedding):
        super().__init__()
        self.spec = spec

    def vectors(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[N, D], one a text, as `encode` makes them."""
        assert batch.lasts is not None
        last, mask = unpack(hidden.last.float(), batch.firsts, batch.lasts)
        return pool_tokens(last, mask, hidden.pooled, self.spec.pooling.mode).float()

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        rows = len(batch.index)
        vectors, text = (each.unflatten(0, (rows, -1)) for each in (self.vectors(hidden, batch), batch.example[TEXT]))
        return self.spec.loss_of(vectors, text, _rows(batch.example[TARGET], batch))

    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        return list(self.vectors(hidden, batch).cpu().numpy())
