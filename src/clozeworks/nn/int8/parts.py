"""Weights as int8: a linear part and a table, and which of a model's are so."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.context import Context
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.init import CustomInit
from clozeworks.nn.int8 import products
from clozeworks.nn.int8.products import Int8Weights, spread
from clozeworks.nn.kernels.linear import Linear


class Int8Linear(CustomInit):
    """y = s_W (W8 x) + b, with W8 [D_out, D_in] int8 and a scale for each output: [..., D_in] -> [..., D_out].

    Symmetric, from -127 to 127 (Jacob et al. 2018; by output: Krishnamoorthi 2018). Tokens are made int8, too, where
    the processor multiplies int8 (`products`). What reads `weight` gets it in fp32.
    """

    def __init__(self, wide: int, out: int, bias: bool = True):
        super().__init__()
        self.in_features, self.out_features = wide, out
        self.quantized = nn.Parameter(torch.zeros(out, wide, dtype=torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(out), requires_grad=False)
        self.bias: nn.Parameter | None
        self.register_parameter("bias", nn.Parameter(torch.zeros(out), requires_grad=False) if bias else None)

    @property
    def weight(self) -> Tensor:
        return spread(self.quantized, self.scale)

    @property
    def weights(self) -> Int8Weights:
        return Int8Weights(self.quantized, self.scale, self.bias)

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        _begin(self, name, deviation, generator)

    def forward(self, x: Tensor) -> Tensor:
        return products.linear(x, self.weights)


class Int8Embedding(CustomInit):
    """A table [V, E] of int8 with a scale for each row: ids [...] -> [..., E]."""

    def __init__(self, vocab: int, width: int):
        super().__init__()
        self.num_embeddings, self.embedding_dim = vocab, width
        self.quantized = nn.Parameter(torch.zeros(vocab, width, dtype=torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(vocab), requires_grad=False)

    @property
    def weight(self) -> Tensor:
        """The whole table in fp32, for a head that is tied to it."""
        return spread(self.quantized, self.scale)

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        _begin(self, name, deviation, generator)

    def forward(self, ids: Tensor) -> Tensor:
        return spread(F.embedding(ids, self.quantized), F.embedding(ids, self.scale[:, None])[..., 0])


def _begin(module: Int8Linear | Int8Embedding, name: str, deviation: float, generator: torch.Generator) -> None:
    """Fresh weights N(0, deviation) as int8, drawn once for matrix and scales; a bias stays 0."""
    if name == "quantized":
        fresh = torch.empty(module.quantized.shape).normal_(0.0, deviation, generator=generator)
        quantized, scale = products.quantize_rows(fresh)
        module.quantized.data.copy_(quantized)
        module.scale.data.copy_(scale)


@dataclass(slots=True)
class Int8(Spec):
    """Linear parts of encoder and decoder, and the table of words, as int8; those named in `fp32` stay as they are.

    A name is that of the module: `encoder.stack.blocks.0.ffn.down`. Norms, positions, segments and heads stay fp32:
    they are small, and what is decided in the end hangs on the last of them. A head that is tied to the table reads it
    as it is stored.
    """

    fp32: tuple[str, ...] = ()

    def apply(self, model: nn.Module) -> None:
        """Put parts of int8 in their places, without values as yet. What was shared stays shared."""
        places = quantizable(model)
        for name in self.fp32:
            if name not in places:
                needed, todo = "the model has no linear part or table of that name", "take a name of its own"
                raise RecipeError("encoder.int8.fp32", name, needed, todo)
        made: dict[int, Int8Linear | Int8Embedding] = {}
        for name, old in places.items():
            if name not in self.fp32:
                new = _as_int8(old)
                first = made.setdefault(id(old.weight), new)
                new.quantized, new.scale = first.quantized, first.scale
                if isinstance(old, Linear):
                    cast(Int8Linear, new).bias = old.bias
                path, _, last = name.rpartition(".")
                setattr(model.get_submodule(path), last, new)


def _as_int8(old: Linear | nn.Embedding) -> Int8Linear | Int8Embedding:
    if isinstance(old, Linear):
        return Int8Linear(old.in_features, old.out_features, old.bias is not None)
    return Int8Embedding(old.num_embeddings, old.embedding_dim)


def quantizable(model: nn.Module) -> dict[str, Linear | nn.Embedding]:
    """The parts of a model that can be int8, by name: linear parts and tables of words, of its encoder and decoder."""
    return {
        name: cast(Linear | nn.Embedding, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if name.split(".")[0] in ("encoder", "decoder")
        and (type(module) is Linear or (type(module) is nn.Embedding and ".embed.words.table" in name))
    }


def holds_int8(model: nn.Module) -> bool:
    """Whether something in it is int8."""
    return any(isinstance(module, Int8Linear | Int8Embedding) for module in model.modules())


def refuse_int8(where: object, int8: bool, action: str) -> None:
    """Raise `InputError` if what is to be changed is int8."""
    if int8:
        todo = "take the model that it was made of, and make the new one int8 again"
        raise InputError(where, "an int8 model", f"{action} needs weights in fp32", todo)


def feed_forward(up: nn.Module, down: nn.Module, x: Tensor) -> Tensor | None:
    """Both products with GELU between them in one go, where both are int8."""
    if isinstance(up, Int8Linear) and isinstance(down, Int8Linear):
        return products.feed_forward(x, up.weights, down.weights)
    return None


def attention(parts: tuple[nn.Module, ...], x: Tensor, heads: int, context: Context) -> Tensor | None:
    """Full attention with `parts` query, key, value and out in one go, where all are int8 and documents are known."""
    layout = context.layout
    usual = context.kind == "full" and context.offset == 0 and context.backward is None and context.positions is None
    plain = context.backend == "auto" and context.capture is None and not context.carry
    if layout is None or not usual or not plain or not all(isinstance(part, Int8Linear) for part in parts):
        return None
    *projections, out = (cast(Int8Linear, part).weights for part in parts)
    return products.attention(x, tuple(projections), out, heads, layout)
