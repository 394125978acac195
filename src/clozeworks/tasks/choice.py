"""Multiple choice: which of several answers to a question is the right one?"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import InputError
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Row, Table
from clozeworks.data.tokens.tokenizer import Encoding, Tokenizer
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.summary import Summary, choose_summary
from clozeworks.tasks.task import PretrainedHead, SummaryHeadLayer, SummaryTask

RIGHT = "choice_right"  # the column of the batch


@dataclass(slots=True)
class Choice(SummaryTask):
    """Multiple choice: score = w s + b of a summary s of each option, p = softmax over the options of a question,
    cross-entropy of the right one (Radford et al. 2018, 3.3).

    An option is an example of two texts: the context, and question and option behind it, or with `asked` = first the
    context and the question, and the option behind them. Where there is no room for all, the context is cut. Questions
    may have any number of options; all of one are in one micro-batch, and are one prediction. What is marked, for
    models with windows, is the second text.

    Shapes: [B, L, D] -> scores [options], a softmax over those of each question. Costs a pass of the encoder an option.
    """

    name: ClassVar[str] = "choice"
    columns: ClassVar[tuple[str, ...]] = ("context", "question", "choices")
    answer_columns: ClassVar[tuple[str, ...]] = ("answer",)
    main_metric: ClassVar[str] = "accuracy"
    target_field: ClassVar[str] = RIGHT
    pipeline_tag: ClassVar[str | None] = "multiple-choice"
    asked: Literal["first", "second"] = "second"  # the text that the question is of

    @classmethod
    def for_encoder(cls, encoder: PretrainedEncoder) -> Self:
        """A question that is read one way follows its context (Radford et al. 2018, 3.3)."""
        summary = choose_summary(encoder.recipe, encoder.template, encoder.pooled)
        asked = "first" if encoder.recipe.reading == "causal" else "second"
        return cls(template=encoder.template, summary=summary, asked=asked)

    @classmethod
    def from_head(cls, head: PretrainedHead) -> Self:
        asked = "first" if head.causal else "second"
        return cls(template=head.template, summary=head.summary or Summary(), asked=asked)

    def count(self, batch: Batch) -> int:
        return len(batch.index) if self.computed(batch) else 0

    def build(self, width: int, embed: EmbedLayer) -> "ChoiceLayer":
        return ChoiceLayer(self, width, embed)

    def with_labels(self, table: Table) -> "Choice":
        return dataclasses.replace(self)

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        counts = [len(options_of(table, at)) for at in range(len(table))]
        first, second = self._texts(table.rows, tokenizer)
        examples = self.template.lay(tokenizer, first, second, "first", "second").examples
        if truth:
            right = [np.arange(count) == answer_of(table, at) for at, count in enumerate(counts)]
            examples.fields[RIGHT] = np.concatenate(right) if right else np.zeros(0, bool)
        return Labelled(examples, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), np.arange(len(table)))

    def marks(self, tokens: Tensor, tokenizer: Tokenizer | None) -> Tensor | None:
        return None if tokenizer is None else self.template.sides(tokens, tokenizer)[1].long()

    def _texts(self, rows: Sequence[Row], tokenizer: Tokenizer) -> tuple[list[Encoding], list[Encoding]]:
        """Two texts of each option."""
        contexts = tokenizer.encode([row["context"] for row in rows])
        owner = [at for at, row in enumerate(rows) for _ in row["choices"]]
        options = [str(option) for row in rows for option in row["choices"]]
        if self.asked == "second":
            asked = [f"{rows[at]['question']} {option}".strip() for at, option in zip(owner, options, strict=True)]
            return [contexts[at] for at in owner], tokenizer.encode(asked)
        # Behind a text, a word has its space before it.
        questions = tokenizer.encode([f" {row['question']}" if row["context"] else row["question"] for row in rows])
        second, room = tokenizer.encode(options), self.template.length - self.template.around(pair=True)
        first = [
            _joined(contexts[at], questions[at], room - len(option.ids))
            for at, option in zip(owner, second, strict=True)
        ]
        return first, second

    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        answers = []
        for row, begin, end in zip(table.rows, labelled.first[:-1], labelled.first[1:], strict=True):
            scores = torch.from_numpy(np.concatenate(outputs[begin:end])).softmax(0)
            best = int(scores.argmax())
            answers.append({"answer": best, "choice": row["choices"][best], "scores": scores.tolist()})
        return answers

    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        right = [answer["answer"] == answer_of(table, at) for at, answer in enumerate(answers)]
        return {"accuracy": float(np.mean(right)) if right else 0.0}

    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        """How sure a wrong answer was."""
        return 0.0 if answer["answer"] == row["answer"] else max(answer["scores"])

    def describe_truth(self, row: Row) -> Any:
        return row["choices"][row["answer"]]

    def describe_answer(self, answer: Mapping[str, Any]) -> Any:
        return answer["choice"]


def options_of(table: Table, row: int) -> Sequence[str]:
    given = table.rows[row]["choices"]
    if not isinstance(given, list | tuple) or len(given) < 2:
        needed, todo = "a list of two options at least is needed", "mend the row"
        raise InputError(table.where(row), f"choices {given!r}", needed, todo)
    return given


def answer_of(table: Table, row: int) -> int:
    """Which of its options is the right one."""
    given, count = table.rows[row]["answer"], len(table.rows[row]["choices"])
    try:
        answer = int(given)
    except (TypeError, ValueError):
        answer = -1
    if not 0 <= answer < count:
        needed = f"the number of an option, 0 to {count - 1}, is needed"
        raise InputError(table.where(row), f"answer {given!r}", needed, "mend the row")
    return answer


def _joined(context: Encoding, question: Encoding, room: int) -> Encoding:
    """A question behind its context, of which as much is kept as there is room for."""
    kept = max(room - len(question.ids), 0)
    return Encoding(*(np.concatenate([a[:kept], b]) for a, b in zip(context, question, strict=True)))


class ChoiceLayer(SummaryHeadLayer):
    """A score for each option, from its summary; cross-entropy over the options of a question."""

    def __init__(self, spec: Choice, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.out = Linear(spec.summary.out_width(self.width), 1)

    def logits(self, summaries: Tensor) -> Tensor:
        """[..., D] -> [...]."""
        return self.out(summaries)[..., 0]

    def scores(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[N], one an option."""
        return self.logits(self.summed(hidden, batch)).float()

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        scores, unit, right = self.scores(hidden, batch), batch.example["unit"], batch.example[RIGHT]
        best = scores.detach().new_full((len(batch.index),), -torch.inf)
        best = best.scatter_reduce(0, unit, scores.detach(), "amax")
        total = torch.zeros_like(best).index_add(0, unit, (scores - best[unit]).exp())
        loss = (total.log() + best)[unit[right]] - scores[right]
        return loss.sum(), {"choice_accuracy": (scores >= best[unit])[right].sum()}

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        return {"mc_logits": self.scores(hidden, batch)}

    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        return list(self.scores(hidden, batch)[:, None].cpu().numpy())
