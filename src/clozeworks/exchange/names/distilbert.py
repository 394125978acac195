"""DistilBERT's names and config: BERT's encoder without token types and pooler, under other words."""

from typing import Any

from clozeworks.core.errors import RecipeError
from clozeworks.exchange.config_table import OWN_FORMAT
from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family, bert
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import AdamW
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary

EPS = 1e-12  # of every norm: their config has no field for it
HEADS: dict[str, tuple[str, ...]] = {"DistilBertForMaskedLM": ("masked_lm",), "DistilBertModel": ()}
FIELDS = {  # theirs -> BERT's, where it has another name
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
LACKING = ("type_vocab_size", "layer_norm_eps", "position_embedding_type")
LAYER, BLOCK = "distilbert.transformer.layer.{i}.", "encoder.stack.blocks.{i}."
NAMES = (
    ("encoder.embed.words.table", "distilbert.embeddings.word_embeddings"),
    ("encoder.embed.positions.table", "distilbert.embeddings.position_embeddings"),
    ("encoder.embed.norm", "distilbert.embeddings.LayerNorm"),
    (BLOCK + "mixer.query", LAYER + "attention.q_lin"),
    (BLOCK + "mixer.key", LAYER + "attention.k_lin"),
    (BLOCK + "mixer.value", LAYER + "attention.v_lin"),
    (BLOCK + "mixer.out", LAYER + "attention.out_lin"),
    (BLOCK + "mixer_norm", LAYER + "sa_layer_norm"),
    (BLOCK + "ffn.up", LAYER + "ffn.lin1"),
    (BLOCK + "ffn.down", LAYER + "ffn.lin2"),
    (BLOCK + "ffn_norm", LAYER + "output_layer_norm"),
    ("heads.masked_lm.dense", "vocab_transform"),
    ("heads.masked_lm.norm", "vocab_layer_norm"),
    ("heads.masked_lm.bias", "vocab_projector.bias"),
)
TWO = (("summary.dense", "pre_classifier"), ("out", "classifier"))
FIRST = Summary("first", "own", "relu")
TASKS = (
    Head("DistilBertForSequenceClassification", CLASSES, TWO, FIRST, "seq_classif_dropout", 0.2),
    Head("DistilBertForMultipleChoice", ("choice",), TWO, FIRST, "seq_classif_dropout", 0.2),
    Head("DistilBertForTokenClassification", ("tag",), (("out", "classifier"),)),
    answers("DistilBert", "qa_dropout", 0.1),
)


def blank() -> Recipe:
    """DistilBERT's recipe before a config fills in its sizes and rates."""
    recipe = bert.blank()
    recipe.encoder.embed.segments, recipe.encoder.pooler = 0, None
    recipe.name, recipe.objective = "distilbert", Objective(FullSentences(), MaskTokens(), ())
    recipe.train.optimizer = AdamW(betas=(0.9, 0.98))
    return recipe


TABLE = bert.TABLE.derive(blank, names=FIELDS, without=LACKING)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    recipe = bert.read_encoder(config, TABLE)
    recipe.objective.losses = tuple(bert.masked_lm(recipe) for _ in losses)
    return recipe


def write(recipe: Recipe) -> dict[str, Any]:
    bert.check_head(recipe)
    block = recipe.encoder.stack.block_at(0)
    for path, value, there in (("stack.block.norm.eps", block.eps, EPS), ("pooler", recipe.encoder.pooler, None)):
        if value != there:
            needed = f"the Hugging Face class without token types has {there}"
            raise RecipeError(f"{recipe.name}.encoder.{path}", value, needed, OWN_FORMAT)
    return {"model_type": "distilbert", "architectures": [bert.class_of(recipe, HEADS)], **TABLE.write(recipe)}


FAMILY = Family(
    model_type="distilbert",
    names=NAMES,
    tied={"vocab_projector.weight": "encoder.embed.words.table.weight"},
    prefix="distilbert.",
    read=read,
    write=write,
    heads=TASKS,
)
