"""DistilBERT's names and config: BERT's encoder without token types and pooler, under other words."""

from typing import Any

from clozeworks.core.errors import RecipeError
from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family
from clozeworks.exchange.names.bert import check_head, class_of, masked_lm, read_encoder, write_encoder
from clozeworks.nn.positions import LearnedPositions
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary

EPS = 1e-12  # of every norm: their config has no field for it
HEADS: dict[str, tuple[str, ...]] = {"DistilBertForMaskedLM": ("masked_lm",), "DistilBertModel": ()}
FIELDS = {  # theirs -> BERT's
    "vocab_size": "vocab_size",
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "max_position_embeddings": "max_position_embeddings",
    "initializer_range": "initializer_range",
    "tie_word_embeddings": "tie_word_embeddings",
    "torch_dtype": "torch_dtype",
}
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


def read(config: dict[str, Any], found: tuple[str, ...]) -> Recipe:
    ours = {name: config[theirs] for theirs, name in FIELDS.items() if theirs in config}
    ours |= {"type_vocab_size": 0, "layer_norm_eps": EPS}
    encoder = read_encoder(ours, "config.json")
    encoder.pooler = None
    positions = encoder.embed.positions
    assert isinstance(positions, LearnedPositions)
    segments = FullSentences(length=min(128, positions.length))
    losses = tuple(masked_lm(ours) for _ in found)
    train = Train(learning_rate=1e-4, optimizer=AdamW(betas=(0.9, 0.98)))
    return Recipe("distilbert", encoder, Objective(segments, MaskTokens(), losses), train)


def write(recipe: Recipe) -> dict[str, Any]:
    check_head(recipe)
    config, block = write_encoder(recipe, typed=False), recipe.encoder.stack.block_at(0)
    for path, value, there in (("stack.block.norm.eps", block.eps, EPS), ("pooler", recipe.encoder.pooler, None)):
        if value != there:
            raise RecipeError(
                f"{recipe.name}.encoder.{path}",
                value,
                f"the Hugging Face class without token types has {there}",
                "keep the model in its own format",
            )
    told = {theirs: config[name] for theirs, name in FIELDS.items()}
    return {"model_type": "distilbert", "architectures": [class_of(recipe, HEADS)], **told}


FAMILY = Family(
    model_type="distilbert",
    names=NAMES,
    tied={"vocab_projector.weight": "encoder.embed.words.table.weight"},
    prefix="distilbert.",
    read=read,
    write=write,
    heads=TASKS,
)
