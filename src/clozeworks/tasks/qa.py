"""Extractive question answering: where in a passage is the answer to a question?"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count, Finite, Natural, Rate
from clozeworks.core.dropout import dropout
from clozeworks.core.errors import InputError
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Row, Table
from clozeworks.data.tokens.tokenizer import Encoding, Tokenizer
from clozeworks.metrics.answers import Language, answer_metrics, best_threshold, f1, language_of
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.tasks.passages import best_spans, tokens_of, trimmed, windows
from clozeworks.tasks.task import HeadLayer, HeadParts, PretrainedHead, Task

START, END = "span_start", "span_end"  # the columns of the batch: places in the example
OTHERS = 4  # answers that are given beside the best one


@dataclass(slots=True)
class QuestionAnswering(Task):
    """Extractive question answering: start_i, end_i = W h_i + b at every token of question and passage (Devlin et al.
    2018, 4.2).

    Loss: the mean of two cross-entropies, each over all tokens of the example; without an answer in it both point to
    the summary token. The answer is from i to j, i <= j < i + `longest`, of the passage, with the highest start_i +
    end_j over all windows; its score is a softmax over the `best` so many. With a `threshold` none is given where start
    + end of the summary token, the lowest of all windows, is higher by more than that (4.3); None: one always is.

    A passage that does not fit beside its question, of which the first `question` tokens are read, becomes windows that
    share `stride` tokens: an overlap, as in Hugging Face's tokenizers; in the original code it is the distance of two
    windows. It is at most half a window, unless an answer needs more to be whole in one. Every window is learned from
    by itself.

    Shapes: [B, L, D] -> logits [B, L, 2]. Costs one pass of the encoder a window, and O(L longest) for the best span.
    """

    name: ClassVar[str] = "qa"
    columns: ClassVar[tuple[str, ...]] = ("question", "context")
    answer_columns: ClassVar[tuple[str, ...]] = ("answers",)
    main_metric: ClassVar[str] = "f1"
    target_field: ClassVar[str] = START
    identifier: ClassVar[tuple[str, ...]] = ("id",)
    pipeline_tag: ClassVar[str | None] = "question-answering"
    stride: Natural = 128
    question: Count = 64
    longest: Count = 30
    best: Count = 20
    threshold: Finite | None = None
    dropout: Rate = 0.0  # of the vectors (Sanh et al. 2019, code: 0.1)
    language: Language | None = None  # whose rules answers are compared by; None: that of the right ones

    @classmethod
    def from_head(cls, head: PretrainedHead) -> Self:
        return cls(template=head.template, dropout=head.dropout)

    def head_parts(self) -> HeadParts:
        return HeadParts(dropout=self.dropout, own={"task_encoder": self.task_encoder})

    def build(self, width: int, embed: EmbedLayer) -> "QuestionAnsweringLayer":
        return QuestionAnsweringLayer(self, width, embed)

    def with_labels(self, table: Table) -> "QuestionAnswering":
        """A threshold of 0 where some questions have no answer, until other rows give a better one."""
        there = [bool(row["answers"]) for row in table.rows]
        if not any(there):
            given = "no question with an answer" if there else "no question"
            raise InputError(table.name, given, "answers are learned from some", "add rows that have one")
        return dataclasses.replace(self, threshold=None if all(there) else self.threshold or 0.0)

    # ---- rows to examples

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        """Question and passage in one template, a long passage in windows; with `truth`, where the answer is."""
        texts = list(dict.fromkeys(text for row in table.rows for text in (row["question"], row["context"])))
        encoded = dict(zip(texts, tokenizer.encode(texts), strict=True))
        asked, read, begins, rows = [], [], [], []
        for at, row in enumerate(table.rows):
            question, passage = encoded[row["question"]], encoded[row["context"]]
            most = self.template.length - self.template.around(pair=True)
            question = _part(question, 0, min(self.question, most // 2))
            room = most - len(question.ids)
            overlap = min(self.stride, max(room // 2, self.longest - 1), room - 1)
            for begin, end in windows(len(passage.ids), room, overlap):
                asked.append(question)
                read.append(_part(passage, begin, end))
                begins.append(begin)
                rows.append(at)
        filled = self.template.lay(tokenizer, asked, read, mark="first")
        examples, inside = filled.examples, filled.side == 1
        offsets = np.full((len(examples.tokens), 2), -1, np.int64)
        offsets[inside] = np.concatenate([np.zeros((0, 2), np.int64), *(part.offsets for part in read)])
        if truth:
            placed = [self._place(row, encoded[row["context"]], table, at) for at, row in enumerate(table.rows)]
            shift = np.zeros_like(examples.lengths) if self.template.summary == "first" else examples.lengths - 1
            places = np.stack([shift, shift])
            before = len(self.template.opening) + len(self.template.between)
            for number, row in enumerate(rows):
                answer, begin = placed[row], begins[number]
                if answer is not None and begin <= answer[0] and answer[1] < begin + len(read[number].ids):
                    places[:, number] = np.array(answer) - begin + before + len(asked[number].ids)
            examples.fields[START], examples.fields[END] = places
        return Labelled(examples, np.arange(len(rows) + 1), np.array(rows, np.int64), offsets)

    def marks(self, tokens: Tensor, tokenizer: Tokenizer | None) -> Tensor | None:
        return None if tokenizer is None else self.template.sides(tokens, tokenizer)[0].long()

    def _place(self, row: Row, passage: Encoding, table: Table, at: int) -> tuple[int, int] | None:
        """The first and the last token of the first of the right answers."""
        if not row["answers"]:
            return None
        answer = row["answers"][0]
        text, start = answer["text"], answer["start"]
        if not text.strip() or row["context"][start : start + len(text)] != text:
            given = f"answer {text!r} at {start}"
            raise InputError(table.where(at), given, "the passage must have it there", "mend the row, or leave it out")
        begin = start + len(text) - len(text.lstrip())
        return tokens_of(passage.offsets, begin, begin + len(text.strip()))

    # ---- from model outputs to answers

    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        """`margin`: by how much no answer is more likely than the best one; `others`: the next ones."""
        of_row: list[list[int]] = [[] for _ in table.rows]
        for number, row in enumerate(labelled.row.tolist()):
            of_row[row].append(number)
        return [self._answer(outputs, labelled, of_row[at], at, row) for at, row in enumerate(table.rows)]

    def _answer(
        self, outputs: Sequence[np.ndarray], labelled: Labelled, numbers: list[int], at: int, row: Row
    ) -> dict[str, Any]:
        assert labelled.offsets is not None
        first, candidates, nothing = labelled.examples.first, dict[tuple[int, int], float](), math.inf
        for number in numbers:
            logits, offsets = outputs[number], labelled.offsets[first[number] : first[number + 1]]
            summary = 0 if self.template.summary == "first" else len(logits) - 1
            nothing = min(nothing, float(logits[summary].sum(dtype=np.float64)))
            inside = np.flatnonzero(offsets[:, 0] >= 0)
            starts, ends = logits[inside].T
            for score, i, j in best_spans(starts, ends, self.longest, self.best):
                place = trimmed(row["context"], int(offsets[inside[i], 0]), int(offsets[inside[j], 1]))
                if place[0] < place[1]:
                    candidates[place] = max(score, candidates.get(place, -math.inf))
        ranked = sorted(candidates.items(), key=lambda item: -item[1])[: self.best]
        margin = nothing - ranked[0][1] if ranked else None
        silent = not ranked or (self.threshold is not None and margin is not None and margin > self.threshold)
        scores = [score for _, score in ranked] + [nothing] * (self.threshold is not None or not ranked)
        shares = torch.tensor(scores, dtype=torch.float64).softmax(0).tolist()
        spans = [
            {"answer": row["context"][begin:end], "start": begin, "end": end, "score": share}
            for ((begin, end), _), share in zip(ranked, shares, strict=False)
        ]
        none = {"answer": "", "start": None, "end": None, "score": shares[-1]}
        best, others = (none, spans) if silent else (spans[0], spans[1:])
        name = at if row.get("id") is None else row["id"]
        return {"id": name, **best, "no_answer": silent, "margin": margin, "others": others[:OTHERS]}

    def calibrate(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> "QuestionAnswering":
        """The threshold with the highest F1 on these rows."""
        right = _texts(table)
        if self.threshold is None or all(right):
            return self
        answers = dataclasses.replace(self, threshold=None).answers(outputs, labelled, table)
        chosen = [at for at, answer in enumerate(answers) if answer["margin"] is not None]
        if not chosen:
            return self
        language = self.language or language_of([text for each in right for text in each])
        given = np.array([f1(answers[at]["answer"], right[at], language) for at in chosen])
        silent = np.array([f1("", right[at], language) for at in chosen])
        threshold = best_threshold(np.array([answers[at]["margin"] for at in chosen]), given, silent)
        return dataclasses.replace(self, threshold=threshold)

    def calibrated_fields(self) -> dict[str, float]:
        return {} if self.threshold is None else {"threshold": self.threshold}

    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        return answer_metrics([answer["answer"] for answer in answers], _texts(table), self.language)

    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        """1 - F1 of the words of the answer."""
        right = [each["text"] for each in row["answers"]]
        return 1 - f1(answer["answer"], right, self.language or language_of(right or [row["context"]]))

    def describe_truth(self, row: Row) -> Any:
        return [each["text"] for each in row["answers"]] or "no answer"

    def describe_answer(self, answer: Mapping[str, Any]) -> Any:
        return answer["answer"] or "no answer"


def _texts(table: Table) -> list[list[str]]:
    """The right answers to each question."""
    return [[answer["text"] for answer in row["answers"]] for row in table.rows]


def _part(encoding: Encoding, begin: int, end: int) -> Encoding:
    return Encoding(*(column[begin:end] for column in encoding))


class QuestionAnsweringLayer(HeadLayer):
    """Scores of each token as the start and as the end of the answer."""

    def __init__(self, spec: QuestionAnswering, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.dropout = spec.dropout
        self.out = Linear(self.width, 2)

    def logits(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[B, L, 2]: start and end."""
        key = None if hidden.key is None else hidden.key.at("span")
        return self.out(dropout(self.read(hidden, batch), self.dropout, key))

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        logits = _apart(self.logits(hidden, batch).float(), batch)
        truth = torch.stack([batch.example[START], batch.example[END]], 1)
        loss = F.cross_entropy(logits, truth, reduction="sum") / 2
        return loss, {"span_accuracy": (logits.argmax(1) == truth).all(1).sum()}

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        start, end = self.logits(hidden, batch).unbind(-1)
        return {"start_logits": start, "end_logits": end}

    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        logits = self.logits(hidden, batch).flatten(0, 1).float().cpu().numpy()
        borders, examples = batch.layout, len(batch.firsts)
        places = zip(borders.starts[:examples], borders.lengths[:examples], strict=True)
        return [logits[start : start + length].copy() for start, length in places]


def _apart(logits: Tensor, batch: Batch) -> Tensor:
    """[B, L, 2] -> [N, longest, 2]: each example from its first token on, -inf behind its last."""
    assert batch.lasts is not None
    along = torch.arange(max(batch.layout.lengths[: len(batch.firsts)]), device=logits.device)
    places = batch.firsts[:, None] + along
    beyond = places > batch.lasts[:, None]
    return logits.flatten(0, 1)[torch.where(beyond, 0, places)].masked_fill(beyond[..., None], -math.inf)
