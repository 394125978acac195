"""What a user may ask of fine-tuning."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from clozeworks.core.errors import InputError, suggest

FEW = 1000  # rows, below which all are learned from: a tenth of them would measure little
SHARE = 0.1  # of more rows that is put aside
STEPS = 500  # of pretraining that continues with text of the domain
DISCRIMINATIVE = 1 / 2.6  # of layers that begin to learn one after another (Howard & Ruder 2018, 3.2)
Features = Literal["last", "sum", "concat", "mix"]
Architecture = Literal["decoder", "prefix"]


@dataclass(frozen=True, slots=True)
class FinetuneOptions:
    """Options of fine-tuning; None: as the rows and the encoder suggest (`train/finetune/recipe.py`).

    `features` are the layers that the head reads, `continue_pretraining` the steps of pretraining on the task's own
    text before, and on `text` of the domain beside it (`STEPS` where there is some), `layer_decay` the rate of a
    layer as a part of that of the one above it; `gradual_unfreezing` has one layer more learn each epoch, from the
    top; `lm_weight` is the weight of predicting words beside the task, in causal models. `unlabelled` are rows without
    labels, a file or rows as for `train`, that are learned as a teacher answers them. With `from_scratch` the
    table of words may begin as the vectors in the file `word_vectors`, and `freeze_word_vectors` keeps it so. Of
    sequence to sequence: the `architecture`, and the model that its `decoder` begins as (None: the encoder).
    `dev_share` of the rows are held out for evaluation where no others are given (None: a tenth of `FEW` or more,
    of fewer nothing); the model is trained on about `limit` of the rest. With `folds` the metrics come from cross-
    validation, and the model is trained on all rows. `changes` are values of recipe fields by path, as text.
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
    text: Sequence[str | os.PathLike[str]] = ()
    unlabelled: Any = None
    lm_weight: float = 0.0
    patience: int | None = None
    seeds: int = 1
    architecture: Architecture = "decoder"
    decoder: str | os.PathLike[str] | None = None
    word_vectors: str | os.PathLike[str] | None = None
    freeze_word_vectors: bool = False
    dev_share: float | None = None
    folds: int | None = None
    limit: int | None = None
    changes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "max_length", "continue_pretraining", "patience", "seeds", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(name, value, "at least 1 is needed", "change it")
        for name, known in (("features", Features), ("architecture", Architecture)):
            if (given := getattr(self, name)) not in get_args(known):
                raise InputError(name, given, f"one of {', '.join(get_args(known))} is needed", "choose one")
        if self.dev_share is not None and not 0 <= self.dev_share < 1:
            raise InputError("dev_share", self.dev_share, "a share from 0 up to 1 is needed", "0.1 is usual")
        if self.folds is not None and self.folds < 2:
            raise InputError("folds", self.folds, "at least 2 are needed", "5 is usual")
        for one, other, why in (
            ("freeze", "from_scratch", "an encoder of fresh weights has nothing to give while it is frozen"),
            ("freeze", "gradual_unfreezing", "a frozen encoder never learns"),
            ("freeze", "layer_decay", "a frozen encoder has no rates"),
            ("from_scratch", "continue_pretraining", "fresh weights have no pretraining that could be continued"),
            ("from_scratch", "text", "fresh weights have no pretraining that could be continued"),
            ("folds", "dev_share", "every row is measured in a fold of its own, and none is put aside"),
            ("folds", "patience", "early stopping chooses by rows that are put aside, and folds use all"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise InputError(_option(one), f"together with {_option(other)}", why, "leave one of them out")
        if self.folds and self.seeds > 1:
            needed = "the best of several seeds is chosen by rows that are put aside, and folds use all"
            raise InputError("--folds", "together with --seeds", needed, "leave one of them out")
        if self.word_vectors is not None and not self.from_scratch:
            needed, todo = "the model brings a table of words that it was trained with", "add --from-scratch"
            raise InputError("--word-vectors", self.word_vectors, needed, todo)
        if self.freeze_word_vectors and self.word_vectors is None:
            todo = "add --word-vectors FILE"
            raise InputError("--freeze-word-vectors", "no --word-vectors", "it keeps the vectors of a file", todo)

    @property
    def factor(self) -> float | None:
        """The rate of a layer as a part of that of the one above it; None: one rate for all."""
        if self.layer_decay is not None:
            return self.layer_decay
        return DISCRIMINATIVE if self.gradual_unfreezing else None

    @property
    def pretraining_steps(self) -> int:
        """Of pretraining that continues before the task is learned; 0: none."""
        return self.continue_pretraining or (STEPS if self.text else 0)

    @property
    def chooses(self) -> str | None:
        """The option that needs rows to choose a model by, which then are put aside."""
        return "--patience" if self.patience is not None else "--seeds" if self.seeds > 1 else None

    def choose_share(self, rows: int) -> float:
        """The share of so many rows that is put aside: as asked, or a tenth where they are not few, where a model is
        to be chosen by them, or where `limit` leaves as many unused."""
        if self.dev_share is not None:
            if not self.dev_share and self.chooses:
                needed = "it chooses by rows that are put aside, or by those of --dev"
                raise InputError(self.chooses, "together with a dev_share of 0", needed, "leave one of them out")
            return self.dev_share
        spared = self.limit is not None and self.limit <= (1 - SHARE) * rows
        return SHARE if rows >= FEW or self.chooses or spared else 0.0

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
