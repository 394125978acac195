"""What a user may ask of fine-tuning."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from clozeworks.core.errors import InputError, suggest

DISCRIMINATIVE = 1 / 2.6  # of layers that begin to learn one after another (Howard & Ruder 2018, 3.2)
Features = Literal["last", "sum", "concat", "mix"]


@dataclass(frozen=True, slots=True)
class FinetuneOptions:
    """None: as many as the rows and the encoder suggest (`train/fitting.py`).

    `features` are the layers that the head reads, `further` the steps of pretraining on the task's own text before,
    `layer_decay` the rate of a layer as a part of that of the one above it; `unfreeze` has one layer more learn each
    epoch, from the top; `auxiliary` is the weight of predicting words beside the task, in models that read one way.
    With `from_scratch` the table of words may begin as the vectors in the file `words`, and `freeze_words` keeps it so.
    Of a model that writes: the `form`, and the model that its `decoder` begins as (None: the encoder). `share` of the
    rows are kept for measuring where no others are given; about `rows` of the rest are learned from. `changes`
    are values of recipe fields by path, as text.
    """

    epochs: int | None = None
    batch_size: int = 32
    max_length: int | None = None
    freeze: bool = False
    features: Features = "last"
    from_scratch: bool = False
    gradual_unfreezing: bool = False
    layer_decay: float | None = None
    continue_pretraining: int | None = None
    lm_weight: float = 0.0
    patience: int | None = None
    seeds: int = 1
    architecture: Literal["decoder", "prefix"] = "decoder"
    decoder: str | os.PathLike[str] | None = None
    word_vectors: str | os.PathLike[str] | None = None
    freeze_word_vectors: bool = False
    dev_share: float = 0.1
    limit: int | None = None
    changes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "max_length", "continue_pretraining", "patience", "seeds", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(name, value, "at least 1 is needed", "change it")
        if self.features not in ("last", "sum", "concat", "mix"):
            raise InputError("features", self.features, "last, sum, concat or mix is needed", "choose one")
        if self.architecture not in ("decoder", "prefix"):
            raise InputError("architecture", self.architecture, "decoder or prefix is needed", "choose one")
        if not 0 <= self.dev_share < 1:
            raise InputError("dev_share", self.dev_share, "a share from 0 up to 1 is needed", "0.1 is usual")
        for one, other, why in (
            ("freeze", "from_scratch", "an encoder of fresh weights has nothing to give while it is frozen"),
            ("freeze", "gradual_unfreezing", "a frozen encoder never learns"),
            ("freeze", "layer_decay", "a frozen encoder has no rates"),
            ("from_scratch", "continue_pretraining", "fresh weights have no pretraining that could go on"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise InputError(_option(one), f"together with {_option(other)}", why, "leave one of them out")
        if self.word_vectors is not None and not self.from_scratch:
            needed, todo = "the model brings a table of words that it was trained with", "add --from-scratch"
            raise InputError("--word-vectors", self.word_vectors, needed, todo)
        if self.freeze_word_vectors and self.word_vectors is None:
            raise InputError(
                "--freeze-word-vectors",
                "no --word-vectors",
                "it keeps the vectors of a file",
                "add --word-vectors FILE",
            )

    @property
    def factor(self) -> float | None:
        """The rate of a layer as a part of that of the one above it; None: one rate for all."""
        if self.layer_decay is not None:
            return self.layer_decay
        return DISCRIMINATIVE if self.gradual_unfreezing else None

    @staticmethod
    def of(given: Mapping[str, Any]) -> "FinetuneOptions":
        """Of keywords; an unknown one is refused with what was probably meant."""
        known = [each.name for each in fields(FinetuneOptions)]
        for name in given:
            if name not in known:
                raise InputError("finetune", name, "there is no such option", suggest(name, known))
        return FinetuneOptions(**given)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
