"""The peer of the comparison of learning: the Trainer on a model of the same class and shape."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peer
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.recipe import Recipe, begin, build
from clozeworks.train.pretrain import choose_precision

MASKED = 0.15  # the collator's own rate
WARM = 4  # steps that are not timed


def export_start(data: Path, recipe: Recipe, out: Path) -> Path:
    """A directory for `transformers` with our weights as they are before the first step."""
    tokenizer = Tokenizer.load(data)
    model = build(recipe)
    begin(recipe, model, [(Corpus.open(data, "train"), 1.0)])
    out.parent.mkdir(parents=True, exist_ok=True)
    save(TextEncoder(model.eval(), tokenizer, recipe), out, "hf")
    return out


def read_blocks(data: Path, recipe: Recipe) -> list[dict[str, list[int]]]:
    """The training text as it runs, cut into blocks between [CLS] and [SEP], as the examples of transformers do it."""
    text, tokenizer = Corpus.open(data, "train"), Tokenizer.load(data)
    special = tokenizer.vocabulary()
    tokens = text.take(np.array([0]), np.array([len(text)])).tokens
    room = recipe.longest() - 2
    blocks = tokens[: len(tokens) // room * room].reshape(-1, room)
    unmasked = [1, *[0] * room, 1]
    return [
        {"input_ids": [special.cls, *block, special.sep], "special_tokens_mask": unmasked} for block in blocks.tolist()
    ]


def train(
    model: Path, rows: list[dict[str, list[int]]], recipe: Recipe, steps: int, out: Path | None, *, fresh: bool
) -> float:
    """Train and save; the CPU seconds of a step."""
    import torch

    transformers = peer.library()
    transformers.logging.set_verbosity_error()
    train = recipe.train
    train.steps = steps
    config = transformers.AutoConfig.from_pretrained(model)
    torch.manual_seed(train.seed)
    network = (
        transformers.AutoModelForMaskedLM.from_config(config)
        if fresh
        else transformers.AutoModelForMaskedLM.from_pretrained(model)
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)

    class Clock(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.began, self.ended = 0.0, 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.ended = time.process_time()
            if state.global_step == WARM:
                self.began = self.ended

    class Trainer(transformers.Trainer):
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            course = lambda done: learning_rate(done + 1, train) / train.learning_rate  # noqa: E731
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, course)
            return self.lr_scheduler

    clock = Clock()
    optimizer: Any = getattr(train.optimizer, "optimizer", train.optimizer)  # the Trainer has one rate for all
    arguments = transformers.TrainingArguments(
        str((out or model).parent / "trainer"),
        per_device_train_batch_size=max(train.batch_tokens // recipe.longest(), 1),
        learning_rate=train.learning_rate,
        weight_decay=optimizer.decay,
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        adam_epsilon=optimizer.eps,
        bf16=choose_precision(recipe, "cpu") == "bf16",
        **{**peer.SETTINGS, "train_sampling_strategy": "random", "max_steps": steps, "seed": train.seed},
    )
    trainer = Trainer(
        network,
        arguments,
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED),
        train_dataset=rows,
        callbacks=[clock],
    )
    trainer.train()
    if out is not None:
        trainer.model.save_pretrained(out)
        tokenizer.save_pretrained(out)
    return (clock.ended - clock.began) / max(steps - WARM, 1)
