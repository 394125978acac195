"""Token classification (named entity recognition, parts of speech): which tag has each word?"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Natural, Rate
from clozeworks.core.dropout import dropout
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import NOTHING, RaggedBatch
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import PLACES, Row, Table
from clozeworks.data.tokens.cut import guessed as guessed_cut
from clozeworks.data.tokens.given_words import Pieces, joined, pieces, word_starts
from clozeworks.data.tokens.tokenizer import Encoding, Tokenizer
from clozeworks.metrics.classes import Confusion, OfClass, confusion
from clozeworks.metrics.entities import accuracy, by_type, entities, overall
from clozeworks.metrics.schemes import Scheme, complete, follows, guessed, named
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.heads.crf import CRF
from clozeworks.tasks.task import Answers, HeadLayer, HeadParts, PretrainedHead, Task
from clozeworks.tasks.windows import Window, windows

KNOWN = "tag_known"  # a column of the batch: the labels are true ones, not only places


@dataclass(slots=True)
class Tag(Task):
    """Token classification: named entity recognition, part-of-speech tagging, Chinese word segmentation.

    logits = W dropout(h) + b at the first piece of each word: cross-entropy of its tag (Devlin et al. 2018, 5.3).

    With pieces="all" every piece of a word predicts its tag, and the first is believed. With `crf` the tags of a row
    depend on each other: -log p of all of them, divided by their number like the other loss, which it is while the
    steps between tags weigh nothing. `scheme` is what the tags spell entities by, read off the rows: of a type that is
    there all its tags are known. None of them is `plain`.

    A row that is longer than the template is read in windows that have `overlap` pieces in common, half of a window at
    most. Each word is learned and answered in the one that has most around it: no word is lost, and none counts twice.
    A chain of tags goes through all windows of its row, which then are one unit. No token is marked,
    where a template marks some (Beltagy et al. 2020, code). With `crf` and `readers` over a frozen encoder this is
    TagLM (Peters et al. 2017).

    `cut` is how a text becomes words, where it is given whole: read off the words that were learned from.

    Shapes: [B, L, D] -> logits [words, tags]. Costs one pass of the encoder a window; a CRF adds O(words tags^2).
    """

    name: ClassVar[str] = "tag"
    columns: ClassVar[tuple[str, ...]] = ("tokens",)
    answer_columns: ClassVar[tuple[str, ...]] = ("tags",)
    target_field: ClassVar[str] = KNOWN
    pipeline_tag: ClassVar[str | None] = "token-classification"
    scheme: Scheme | None = None
    pieces: Literal["first", "all"] = "first"
    crf: CRF | None = None
    dropout: Rate = 0.1
    overlap: Natural = 64
    cut: Literal["spaces", "words", "characters"] | None = None

    def check(self, where: str) -> None:
        if self.crf is not None and self.pieces == "all":
            raise RecipeError(f"{where}.pieces", "all", "a chain has one tag a word", 'use "first", or crf=None')

    @classmethod
    def for_encoder(cls, encoder: PretrainedEncoder) -> Self:
        """With a chain of tags around an encoder that was pretrained for minutes, which knows little of what stands
        beside a word (docs/tag.md)."""
        return cls(template=encoder.template, crf=CRF() if encoder.recipe.brief else None)

    @classmethod
    def from_head(cls, head: PretrainedHead) -> Self:
        return cls(template=head.template, labels=head.labels, scheme=named(head.labels), dropout=head.dropout)

    def head_parts(self) -> HeadParts:
        return HeadParts(dropout=self.dropout, own={"crf": self.crf, "task_encoder": self.task_encoder})

    @property
    def word_cut(self) -> Literal["spaces", "words", "characters"] | None:
        return self.cut or "words"

    @property
    def metric(self) -> str:
        return "f1" if self.spells else "accuracy"

    @property
    def spells(self) -> bool:
        """Whether the tags spell entities."""
        return self.scheme not in (None, "plain")

    def count(self, batch: Batch) -> int:
        return len(batch.labels) if self.computed(batch) and batch.labels is not None else 0

    def read_positions(self, batch: Batch) -> Tensor | None:
        return None if self.everywhere else batch.targets

    def build(self, width: int, embed: EmbedLayer) -> "TagLayer":
        return TagLayer(self, width, embed)

    def with_labels(self, table: Table) -> "Tag":
        rows = [_list(row["tags"]) for row in table.rows]
        scheme = self.scheme or guessed(rows)
        labels = complete({tag for row in rows for tag in row}, scheme)
        if len(labels) < 2:
            given = f"one tag only, {labels[0]}" if labels else "no tag"
            raise InputError(table.name, given, "two tags are needed to tell apart", "add rows with another tag")
        cut = self.cut or guessed_cut([word for row in table.rows for word in _list(row["tokens"])])
        return dataclasses.replace(self, labels=tuple(labels), scheme=scheme, cut=cut)

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        """The pieces of the words of each row, long rows in windows; a label at the pieces that are to be predicted."""
        rows = [_list(row["tokens"]) for row in table.rows]
        labels = self._truth(table, rows) if truth else [np.zeros(len(words), np.int32) for words in rows]
        room = self.template.length - self.template.around(pair=False)
        texts, targets, owner = [], [], []
        for number, (words, marks) in enumerate(zip(pieces(tokenizer, rows), labels, strict=True)):
            words = [Pieces(word.ids[:room], min(word.lead, room - 1)) for word in words]
            sizes = np.array([len(word.ids) for word in words], np.int64)
            for window in windows(sizes, room, min(self.overlap, room // 2)):
                texts.append(_text(words[window.begin : window.end]))
                targets.append(self._marks(window, texts[-1], sizes, marks))
                owner.append(number)
        filled = dataclasses.replace(self.template, marks=False).lay(tokenizer, texts)
        filled.examples.labels[filled.side == 0] = np.concatenate([np.zeros(0, np.int32), *targets])
        if truth:
            filled.examples.fields[KNOWN] = np.ones(len(texts), bool)
        return self._units(filled.examples, np.array(owner, np.int64))

    def marks(self, tokens: Tensor, tokenizer: Tokenizer | None) -> Tensor | None:
        return None

    def _units(self, examples: RaggedBatch, owner: np.ndarray) -> Labelled:
        if self.crf is None:
            return Labelled(examples, np.arange(len(owner) + 1), owner)
        rows, first = np.unique(owner, return_index=True)
        return Labelled(examples, np.append(first, len(owner)), rows)

    def _marks(self, window: Window, text: Encoding, sizes: np.ndarray, marks: np.ndarray) -> np.ndarray:
        """What each piece of a window is to predict, NOTHING at the pieces of words that another one answers."""
        word = np.repeat(np.arange(window.begin, window.end), sizes[window.begin : window.end])
        asked = (word >= window.own) & (word < window.done)
        if self.pieces == "first":
            asked &= text.word_starts
        return np.where(asked, marks[word], NOTHING).astype(np.int32)

    def _truth(self, table: Table, rows: list[list[str]]) -> list[np.ndarray]:
        number = {label: at for at, label in enumerate(self.labels)}
        numbers = []
        for at, words in enumerate(rows):
            tags = _list(table.rows[at]["tags"])
            if len(tags) != len(words):
                given = f"{len(words)} tokens and {len(tags)} tags"
                raise InputError(table.where(at), given, "each token has one tag", "mend the row")
            known = [number[tag] if tag in number else self.number(tag, table, at) for tag in tags]
            numbers.append(np.array(known, np.int32))
        return numbers

    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        """tags and scores, the chance of each; and the entities they spell, from word `start` to before word `end`.

        The score of an entity is the mean of those of its words. Of a text that was cut, the words are given, and of
        each entity its `characters`.
        """
        words = [_list(row["tokens"]) for row in table.rows]
        tags: list[list[str]] = [[] for _ in words]
        scores: list[list[float]] = [[] for _ in words]
        examples = labelled.examples
        owner = np.repeat(labelled.row, np.diff(labelled.first))
        for at, (row, output) in enumerate(zip(owner.tolist(), outputs, strict=True)):
            here = slice(examples.first[at], examples.first[at + 1])
            first = examples.word_starts[here][examples.labels[here] != NOTHING]
            tags[row] += [self.labels[int(each)] for each in output[first, 0]]
            scores[row] += output[first, 1].tolist()
        return [self._answer(*each) for each in zip(table.rows, words, tags, scores, strict=True)]

    def _answer(self, row: Row, words: list[str], tags: list[str], scores: list[float]) -> dict[str, Any]:
        places = row.get(PLACES)
        answer: dict[str, Any] = {"tags": tags, "scores": scores}
        if places is not None:
            answer = {"tokens": words, **answer}
        if not self.spells:
            return answer
        answer["entities"] = spelled = []
        for entity in entities(tags, self.scheme or "plain"):
            inside = slice(entity.start, entity.end)
            described = {"type": entity.type, "start": entity.start, "end": entity.end, "text": joined(words[inside])}
            if places is not None:
                begin, end = places[entity.start][0], places[entity.end - 1][1]
                described |= {"text": row["text"][begin:end], "characters": [begin, end]}
            spelled.append({**described, "score": float(np.mean(scores[inside]))})
        return answer

    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        """accuracy of tags; precision, recall and f1 of entities, read leniently, or f1 as the mean over plain tags."""
        truth, predicted = [_list(row["tags"]) for row in table.rows], [answer["tags"] for answer in answers]
        right = accuracy(truth, predicted)
        if not self.spells:
            return {"accuracy": right, "f1": confusion([*chain(*truth)], [*chain(*predicted)]).macro_f1}
        all_ = overall(by_type(truth, predicted, self.scheme or "plain"))
        return {"accuracy": right, "precision": all_.precision, "recall": all_.recall, "f1": all_.f1}

    def class_report(self, answers: Answers, table: Table) -> tuple[dict[str, OfClass], Confusion | None]:
        truth, predicted = [row["tags"] for row in table.rows], [each["tags"] for each in answers]
        if not self.spells:
            matrix = confusion([*chain(*truth)], [*chain(*predicted)], self.labels)
            return matrix.classes, matrix
        types = by_type(truth, predicted, self.scheme or "plain")
        return {name: OfClass(each.precision, each.recall, each.f1, each.there) for name, each in types.items()}, None

    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        """How many tags are wrong."""
        return sum(one != other for one, other in zip(answer["tags"], row["tags"], strict=True))

    def describe_answer(self, answer: Mapping[str, Any]) -> Any:
        return answer["tags"]


def _list(given: Any) -> list[str]:
    """Words or tags, given as a list or with spaces between them."""
    return given.split() if isinstance(given, str) else [str(each) for each in given]


def _text(words: list[Pieces]) -> Encoding:
    ids = np.array([index for word in words for index in word.ids], np.int32)
    return Encoding(ids, word_starts(words), np.zeros((len(ids), 2), np.int64))


class TagLayer(HeadLayer):
    """Logits of the tags at the first piece of each word, or at all of them; with a CRF, of whole sequences."""

    def __init__(self, spec: Tag, width: int, embed: EmbedLayer):
        super().__init__(spec, width, embed)
        self.rate = spec.dropout
        self.out = Linear(self.width, len(spec.labels))
        self.crf = None if spec.crf is None else spec.crf.build(len(spec.labels), allowed(spec.labels, spec.scheme))

    def logits(self, hidden: Hidden, batch: Batch) -> Tensor:
        """[T, labels], of the targets alone."""
        assert batch.targets is not None
        key = None if hidden.key is None else hidden.key.at("tag").tokens(batch.targets, batch.tokens.numel())
        read = self.read(hidden, batch).flatten(0, 1).index_select(0, batch.targets)
        return self.out(dropout(read, self.rate, key)).float()

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.labels is not None
        logits = self.logits(hidden, batch)
        right = (logits.argmax(-1) == batch.labels).sum()
        if self.crf is None:
            return F.cross_entropy(logits, batch.labels, reduction="sum"), {"tag_accuracy": right}
        return self.crf(logits, batch.labels, self._chains(batch)), {"tag_accuracy": right}

    def _chains(self, batch: Batch) -> Tensor:
        """Words of each unit: those of its examples stand one after another."""
        unit = batch.example["unit"][self._owner(batch)]
        return unit.unique_consecutive(return_counts=True)[1]

    def _owner(self, batch: Batch) -> Tensor:
        """[T]: the example of each target."""
        assert batch.targets is not None
        return batch.token_info.document.flatten()[batch.targets]

    def named_logits(self, hidden: Hidden, batch: Batch) -> dict[str, Tensor]:
        return {"logits": self.out(self.read(hidden, batch))}

    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        """Of each target the number of its tag, and the chance of that."""
        logits = self.logits(hidden, batch)
        if self.crf is None:
            chance, best = logits.softmax(-1).max(-1)
        else:
            lengths = self._chains(batch)
            best = self.crf.best(logits, lengths)
            chance = self.crf.chances(logits, lengths).gather(1, best[:, None])[:, 0]
        counts = torch.bincount(self._owner(batch), minlength=len(batch.firsts)).tolist()
        predicted = torch.stack([best.to(chance.dtype), chance], 1).cpu().numpy()
        return np.split(predicted, np.cumsum(counts)[:-1])


def allowed(labels: Sequence[str], scheme: Scheme | None) -> Tensor:
    """[K + 1, K + 1] bool: which tag may follow which, the last row and column being the edges of a row."""
    tags = [*labels, None]
    return torch.tensor([[follows(a, b, scheme or "plain") for b in tags] for a in tags])
