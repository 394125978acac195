"""GPT's names and config. Its products are stored as (in, out), and queries, keys and values as one."""

from typing import Any

import torch
from torch import Tensor

from clozeworks.core.errors import RecipeError
from clozeworks.exchange.config_table import NO_SUCH_PART, OWN_FORMAT, ConfigTable, Constant, Field, absent
from clozeworks.exchange.heads import CLASSES, Head
from clozeworks.exchange.names import Family, Names, bert
from clozeworks.model import Encoder
from clozeworks.nn.activation import Activation
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.objectives.shift import Shift
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate

ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
HEADS: dict[str, tuple[str, ...]] = {"OpenAIGPTLMHeadModel": ("next_token",), "OpenAIGPTModel": ()}
LAYER, BLOCK = "transformer.h.{i}.", "encoder.stack.blocks.{i}."
JOINED = "mixer.joined"  # of the three, as stored there; never built
NAMES: Names = (
    ("encoder.embed.words.table", "transformer.tokens_embed"),
    ("encoder.embed.positions.table", "transformer.positions_embed"),
    (BLOCK + JOINED, LAYER + "attn.c_attn"),
    (BLOCK + "mixer.out", LAYER + "attn.c_proj"),
    (BLOCK + "mixer_norm", LAYER + "ln_1"),
    (BLOCK + "ffn.up", LAYER + "mlp.c_fc"),
    (BLOCK + "ffn.down", LAYER + "mlp.c_proj"),
    (BLOCK + "ffn_norm", LAYER + "ln_2"),
)
TEMPLATE = InputTemplate(("_start_",), ("_delimiter_",), ("_classify_",), "last", segments=False)
TURNED = ("mixer.out.weight", "ffn.up.weight", "ffn.down.weight")
LAST = Summary("last", None)
FIXED = {"summary_type": "cls_index", "summary_activation": None, "summary_use_proj": True}
CHOICE, RATE = (("out", "multiple_choice_head.summary"),), "summary_first_dropout"
TASKS = (
    Head("OpenAIGPTForSequenceClassification", CLASSES, (("out", "score"),), LAST, usual=0.0, bias=False),
    Head("OpenAIGPTDoubleHeadsModel", ("choice",), CHOICE, LAST, RATE, usual=0.1, fixed=FIXED, besides=("next_token",)),
)


def blank() -> Recipe:
    """GPT's recipe before a config fills in its sizes and rates."""
    stack = Stack(0, Block(Attention(0), FeedForward(0)))
    encoder = Encoder(0, 0, Embed(segments=0, norm=None), stack)
    return Recipe("gpt", encoder, Objective(FullSentences(), Shift(), ()), Train(learning_rate=1e-4))


OURS = "encoder.stack.block."
TABLE = ConfigTable(
    blank,
    (
        Field("vocab_size", "encoder.vocab", default=40478),
        Field("n_positions", "encoder.embed.positions.length", default=512),
        Field("n_embd", "encoder.width", default=768),
        Field("n_layer", "encoder.stack.depth", default=12),
        Field("n_head", OURS + "mixer.heads", default=12),
        Field("afn", OURS + "ffn.activation", default="gelu", codes=ACTIVATIONS),
        Field("resid_pdrop", OURS + "dropout", default=0.1),
        Field("embd_pdrop", "encoder.embed.dropout", default=0.1),
        Field("attn_pdrop", OURS + "mixer.dropout", default=0.1),
        Field("layer_norm_epsilon", OURS + "norm.eps", default=1e-5),
        Field("initializer_range", "encoder.init", default=0.02),
        Constant("tie_word_embeddings", True),
        Constant("torch_dtype", "float32"),
    ),
    unsaid=(OURS + "ffn.inner", "encoder.pooler"),
)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """The inner layer is four times as wide as the model. The head has no tensor of its own: the class implies it."""
    recipe = TABLE.read(config)
    block = recipe.encoder.stack.block_at(0)
    assert block.ffn is not None
    block.ffn.inner = 4 * recipe.encoder.width
    recipe.objective.segments.length = bert.fitting_length(recipe)
    if "OpenAIGPTModel" not in (config.get("architectures") or ()):
        recipe.objective.losses = (NextToken(),)
    return recipe


def write(recipe: Recipe) -> dict[str, Any]:
    config, ffn = TABLE.write(recipe), recipe.encoder.stack.block_at(0).ffn
    if ffn is None or ffn.inner != 4 * recipe.encoder.width:
        raise absent(recipe, OURS + "ffn")
    if any(isinstance(loss, NextToken) and (loss.bias or not loss.tied) for loss in recipe.objective.losses):
        given = "a bias or a table of its own"
        raise RecipeError(f"{recipe.name}.encoder.losses", given, NO_SUCH_PART, OWN_FORMAT)
    return {"model_type": "openai-gpt", "architectures": [bert.class_of(recipe, HEADS)], **config}


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """Products (in, out) as (out, in), and the joined one, (D, 3 D), as those of queries, keys and values."""
    for name in list(tensors):
        if name.endswith(TURNED):
            tensors[name] = tensors[name].t().contiguous()
        elif f".{JOINED}." in name:
            three = tensors.pop(name).chunk(3, -1)
            for part, tensor in zip(("query", "key", "value"), three, strict=True):
                ours = name.replace("joined", part)
                tensors[ours] = (tensor.t() if tensor.ndim == 2 else tensor).contiguous()


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The inverse of `import_hook`."""
    for name in list(tensors):
        if name.endswith(TURNED):
            tensors[name] = tensors[name].t().contiguous()
        elif ".mixer.query." in name:
            three = [tensors.pop(name.replace("query", part)) for part in ("query", "key", "value")]
            joined = torch.cat([each.t() if each.ndim == 2 else each for each in three], -1)
            tensors[name.replace("query", "joined")] = joined


FAMILY = Family(
    model_type="openai-gpt",
    names=NAMES,
    tied={"lm_head.weight": "encoder.embed.words.table.weight"},
    prefix="transformer.",
    read=read,
    write=write,
    import_hook=import_hook,
    export_hook=export_hook,
    heads=TASKS,
    template=TEMPLATE,
)
