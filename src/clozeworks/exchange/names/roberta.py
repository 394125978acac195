"""RoBERTa's names and config: BERT's encoder with positions that begin at padding_idx + 1, and a head of its own."""

import copy
from dataclasses import replace
from typing import Any

from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family, bert
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import AdamW
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate

HEADS: dict[str, tuple[str, ...]] = {"RobertaForMaskedLM": ("masked_lm",), "RobertaModel": ()}
HEAD_NAMES = (
    ("heads.masked_lm.dense", "lm_head.dense"),
    ("heads.masked_lm.norm", "lm_head.layer_norm"),
    ("heads.masked_lm", "lm_head"),  # its bias
)
NAMES = (*bert.encoder_names("roberta."), *HEAD_NAMES)
TIED = {"lm_head.decoder.weight": "encoder.embed.words.table.weight", "lm_head.decoder.bias": "heads.masked_lm.bias"}
TEMPLATE = InputTemplate(("<s>",), ("</s>", "</s>"), ("</s>",))


def task_heads(name: str, rate: str | None = "classifier_dropout") -> tuple[Head, ...]:
    """Their classes of a name: two layers on the first token, or one on every token."""
    two = (("summary.dense", "classifier.dense"), ("out", "classifier.out_proj"))
    first, out = Summary("first", "own", "tanh", early=True), (("out", "classifier"),)
    return (
        Head(f"{name}ForSequenceClassification", CLASSES, two, first, rate),
        Head(f"{name}ForMultipleChoice", ("choice",), out, Summary()),
        Head(f"{name}ForTokenClassification", ("tag",), out, None, rate),
        answers(name),
    )


def blank() -> Recipe:
    """RoBERTa's recipe before a config fills in its sizes and rates."""
    recipe = bert.blank()
    corruption = MaskTokens(rounding="random", replace=Replace(source="ordinary"))
    recipe.name, recipe.objective = "roberta", Objective(FullSentences(), corruption, ())
    recipe.train.optimizer = AdamW(betas=(0.9, 0.98))
    return recipe


TABLE = bert.TABLE.derive(blank)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """Rows of the table before position 0 stand for padding and what is before it."""
    recipe = bert.read_encoder(config, TABLE)
    positions, offset = recipe.encoder.embed.positions, config.get("pad_token_id", 1) + 1
    assert isinstance(positions, LearnedPositions)
    positions.length, positions.offset = positions.length - offset, offset
    recipe.objective.segments.length = bert.fitting_length(recipe)
    recipe.objective.losses = tuple(bert.masked_lm(recipe, "gelu") for _ in losses)  # whatever the encoder has
    return recipe


def write(recipe: Recipe) -> dict[str, Any]:
    bert.check_head(recipe, "gelu")
    return {"model_type": "roberta", "architectures": [bert.class_of(recipe, HEADS)], **write_encoder(recipe)}


def write_encoder(recipe: Recipe) -> dict[str, Any]:
    """The config of an encoder whose positions begin at the padding id + 1."""
    plain = copy.deepcopy(recipe)
    positions, offset = plain.encoder.embed.positions, 0
    if isinstance(positions, LearnedPositions):
        offset = positions.offset
        positions.length, positions.offset = positions.length + offset, 0
    return bert.write_encoder(plain, TABLE) | {"pad_token_id": offset - 1}


FAMILY = Family(
    model_type="roberta",
    names=NAMES,
    tied=TIED,
    prefix="roberta.",
    read=read,
    write=write,
    heads=task_heads("Roberta"),
    template=TEMPLATE,
)
# Families of the same structure and the same names of tensors, and how the names of their classes begin.
ALIKE = {"xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
FAMILIES = tuple(replace(FAMILY, model_type=kind, heads=task_heads(name)) for kind, name in ALIKE.items())


def rename(config: dict[str, Any], model_type: str) -> dict[str, Any]:
    """The config of the same model in a family that is alike."""
    classes = [name.replace("Roberta", ALIKE[model_type], 1) for name in config["architectures"]]
    return config | {"model_type": model_type, "architectures": classes}
