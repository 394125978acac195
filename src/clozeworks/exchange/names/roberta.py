"""RoBERTa's names and config: BERT's encoder with positions that begin at padding_idx + 1, and a head of its own."""

from typing import Any

from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family
from clozeworks.exchange.names.bert import check_head, class_of, encoder_names, masked_lm, read_encoder, write_encoder
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate

HEADS: dict[str, tuple[str, ...]] = {"RobertaForMaskedLM": ("masked_lm",), "RobertaModel": ()}
HEAD_NAMES = (
    ("heads.masked_lm.dense", "lm_head.dense"),
    ("heads.masked_lm.norm", "lm_head.layer_norm"),
    ("heads.masked_lm", "lm_head"),  # its bias
)
NAMES = (*encoder_names("roberta."), *HEAD_NAMES)
TIED = {
    "lm_head.decoder.weight": "encoder.embed.words.table.weight",
    "lm_head.decoder.bias": "heads.masked_lm.bias",
}


FRAME = InputTemplate(("<s>",), ("</s>", "</s>"), ("</s>",))


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


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    encoder = read_encoder(config, "config.json", offset=config.get("pad_token_id", 1) + 1)
    losses = tuple(masked_lm(config | {"hidden_act": "gelu"}) for _ in found)  # their head has it, whatever the encoder
    assert isinstance(encoder.embed.positions, LearnedPositions)
    segments = FullSentences(length=min(128, encoder.embed.positions.length))
    corruption = MaskTokens(rounding="random", replace=Replace(source="ordinary"))
    train = Train(learning_rate=1e-4, optimizer=AdamW(betas=(0.9, 0.98)))
    return Recipe("roberta", encoder, Objective(segments, corruption, losses), train)


def write(recipe: Recipe) -> dict[str, Any]:
    check_head(recipe, "gelu")
    positions = recipe.encoder.embed.positions
    offset = positions.offset if isinstance(positions, LearnedPositions) else 0
    config = write_encoder(recipe, offset) | {"pad_token_id": offset - 1}
    return {"model_type": "roberta", "architectures": [class_of(recipe, HEADS)], **config}


FAMILY = Family(
    model_type="roberta",
    names=NAMES,
    tied=TIED,
    prefix="roberta.",
    read=read,
    write=write,
    heads=task_heads("Roberta"),
    template=FRAME,
)
