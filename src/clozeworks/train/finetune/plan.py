"""What a fine-tuning run will do, before any of it is done."""

import copy
import dataclasses
from dataclasses import dataclass, field

from clozeworks.core import spec
from clozeworks.core.errors import InputError
from clozeworks.data.batches.labelled import Labelled
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.char_vocab import collect_texts, extend_vocabulary
from clozeworks.exchange.grow import add_template_tokens
from clozeworks.exchange.templates import infer_template
from clozeworks.exchange.unknown_tokens import describe_unknown
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.optim.settings import Finetune, LayerRates, SlantedTriangular, Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.layer_selection import JoinLayers, Reading, ScalarMix, SumLayers
from clozeworks.tasks.task import Task, find_task
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.options import FinetuneOptions
from clozeworks.train.finetune.recipe import (
    FROZEN,
    choose_epochs,
    choose_learning_rate,
    choose_optimizer,
    make_finetune_recipe,
    require_columns,
)
from clozeworks.vectors.table import Vectors, load_vectors

TASK = "task."  # begins the path of a field of the task, which in a recipe is one of its losses
LAYERS = 4  # that features are summed or joined of (Devlin et al. 2018, 5.3)


@dataclass(slots=True)
class Plan:
    """A model, rows, and the recipe of the run that trains one on the other."""

    encoder: TextEncoder
    tokenizer: Tokenizer
    train: Table
    dev: Table | None
    recipe: Recipe  # of the run, or of its first seed
    examples: Labelled  # of the rows of `train`
    options: FinetuneOptions
    columns: dict[str, str] = field(default_factory=dict)  # of the task, as the file calls them
    notes: list[str] = field(default_factory=list)
    word_vectors: Vectors | None = None  # that a table of words begins as
    decoder: TextEncoder | None = None  # that a decoder begins as, where it is another than the encoder
    folds: list[list[int]] = field(default_factory=list)  # the rows of each, where it is cross-validated
    unlabelled: Table | None = None  # rows that a teacher answers

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each table has."""
        tables = {"train": self.train, "dev": self.dev, "unlabelled": self.unlabelled}
        return {name: len(table) for name, table in tables.items() if table}

    @property
    def task(self) -> Task:
        assert self.recipe.task is not None
        return self.recipe.task


def make_plan(name: str, encoder: TextEncoder, train: Table, dev: Table | None, options: FinetuneOptions) -> Plan:
    """The recipe of a run on these rows, with the examples that it learns from."""
    kind = find_task(name)
    if encoder.recipe.decoder is not None and not kind.generates:
        needed = "its encoder was trained for its decoder"
        raise InputError(encoder.recipe.name, "a model with a decoder", needed, "take an encoder such as bert_mini")
    task, notes = make_task(kind, encoder, options), []
    tables = [train, *([dev] if dev else [])]
    encoder = _reading(add_template_tokens(encoder, task.template), tables, task)
    tokenizer = require_tokenizer(encoder)
    task = task.for_rows(train)
    for table in tables:
        require_columns(table, task)
    task = task.with_labels(train)
    if dev:
        task = task.measured(dev)
    notes += task.describe_rows(train)
    examples = task.examples(train, tokenizer)
    if dev is not None:
        task.examples(dev, tokenizer)  # what is wrong with them is reported now, and not after hours
    if unread := describe_unknown(encoder.model, tokenizer, collect_texts(train.rows, task.columns)):
        notes.append(unread)
    decoder = None if options.decoder is None else load(options.decoder)
    recipe = make_finetune_recipe(
        encoder.recipe,
        task,
        len(examples),
        *choose_training(encoder.recipe, len(examples), options),
        lm_weight=options.lm_weight,
        decoder=decoder and decoder.recipe,
        changes={path: value for path, value in options.changes.items() if not path.startswith(TASK)},
        unfreeze_each_epoch=options.gradual_unfreezing,
        freeze_words=options.freeze_word_vectors,
    )
    if decoder is not None:
        notes.append(f"the decoder starts as {decoder.recipe.name}, its cross-attention from fresh weights")
    depth = recipe.encoder.stack.depth
    if options.gradual_unfreezing and recipe.finetune is not None and recipe.finetune.epochs < depth + 2:
        notes.append(f"{recipe.finetune.epochs} epochs: of {depth} layers and the embedding some never begin to learn")
    words = None if options.word_vectors is None else load_vectors(options.word_vectors)
    return Plan(
        encoder, tokenizer, train, dev, recipe, examples, options, notes=notes, word_vectors=words, decoder=decoder
    )


def _reading(encoder: TextEncoder, tables: list[Table], task: Task) -> TextEncoder:
    """The encoder with every word of the rows, where it reads characters."""
    texts = [text for table in tables for text in collect_texts(table.rows, task.columns)]
    model, tokenizer = extend_vocabulary(encoder.model, require_tokenizer(encoder), texts)
    if model is encoder.model:
        return encoder
    recipe = copy.deepcopy(encoder.recipe)
    recipe.encoder.vocab = tokenizer.size
    return TextEncoder(model, tokenizer, recipe, dict(encoder.facts), list(encoder.unused))


def require_tokenizer(encoder: TextEncoder) -> Tokenizer:
    if encoder.tokenizer is None:
        needed = "text needs one"
        raise InputError(encoder.recipe.name, "a model without a tokenizer", needed, "put tokenizer.json beside it")
    return encoder.tokenizer


def make_task(kind: type[Task], encoder: TextEncoder, options: FinetuneOptions) -> Task:
    """The task around this encoder, as the options ask; its labels are still to come."""
    recipe = encoder.recipe
    template = limit_length(infer_template(recipe, require_tokenizer(encoder)), recipe, options.max_length)
    kind.refuse_options(dataclasses.asdict(options))
    pooled = encoder.model.encoder.pooler is not None
    base = PretrainedEncoder(recipe, template, pooled, options.max_length, options.architecture)
    task = kind.for_encoder(base)
    task.reading = choose_layers(recipe, options)
    for path, value in options.changes.items():
        if path.startswith(TASK):  # before the rows are read: they may make other examples of them
            spec.set_path(task, path.removeprefix(TASK), value)
    if not any(path.startswith(f"{TASK}summary") for path in options.changes):
        task = task.fit_head()
    spec.check(task, TASK.rstrip("."))
    return task


def limit_length(template: InputTemplate, recipe: Recipe, length: int | None) -> InputTemplate:
    """With texts of so many tokens at most, as far as the model has positions."""
    if length is None:
        return template
    if length > recipe.length:
        raise InputError("--max-length", length, f"the model has {recipe.length} positions", "use no more")
    return dataclasses.replace(template, length=length)


def choose_layers(recipe: Recipe, options: FinetuneOptions) -> Reading:
    """The layers that the head reads."""
    depth = recipe.encoder.stack.depth
    few = min(LAYERS, depth)
    readings = {"last": Reading(), "sum": SumLayers(few), "concat": JoinLayers(few), "mix": ScalarMix(depth)}
    return readings[options.features]


def choose_training(base: Recipe, units: int, options: FinetuneOptions) -> tuple[Finetune, Train]:
    """How long and at what rates a run learns: published settings, and what is wished."""
    epochs = options.epochs or choose_epochs(units, options.batch_size, options.from_scratch)
    if options.gradual_unfreezing and options.epochs is None:
        epochs = max(epochs, base.encoder.stack.depth + 2)
    tune = Finetune(epochs, options.batch_size, options.freeze, options.patience)
    fresh = base.train.learning_rate if options.from_scratch else choose_learning_rate(base, units)
    rate = FROZEN if options.freeze else fresh
    train = Train(learning_rate=rate, warmup=0.1, guard=None, optimizer=choose_optimizer(base))
    if options.factor is not None:
        train.optimizer = LayerRates(train.optimizer, options.factor)
    if options.gradual_unfreezing:
        train.schedule = SlantedTriangular()
    return tune, train
