"""Sequence to sequence: generate a text from another (translation, summarization)."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import LARGEST, Bound, Rate
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import NOTHING, RaggedBatch
from clozeworks.core.token_info import Kind
from clozeworks.data.batches import sides
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Row, Table
from clozeworks.data.tokens.tokenizer import Encoding, Tokenizer
from clozeworks.metrics.bleu import resampled
from clozeworks.metrics.rouge import rouge
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.losses.cross_entropy import cross_entropy, mixed
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.next_token import CERTAIN, NextToken
from clozeworks.tasks.encoder_recipe import EncoderRecipe, PretrainedEncoder
from clozeworks.tasks.generation import Form, Generation, Search
from clozeworks.tasks.task import Task, TaskLayer
from clozeworks.tasks.template import InputTemplate

TARGET = 128  # tokens that a target has room for, where the source keeps as many
KINDS: dict[Form, Kind] = {"decoder": "causal", "prefix": "prefix", "causal": "causal"}


@dataclass(slots=True)
class Seq2Seq(Task):
    """Sequence to sequence (seq2seq): p(y | x) = prod_t p(y_t | y_<t, x), cross-entropy of each token of a
    target, the end among them, given those before it and the source.

    Three forms, y being [SEP]-ended in all:

    decoder  the encoder reads [CLS] x [SEP]; a decoder reads [CLS] y from its first token on, and across to all of x.
             Started from pretrained stacks (Rothe et al. 2020), with cross-attention that is new; to `share` is to read
             both sides by one embedding.
    prefix   one stack reads [CLS] x [SEP] y: x sees all of x, y_t sees x and y_1 .. y_t (Dong et al. 2019). It has
             nothing that was not pretrained: the head of the masked tokens, `words`, predicts the next one.
    causal   the same of a stack that reads one way, x too (Radford et al. 2018).

    A target has at most `target_length` tokens, the end among them; one that was cut has no end to learn. `length` of
    the template is for the source, where one stack reads both for the two together. `label_smoothing` is the share of
    the target that is spread over other words (Szegedy et al. 2016), as `smoothing` of `NextToken`.

    Shapes: source [B, S], target [B, T] -> logits [tokens of targets, V]. Costs a pass over source and target in
    training; an answer costs a step of the decoder for each of its tokens and beams.
    """

    name: ClassVar[str] = "seq2seq"
    columns: ClassVar[tuple[str, ...]] = ("source",)
    answer_columns: ClassVar[tuple[str, ...]] = ("target",)
    generates: ClassVar[bool] = True
    scores: ClassVar[Literal["table", "clusters"] | None] = "table"
    architecture: Form = "decoder"
    target_length: Annotated[int, Bound(2, LARGEST)] = 128
    words: MaskedLM | NextToken = field(default_factory=MaskedLM)
    share: bool = False
    label_smoothing: Rate = 0.0
    search: Search = field(default_factory=Search)
    metric_name: Literal["bleu", "rougeL"] = "bleu"

    def check(self, where: str) -> None:
        least = self.template.around(pair=True) + 1
        if self.architecture != "decoder" and self.template.length - self.target_length < least:
            needed = f"of a length of {self.template.length} the source needs {least} at least"
            todo = f"use {self.template.length // 2}, or a greater template.length"
            raise RecipeError(f"{where}.target_length", self.target_length, needed, todo)
        self.only_the_last(where, "the next token is predicted from the last layer")

    def narrowed(self, where: str) -> "tuple[Seq2Seq, str | None]":
        words, name = self.words.narrowed(f"{where}.words")
        return dataclasses.replace(self, words=words), None if name is None else f"words.{name}"

    @classmethod
    def for_encoder(cls, encoder: PretrainedEncoder) -> Self:
        """A model that reads one way writes so too, and the head that it was pretrained with predicts the words."""
        one_way = encoder.architecture == "prefix" and encoder.recipe.reading == "causal"
        return cls(
            template=encoder.template,
            architecture="causal" if one_way else encoder.architecture,
            target_length=min(TARGET, encoder.template.length // 2),
            words=choose_language_head(encoder.recipe),
        )

    @property
    def metric(self) -> str:
        return self.metric_name

    @property
    def generation(self) -> Generation:
        return Generation(self.architecture, self.template, self.target_length, self.search, self.share)

    @property
    def kind(self) -> Kind:
        return KINDS[self.architecture]

    @property
    def sides(self) -> int:
        return 2 if self.architecture == "decoder" else 1

    def computed(self, batch: Batch) -> bool:
        return self.count(batch) > 0

    def count(self, batch: Batch) -> int:
        return 0 if batch.labels is None else len(batch.labels)

    def read_positions(self, batch: Batch) -> Tensor | None:
        return batch.targets

    def build(self, width: int, embed: EmbedLayer) -> "Seq2SeqLayer":
        return Seq2SeqLayer(self, width, embed)

    def with_labels(self, table: Table) -> "Seq2Seq":
        for at, row in enumerate(table.rows):
            _target(row["target"], table, at)
        return dataclasses.replace(self)

    def examples(self, table: Table, tokenizer: Tokenizer, truth: bool = True) -> Labelled:
        """Source and target of each row, one after the other; with `truth`, the next token of the target as label."""
        source = self._source(tokenizer, tokenizer.encode([row["source"] for row in table.rows]))
        texts = [_target(row["target"], table, at) if truth else "" for at, row in enumerate(table.rows)]
        encoded = tokenizer.encode(texts)
        for at, one in enumerate(encoded):
            if truth and not len(one.ids):
                _target("", table, at)
        target = self._target(tokenizer, encoded)
        joined = sides.join(source, target)
        if truth:
            end, whole = self.generation.end(tokenizer), [len(one.ids) < self.target_length for one in encoded]
            _label(joined, self.architecture, end, whole)
        if self.architecture == "prefix":
            inside = np.maximum(joined.position - np.repeat(joined.fields[sides.SOURCE], joined.lengths) + 1, 0)
            joined.order = inside.astype(np.int32)
        if self.architecture != "decoder" and not self.template.segments:
            joined.segment[:] = 0
        labelled = Labelled.one_each(joined)
        labelled.kind, labelled.two_sided, labelled.tokenizer = self.kind, self.sides == 2, tokenizer
        return labelled

    def _source(self, tokenizer: Tokenizer, texts: Sequence[Encoding]) -> RaggedBatch:
        template = self.template
        if self.architecture != "decoder":
            room = template.length - self.target_length + 1  # the end of a target is not read
            template = dataclasses.replace(template, closing=template.between, length=room, own_segment=None)
        return template.lay(tokenizer, texts).examples

    def _target(self, tokenizer: Tokenizer, texts: Sequence[Encoding]) -> RaggedBatch:
        begins = (tokenizer.token(self.generation.start(tokenizer)),) if self.architecture == "decoder" else ()
        length = self.target_length - 1 + len(begins)
        return InputTemplate(begins, (), (), segments=False, length=length).lay(tokenizer, texts).examples

    def answers(self, outputs: Sequence[np.ndarray], labelled: Labelled, table: Table) -> list[dict[str, Any]]:
        """Of the `outputs` of each row: the score, then the tokens."""
        assert labelled.tokenizer is not None
        write = labelled.tokenizer.write
        return [{"text": write(row[1:].astype(int).tolist()), "score": float(row[0])} for row in outputs]

    def score(self, answers: Sequence[dict[str, Any]], table: Table) -> dict[str, float]:
        """BLEU without capitals where no answer has one: the model may know none."""
        texts, wanted = [one["text"] for one in answers], [row["target"] for row in table.rows]
        small = all(text == text.lower() for text in texts)
        right = [
            text.split() == (aim.lower() if small else aim).split() for text, aim in zip(texts, wanted, strict=True)
        ]
        metrics = {"exact_match": float(np.mean(right)), **rouge(texts, wanted)}
        return {"bleu": resampled(texts, wanted, small), **metrics}

    def row_badness(self, answer: Mapping[str, Any], row: Row) -> float:
        """1 - ROUGE-L."""
        return 1 - rouge([answer["text"]], [row["target"]])["rougeL"]

    def describe_answer(self, answer: Mapping[str, Any]) -> Any:
        return answer["text"]


def choose_language_head(recipe: EncoderRecipe) -> MaskedLM | NextToken:
    """The head that the encoder was pretrained with."""
    for loss in recipe.objective.losses:
        if isinstance(loss, Seq2Seq):
            return copy.deepcopy(loss.words)
        if isinstance(loss, MaskedLM):
            return copy.deepcopy(loss)
        if isinstance(loss, NextToken):
            return NextToken(bias=loss.bias, tied=loss.tied)
    return MaskedLM()


def _target(text: object, table: Table, row: int) -> str:
    """The target of a row, which must have something in it."""
    if not isinstance(text, str) or not text.strip():
        needed, todo = "there must be something to write", "fill it, or drop the row"
        raise InputError(table.where(row), "an empty target", needed, todo)
    return text


def _label(joined: RaggedBatch, form: Form, end: int, whole: Sequence[bool]) -> None:
    """Each token of a target is the label of the one before it; the last one's is the end, unless it was cut."""
    source = np.repeat(joined.fields[sides.SOURCE], joined.lengths)
    labels = np.append(joined.tokens[1:], NOTHING)
    labels[joined.first[1:] - 1] = np.where(whole, end, NOTHING)
    begins = source - (0 if form == "decoder" else 1)  # one stack predicts from the last token of a source
    joined.labels = np.where(joined.position < begins, NOTHING, labels).astype(np.int32)


class Seq2SeqLayer(TaskLayer):
    """The language-model head that predicts the next token of a target."""

    def __init__(self, spec: Seq2Seq, width: int, embed: EmbedLayer):
        super().__init__()
        self.words = spec.words.build(width, embed)
        self.mix = NextToken(smoothing=spec.label_smoothing).mix(embed.words.vocab)

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.labels is not None
        words = self.words.read(hidden.at(batch))
        if self.mix is None or not torch.is_grad_enabled():
            loss, right = cross_entropy(words.asked, words.table, words.bias, batch.labels)
            return loss, {NextToken.metric: right}
        loss, right, certain = mixed(words.asked, words.table, words.bias, batch.labels, self.mix)
        return loss, {NextToken.metric: right, CERTAIN: certain}

    def logits(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return self.words.logits(x)

    def outputs(self, hidden: Hidden, batch: Batch) -> list[np.ndarray]:
        raise NotImplementedError("a text is written token by token: see inference.decoding")
