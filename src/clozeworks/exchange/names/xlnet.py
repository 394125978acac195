"""XLNet's names and config. Its products are stored by head, as (D, H, d)."""

import dataclasses
from typing import Any, Literal

from torch import Tensor

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.config_table import (
    CONFIG,
    NO_SUCH_PART,
    NONE_AS_MINUS_ONE,
    OWN_FORMAT,
    ConfigTable,
    Constant,
    Field,
)
from clozeworks.exchange.heads import CLASSES, Head, answers
from clozeworks.exchange.names import Family, Names, bert
from clozeworks.model import Encoder
from clozeworks.nn.bias.relative import Relative
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.two_stream import TwoStream
from clozeworks.objectives.losses.permuted_lm import PermutedLM
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import AdamW, Train
from clozeworks.recipe import Recipe
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate

HEADS: dict[str, tuple[str, ...]] = {"XLNetLMHeadModel": ("permuted_lm",), "XLNetModel": ()}
LAYER, BLOCK, BLANK = "transformer.layer.{i}.", "encoder.stack.blocks.{i}.", "encoder.stack.blank"
TURNED = ("query", "key", "value", "bias.position")  # W^T there
NAMES: Names = (
    ("encoder.embed.words.table", "transformer.word_embedding"),
    (BLANK, "transformer.mask_emb"),
    (BLOCK + "mixer.query.weight", LAYER + "rel_attn.q"),
    (BLOCK + "mixer.key.weight", LAYER + "rel_attn.k"),
    (BLOCK + "mixer.value.weight", LAYER + "rel_attn.v"),
    (BLOCK + "mixer.out.weight", LAYER + "rel_attn.o"),
    (BLOCK + "mixer.bias.position.weight", LAYER + "rel_attn.r"),
    (BLOCK + "mixer.bias.u", LAYER + "rel_attn.r_w_bias"),
    (BLOCK + "mixer.bias.v", LAYER + "rel_attn.r_r_bias"),
    (BLOCK + "mixer.bias.w", LAYER + "rel_attn.r_s_bias"),
    (BLOCK + "mixer.bias.segment", LAYER + "rel_attn.seg_embed"),
    (BLOCK + "mixer_norm", LAYER + "rel_attn.layer_norm"),
    (BLOCK + "ffn.up", LAYER + "ff.layer_1"),
    (BLOCK + "ffn.down", LAYER + "ff.layer_2"),
    (BLOCK + "ffn_norm", LAYER + "ff.layer_norm"),
    ("heads.permuted_lm.bias", "lm_loss.bias"),
)
PLACES: tuple[Literal["last", "first"], ...] = ("last", "first")  # the published one, and where [CLS] opens a text
TWO = (("summary.dense", "sequence_summary.summary"), ("out", "logits_proj"))
FIXED = {"summary_use_proj": True, "summary_activation": "tanh"}
RATE = "summary_last_dropout"
TASKS = (
    *(
        Head(name, tasks, TWO, Summary(place, "own"), RATE, 0.1, fixed={"summary_type": place, **FIXED})
        for place in PLACES
        for name, tasks in (("XLNetForSequenceClassification", CLASSES), ("XLNetForMultipleChoice", ("choice",)))
    ),
    Head("XLNetForTokenClassification", ("tag",), (("out", "classifier"),), usual=0.0),
    dataclasses.replace(answers("XLNet"), name="XLNetForQuestionAnsweringSimple"),
)


def blank() -> Recipe:
    """XLNet's recipe before a config fills in its sizes and rates."""
    mixer = Attention(0, bias=Relative(segments=True), affine=False)
    stack = TwoStream(0, Block(mixer, FeedForward(0)))
    encoder = Encoder(0, 0, Embed(None, segments=0, norm=None), stack)
    objective = Objective(FullSentences(length=128), Permute(), ())
    return Recipe("xlnet", encoder, objective, Train(learning_rate=1e-4, optimizer=AdamW(eps=1e-6)))


OURS, STACK = "encoder.stack.block.", "encoder.stack."
RATES = (OURS + "mixer.dropout", OURS + "mixer.bias.dropout", OURS + "ffn.dropout", STACK + "dropout")
ONE_RATE = "the Hugging Face class has one rate for all"
TABLE = ConfigTable(
    blank,
    (
        Field("vocab_size", "encoder.vocab", default=32000),
        Field("d_model", "encoder.width", default=1024),
        Field("n_layer", STACK + "depth", default=24),
        Field("n_head", OURS + "mixer.heads", default=16),
        Field("d_inner", OURS + "ffn.inner", default=4096),
        # By erf, where the released code has tanh.
        Field("ff_activation", OURS + "ffn.activation", default="gelu", codes=bert.ACTIVATIONS),
        Constant("attn_type", "bi", "one of bi is supported"),
        Field("clamp_len", OURS + "mixer.bias.clamp", default=-1, convert=NONE_AS_MINUS_ONE),
        Field("dropout", "encoder.embed.dropout", (OURS + "dropout", *RATES), default=0.1, alike=ONE_RATE),
        Field("layer_norm_eps", OURS + "norm.eps", default=1e-12),
        Field("initializer_range", "encoder.init", default=0.02),
        Constant("tie_word_embeddings", True),
        Constant("torch_dtype", "float32"),
    ),
    unsaid=(STACK + "memory",),
)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """What the class remembers between calls is no part of its weights: the model read has no memory."""
    if "XLNetForQuestionAnswering" in (config.get("architectures") or ()):
        needed = "its end of an answer is predicted from its start, which no head here does"
        raise InputError(CONFIG, "XLNetForQuestionAnswering", needed, "take XLNetForQuestionAnsweringSimple")
    recipe = TABLE.read(config)
    recipe.objective.losses = tuple(PermutedLM() for _ in losses)
    return recipe


def write(recipe: Recipe) -> dict[str, Any]:
    config, stack = TABLE.write(recipe), recipe.encoder.stack
    if any(isinstance(loss, PermutedLM) and not (loss.bias and loss.tied) for loss in recipe.objective.losses):
        given = "no bias, or a table of its own"
        raise RecipeError(f"{recipe.name}.encoder.losses", given, NO_SUCH_PART, OWN_FORMAT)
    return {
        "model_type": "xlnet",
        "architectures": [bert.class_of(recipe, HEADS)],
        **config,
        "mem_len": stack.memory or None,
        "use_mems_eval": bool(stack.memory),
        "reuse_len": getattr(recipe.objective.segments, "reuse", None),
    }


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """Products by head, (D, H, d), as products W x: (H d, D), but (D, H d) on the way out."""
    for name, tensor in tensors.items():
        if name == BLANK:
            tensors[name] = tensor.flatten()
        elif _is_product(name) and tensor.ndim == 3:
            flat = tensor.flatten(1)
            tensors[name] = (flat.t() if name.removesuffix(".weight").endswith(TURNED) else flat).contiguous()


def export_hook(recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """The inverse of `import_hook`."""
    heads = getattr(recipe.encoder.stack.block_at(0).mixer, "heads", 1)
    for name, tensor in tensors.items():
        if name == BLANK:
            tensors[name] = tensor[None, None]
        elif _is_product(name):
            flat = tensor.t() if name.removesuffix(".weight").endswith(TURNED) else tensor
            tensors[name] = flat.unflatten(1, (heads, -1)).contiguous()


def _is_product(name: str) -> bool:
    return ".mixer." in name and name.endswith(".weight")


FAMILY = Family(
    model_type="xlnet",
    names=NAMES,
    tied={"lm_loss.weight": "encoder.embed.words.table.weight"},
    prefix="transformer.",
    read=read,
    write=write,
    import_hook=import_hook,
    export_hook=export_hook,
    heads=TASKS,
    unsaid=(STACK + "memory",),  # a text that follows another is given what was read before
    template=InputTemplate((), ("<sep>",), ("<sep>", "<cls>"), "last"),
)
