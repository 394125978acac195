"""The sides of the quality comparison: each trains from given weights, and is scored by the same held-out text."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data

from benchmarks import peer
from benchmarks.harness import SETTING
from benchmarks.workload import DATA, MODEL, THEIRS, OneSentence, Workload
from clozeworks.corpus import documents
from clozeworks.data.shards.corpus import MANIFEST, Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate import heldout
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.model import Model
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.optim import parameter_groups
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.optim.settings import AdamW
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from clozeworks.train.loop import Policy, fit
from clozeworks.train.pretraining_batches import PretrainingBatches

HELDOUT = 0.1  # of the documents; few texts are large, and a loss over few predictions says little
TRAINED = "trained"  # the peer's weights at the end


def place(folder: Path, seed: int) -> Path:
    """What both sides of one seed share."""
    return folder / f"seed-{seed}"


def make(folder: Path) -> dict[str, Any]:
    """The text in two splits, once, and for each seed a model with fresh weights under our names and the peer's."""
    setting = json.loads((folder / SETTING).read_text())
    text, data = setting["data"], folder / DATA
    if text is not None and (Path(text) / MANIFEST).is_file():
        data.symlink_to(Path(text).absolute())
    else:
        prepare(documents("en") if text is None else text, data, vocab=setting["vocab"], heldout=HELDOUT)
    tokenizer = Tokenizer.load(data)
    for seed in range(setting["repetitions"]):
        r = recipe(setting["recipe"])
        r.encoder.vocab = tokenizer.size
        r.objective.segments = OneSentence(r.objective.segments.length)
        r.objective.corruption = MaskTokens(rounding="random")  # the peer hides its share on average, too
        r.objective.losses = (MaskedLM(),)
        train = r.train
        train.steps, train.batch_tokens, train.seed = setting["steps"], setting["batch_tokens"], seed
        train.warmup, train.learning_rate, train.precision = setting["warmup"], setting["learning_rate"], "fp32"
        encoder = TextEncoder(build(r), tokenizer, r)
        here = place(folder, seed)
        here.mkdir()
        (here / DATA).symlink_to(data)
        save(encoder, here / MODEL)
        save(encoder, here / THEIRS, "hf")
    work = Workload.open(place(folder, 0))
    fresh = score(work.model(), work)
    return {**work.facts(), "heldout_predictions": fresh["predictions"], "loss_of_fresh_weights": fresh["loss"]}


def score(model: Model, work: Workload) -> dict[str, Any]:
    """The loss on text that neither side saw, under masks that never change; dropout is off."""
    text = Corpus.open(work.folder / DATA, "heldout")
    metrics = heldout.evaluate(model, text, work.recipe.objective, work.vocabulary)
    return {"loss": metrics["masked_lm"], "accuracy": metrics["masked_accuracy"], "predictions": metrics["count"]}


def ours(work: Workload, tokens: int) -> dict[str, Any]:
    """As many steps as have so many real tokens."""
    r = work.recipe
    train, model = r.train, work.model()
    batches = iter(PretrainingBatches(r, [(work.text, 1.0)], work.vocabulary))
    with contextlib.closing(batches):  # pyright: ignore[reportArgumentType]
        first = next(batches)
        train.steps = max(1, round(tokens / sum(batch.real for batch in first)))
    adam = parameter_groups.build_optimizer(model, train.optimizer, train.learning_rate)
    seen, predicted, begin = 0, 0, time.perf_counter()
    batches = iter(PretrainingBatches(r, [(work.text, 1.0)], work.vocabulary))

    def counted() -> Any:
        nonlocal predicted
        for micro in batches:
            predicted += sum(len(batch.labels) for batch in micro if batch.labels is not None)
            yield micro

    with contextlib.closing(batches):  # pyright: ignore[reportArgumentType]
        course = fit(
            model,
            counted(),
            adam,
            lambda step: learning_rate(step, train),
            steps=train.steps,
            policy=Policy(clip=train.clip, seed=train.seed),
        )
        for step in course:
            seen += step.tokens
    seconds = time.perf_counter() - begin
    return {"steps": train.steps, "tokens": seen, "predicted": predicted, "seconds": seconds, **score(model, work)}


def grouped(lengths: np.ndarray, tokens: int, batches: int, seed: int) -> list[list[int]]:
    """Examples of like length, so many real tokens a batch, in random order: little padding, no long or short phase."""
    generator, chosen = np.random.default_rng(seed), []
    while len(chosen) < batches:
        order = generator.permutation(len(lengths))
        order = order[np.argsort(lengths[order], kind="stable")]
        batch = (np.cumsum(lengths[order]) - 1) // tokens
        epoch = np.split(order, np.flatnonzero(np.diff(batch)) + 1)
        chosen += [epoch[at].tolist() for at in generator.permutation(len(epoch))]
    return chosen[:batches]


def theirs(work: Workload) -> dict[str, Any]:
    """The Trainer with its own collator under our schedule; its weights are scored as ours are."""
    transformers = peer.library()
    transformers.logging.set_verbosity_error()
    train, adam = work.recipe.train, work.recipe.train.optimizer
    assert isinstance(adam, AdamW), "the Trainer is given the same optimizer"
    counts = {"tokens": 0, "predicted": 0}

    class Collator(transformers.DataCollatorForLanguageModeling):
        def __call__(self, *given: Any, **more: Any) -> Any:
            batch = super().__call__(*given, **more)
            made.append((int(batch["attention_mask"].sum()), int((batch["labels"] != -100).sum())))
            return batch

    class Count(transformers.TrainerCallback):
        def on_step_end(self, *given: Any, **more: Any) -> None:
            real, masked = made.pop(0)  # the collator may be a batch ahead
            counts["tokens"] += real
            counts["predicted"] += masked

    class Trainer(transformers.Trainer):
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            course: Callable[[int], float] = lambda done: learning_rate(done + 1, train) / train.learning_rate  # noqa: E731
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, course)
            return self.lr_scheduler

        def get_train_dataloader(self) -> Any:
            chosen = grouped(work.examples().lengths, train.batch_tokens, train.steps, train.seed)
            return torch.utils.data.DataLoader(rows, batch_sampler=chosen, collate_fn=self.data_collator)

    made: list[tuple[int, int]] = []
    rows: Any = peer.rows_of(work)
    tokenizer = transformers.AutoTokenizer.from_pretrained(work.folder / THEIRS)
    arguments = transformers.TrainingArguments(
        str(work.folder / "out"),
        per_device_train_batch_size=work.examples_a_step(),  # given, not used: the batches are made above
        learning_rate=train.learning_rate,
        weight_decay=adam.decay,
        adam_beta1=adam.betas[0],
        adam_beta2=adam.betas[1],
        adam_epsilon=adam.eps,
        **{**peer.SETTINGS, "max_steps": train.steps, "max_grad_norm": train.clip, "seed": train.seed},
    )
    trainer = Trainer(
        transformers.BertForMaskedLM.from_pretrained(work.folder / THEIRS, attn_implementation="eager"),
        arguments,
        data_collator=Collator(tokenizer, mlm_probability=0.15),
        train_dataset=rows,
        callbacks=[Count()],
    )
    begin = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - begin
    trainer.model.save_pretrained(work.folder / TRAINED)
    tokenizer.save_pretrained(work.folder / TRAINED)
    scores = score(load(work.folder / TRAINED).model, work)
    return {"steps": train.steps, **counts, "seconds": seconds, **scores}


def train(side: str, folder: Path, seed: int, *tokens: int) -> dict[str, Any]:
    """One side from the weights of a seed; ours until so many tokens."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sides: dict[str, Callable[..., dict[str, Any]]] = {"ours": ours, "theirs": theirs}
    return sides[side](Workload.open(place(folder, seed)), *tokens)
