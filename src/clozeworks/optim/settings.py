"""How a recipe is trained: learning rate, gradient accumulation (micro_tokens), gradient checkpointing (recompute)."""

from dataclasses import dataclass, field
from typing import Literal

from clozeworks.core.bounds import Count, NonNegative, Part, Positive, Processes, Seed, Share, Tokens
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.optim.distil import Distil
from clozeworks.optim.finetune import Finetune
from clozeworks.optim.guard import Guard
from clozeworks.optim.keep import Keep
from clozeworks.optim.optimizers.adagrad import Adagrad
from clozeworks.optim.optimizers.adam import Adam
from clozeworks.optim.optimizers.adamw import AdamW
from clozeworks.optim.optimizers.lamb import Lamb
from clozeworks.optim.optimizers.layer_rates import EmbeddingRate, LayerRates
from clozeworks.optim.optimizers.muon import Muon
from clozeworks.optim.optimizers.optimizer import Optimizer
from clozeworks.optim.schedules import Polynomial, Schedule, SlantedTriangular, WarmupStableDecay, Word

__all__ = [
    "Adagrad",
    "Adam",
    "AdamW",
    "Distil",
    "EmbeddingRate",
    "Finetune",
    "Guard",
    "Keep",
    "Lamb",
    "LayerRates",
    "Muon",
    "Phase",
    "Polynomial",
    "SlantedTriangular",
    "Train",
    "WarmupStableDecay",
]


@dataclass(slots=True)
class Phase(Spec):
    """A share of the steps at one sequence length (BERT: 0.9 at 128, then 0.1 at 512).

    `mask_rate` is that of these steps alone: more is masked, hence predicted, at first than in the end (Ankner et al.
    2023), or in training than in evaluation, which keeps the rate of the objective. None is that rate here too.
    """

    share: Share
    length: Count
    mask_rate: Part | None = None


@dataclass(slots=True)
class Train(Spec):
    """Steps, batch size, learning rate, and what is kept of the run.

    `batch_tokens` is the size of a step in tokens; gradient accumulation works it off in micro-batches of
    `micro_tokens` (None: at once), which changes memory and nothing else. `warmup` of the learning rate below 1 is a
    share of the steps, else a number of them. `schedule` is a word, or a part where it has fields of its own. `phases`
    change the sequence length on the way. `precision` bf16 is mixed precision. Without a `guard`, only what is not
    finite is skipped. `processes` train data parallel: each has the whole model, or with `parallel` = shard a part of
    every tensor; neither changes what is computed, nor does `recompute`, gradient checkpointing, which keeps a block's
    input alone and computes the rest again. `compile` has torch compile the blocks: half a minute at the start, repaid
    on GPUs.
    """

    steps: Count = 10_000
    batch_tokens: Tokens = 4096
    micro_tokens: Tokens | None = None
    learning_rate: Positive = 1e-3
    warmup: NonNegative = 0.05
    schedule: Word | Schedule = "linear"
    optimizer: Optimizer = field(default_factory=AdamW)
    clip: Positive | None = 1.0
    phases: tuple[Phase, ...] = ()
    seed: Seed = 0
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    processes: Processes = 1
    parallel: Literal["replicate", "shard"] = "replicate"
    log_every: Count = 10
    save_every: Count = 500
    evaluate_every: Count = 500
    recompute: bool = False
    compile: bool = False
    keep: Keep = field(default_factory=Keep)
    guard: Guard | None = field(default_factory=Guard)

    def check(self, where: str) -> None:
        if self.phases and abs(sum(phase.share for phase in self.phases) - 1) > 1e-6:
            shares = " + ".join(str(phase.share) for phase in self.phases)
            raise RecipeError(f"{where}.phases", shares, "the shares must add up to 1", "change them")

    def check_length(self, where: str, longest: int) -> None:
        """Raise `RecipeError` if a step is smaller than an example of so many tokens."""
        if self.batch_tokens < longest:
            needed = f"one row is {longest} tokens long"
            raise RecipeError(f"{where}.batch_tokens", self.batch_tokens, needed, f"use at least {longest}")
