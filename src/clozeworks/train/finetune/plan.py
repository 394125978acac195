"""What a fine-tuning run will do, before any of it is done."""

import copy
import dataclasses
from dataclasses import dataclass, field
from typing import Any

from clozeworks.core import spec
from clozeworks.core.errors import InputError, suggest
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.char_vocab import opened, texts_of
from clozeworks.exchange.grow import framed
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.optim.settings import LayerRates, SlantedTriangular, Train, Tune
from clozeworks.recipe import Recipe
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.frame import Frame
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.reading import JoinLayers, Reading, ScalarMix, SumLayers
from clozeworks.tasks.span import Span
from clozeworks.tasks.tag import Tag
from clozeworks.tasks.task import Task
from clozeworks.tasks.towers import Towers
from clozeworks.tasks.write import Write
from clozeworks.train.finetune.batches import steps_an_epoch
from clozeworks.train.finetune.options import Wishes
from clozeworks.train.finetune.recipe import (
    FROZEN,
    above,
    asked_of,
    epochs_of,
    expect,
    fitted,
    frame_of,
    optimizer_of,
    rate_of,
    summary_of,
    towers_of,
)
from clozeworks.train.finetune.seq2seq import write_of
from clozeworks.vectors.table import Vectors, load_vectors

TASKS: dict[str, type[Task]] = {
    "classify": Classify,
    "pair": Pair,
    "tag": Tag,
    "span": Span,
    "choice": Choice,
    "write": Write,
    "towers": Towers,
}
TASK = "task."  # begins the path of a field of the task, which in a recipe is one of its losses
LAYERS = 4  # that features are summed or joined of (Devlin et al. 2018, 5.3)


@dataclass(slots=True)
class Plan:
    encoder: TextEncoder
    tokenizer: Tokenizer
    train: Table
    dev: Table | None
    recipe: Recipe  # of the run, or of its first seed
    examples: Labelled  # of the rows of `train`
    wishes: Wishes
    columns: dict[str, str] = field(default_factory=dict)  # of the task, as the file calls them
    notes: list[str] = field(default_factory=list)
    words: Vectors | None = None  # that a table of words begins as
    decoder: TextEncoder | None = None  # that a decoder begins as, where it is another than the encoder

    @property
    def task(self) -> Task:
        assert self.recipe.task is not None
        return self.recipe.task


def kind_of(name: str) -> type[Task]:
    if name not in TASKS:
        raise InputError("task", name, f"one of {', '.join(TASKS)} is needed", suggest(name, TASKS))
    return TASKS[name]


def truth_of(kind: type[Task]) -> tuple[str, ...]:
    """The columns that rows to learn from must have beside the task's own; a text may have a class or a number."""
    return ("label|score",) if issubclass(kind, Classify) else kind().truth


def planned(name: str, encoder: TextEncoder, train: Table, dev: Table | None, wishes: Wishes) -> Plan:
    """The recipe of a run on these rows, with the examples that it learns from."""
    if encoder.recipe.decoder is not None and name != "write":
        needed = "its encoder was trained for its decoder"
        raise InputError(encoder.recipe.name, "a model with a decoder", needed, "take an encoder such as bert_mini")
    task, notes = asked(kind_of(name), encoder, wishes), []
    encoder = _reading(framed(encoder, task.frame), [train, *([dev] if dev else [])], task)
    tokenizer = tokenizer_of(encoder)
    if isinstance(task, Classify) and all(row.get("label") is None and "score" in row for row in train.rows):
        task = dataclasses.replace(task, graded=True)
    for table in (train, *([dev] if dev else [])):
        expect(table, task)
    task = task.fitted(train)
    if isinstance(task, Towers) and dev:
        task = task.measured(dev)
    examples = task.examples(train, tokenizer)
    if dev is not None:
        task.examples(dev, tokenizer)  # what is wrong with them is told now, and not after hours
    decoder = None if wishes.decoder is None else load(wishes.decoder)
    recipe = tuned(encoder.recipe, task, train, len(examples), wishes, decoder and decoder.recipe)
    if decoder is not None:
        notes.append(f"the decoder starts as {decoder.recipe.name}, its cross-attention from fresh weights")
    depth = recipe.encoder.stack.depth
    if wishes.unfreeze and recipe.tune is not None and recipe.tune.epochs < depth + 2:
        notes.append(f"{recipe.tune.epochs} epochs: of {depth} layers and the embedding some never begin to learn")
    words = None if wishes.words is None else load_vectors(wishes.words)
    return Plan(encoder, tokenizer, train, dev, recipe, examples, wishes, notes=notes, words=words, decoder=decoder)


def _reading(encoder: TextEncoder, tables: list[Table], task: Task) -> TextEncoder:
    """The encoder with every word of the rows, where it reads characters."""
    texts = [text for table in tables for text in texts_of(table.rows, task.columns)]
    model, tokenizer = opened(encoder.model, tokenizer_of(encoder), texts)
    if model is encoder.model:
        return encoder
    recipe = copy.deepcopy(encoder.recipe)
    recipe.encoder.vocab = tokenizer.size
    return TextEncoder(model, tokenizer, recipe, dict(encoder.facts), list(encoder.unused))


def tokenizer_of(encoder: TextEncoder) -> Tokenizer:
    if encoder.tokenizer is None:
        raise InputError(encoder.recipe.name, "a model without a tokenizer", "text needs one", "put one beside it")
    return encoder.tokenizer


def asked(kind: type[Task], encoder: TextEncoder, wishes: Wishes) -> Task:
    """The task around this encoder, as one wishes to read it; its labels are still to come."""
    recipe, model = encoder.recipe, encoder.model
    frame = cut(frame_of(recipe, tokenizer_of(encoder)), recipe, wishes.length)
    reading = reading_of(recipe, wishes)
    for wish, usual in (("form", "decoder"), ("decoder", None)):
        if not issubclass(kind, Write) and getattr(wishes, wish) != usual:
            needed = f"it is about texts that are written, and this is {kind.name}"
            raise InputError(f"--{wish}", getattr(wishes, wish), needed, "leave it out")
    for wish, usual in (("freeze", False), ("unfreeze", False), ("features", "last")):
        if issubclass(kind, Towers) and getattr(wishes, wish) != usual:
            needed = "it is about a head, and here the encoder is all there is"
            raise InputError(f"--{wish}", "towers", needed, "leave it out")
    more: dict[str, Any] = {}
    if "summary" in spec.fields_of(kind):
        more["summary"] = summary_of(recipe, frame, pooled=model.encoder.pooler is not None)
    if "asked" in spec.fields_of(kind):
        more["asked"] = asked_of(recipe)
    if issubclass(kind, Write):
        task = write_of(recipe, frame, wishes.form)
    elif issubclass(kind, Towers):
        task = towers_of(recipe, frame, wishes.length)
    else:
        task = kind(frame=frame, **more)
    task.reading = reading
    for path, value in wishes.changes.items():
        if path.startswith(TASK):  # before the rows are read: they may make other examples of them
            spec.set_path(task, path.removeprefix(TASK), value)
    if isinstance(task, Classify | Choice) and not any(path.startswith(f"{TASK}summary") for path in wishes.changes):
        task.summary = above(task)
    spec.check(task, TASK.rstrip("."))
    return task


def cut(frame: Frame, recipe: Recipe, length: int | None) -> Frame:
    """With texts of so many tokens at most, as far as the model has positions."""
    if length is None:
        return frame
    if length > recipe.length:
        raise InputError("--length", length, f"the model has {recipe.length} positions", "use no more")
    return dataclasses.replace(frame, length=length)


def reading_of(recipe: Recipe, wishes: Wishes) -> Reading:
    depth = recipe.encoder.stack.depth
    if wishes.features == "sum":
        return SumLayers(min(LAYERS, depth))
    if wishes.features == "join":
        return JoinLayers(min(LAYERS, depth))
    return ScalarMix(depth) if wishes.features == "mix" else Reading()


def tuned(base: Recipe, task: Task, table: Table, units: int, wishes: Wishes, decoder: Recipe | None = None) -> Recipe:
    """The recipe of a run: published settings, what is wished, and what is set by path."""
    epochs = wishes.epochs or epochs_of(units, wishes.batch, wishes.from_scratch)
    if wishes.unfreeze and wishes.epochs is None:
        epochs = max(epochs, base.encoder.stack.depth + 2)
    each = steps_an_epoch(units, wishes.batch)
    tune = Tune(epochs, wishes.batch, wishes.freeze, wishes.patience, each if wishes.unfreeze else None)
    rate = FROZEN if wishes.freeze else base.train.learning_rate if wishes.from_scratch else rate_of(base)
    train = Train(learning_rate=rate, warmup=0.1, guard=None, optimizer=optimizer_of(base))
    if wishes.factor is not None:
        train.optimizer = LayerRates(train.optimizer, wishes.factor)
    if wishes.unfreeze:
        train.schedule = SlantedTriangular()
    recipe = fitted(base, task, table, units, tune, train, wishes.auxiliary, decoder)
    return _changed(recipe, units, wishes)


def _changed(recipe: Recipe, units: int, wishes: Wishes) -> Recipe:
    """With the fields that were set by path; steps follow epochs and batch unless they are set themselves."""
    recipe = copy.deepcopy(recipe)
    for path, value in wishes.changes.items():
        if not path.startswith(TASK):
            spec.set_path(recipe, path, value)
    recipe.encoder.embed.frozen |= wishes.freeze_words
    tune, train = recipe.tune, recipe.train
    if tune is not None:
        each = steps_an_epoch(units, tune.batch)
        now = {"steps": each * tune.epochs, "save_every": each, "evaluate_every": each}
        recipe.train = dataclasses.replace(
            train, **{name: value for name, value in now.items() if f"train.{name}" not in wishes.changes}
        )
        if wishes.unfreeze and "tune.thaw" not in wishes.changes:
            tune.thaw = each
    spec.check(recipe, recipe.name)
    return recipe
