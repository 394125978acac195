"""The peer: `transformers`' Trainer with its own collator, at the settings that are best for it."""

import tempfile
from collections import deque
from pathlib import Path
from typing import Any

import torch

from benchmarks.side import Meter
from benchmarks.workload import THEIRS, Workload
from clozeworks.core.errors import InputError
from clozeworks.data.batches.rows import Rows, Source, collate
from clozeworks.optim.settings import AdamW

SETTINGS: dict[str, Any] = {
    "optim": "adamw_torch_fused",
    "train_sampling_strategy": "group_by_length",
    "lr_scheduler_type": "constant",
    "max_grad_norm": 1.0,
    "logging_strategy": "no",
    "save_strategy": "no",
    "eval_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "dataloader_pin_memory": False,
    # Otherwise the Trainer drops special_tokens_mask, and the collator computes it again, row by row, in Python.
    "remove_unused_columns": False,
    "max_steps": 1_000_000,
}


def library() -> Any:
    try:
        import accelerate  # noqa: F401
        import transformers
    except ImportError as error:
        raise InputError("bench", f"{error.name} is not installed", "the peer is needed to compare with",
                         "pip install 'clozeworks[hf]'") from None  # fmt: skip
    return transformers


def train(folder: Path, meter: Meter) -> None:
    """Train until the meter has had enough."""
    transformers = library()
    transformers.logging.set_verbosity_error()
    work = Workload.open(folder)
    sizes: deque[tuple[int, int]] = deque()  # of batches made and not yet trained on

    class Collator(transformers.DataCollatorForLanguageModeling):
        def __call__(self, *given: Any, **more: Any) -> Any:
            batch = super().__call__(*given, **more)
            sizes.append((int(batch["attention_mask"].sum()), batch["input_ids"].numel()))
            return batch

    class Pause(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_training_stop = not meter.step(*sizes.popleft())

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / THEIRS)
    # With dropout on the weights torch's fused attention falls back to a path that is slower than the plain one.
    model = transformers.BertForMaskedLM.from_pretrained(folder / THEIRS, attn_implementation="eager")
    adam = work.recipe.train.optimizer
    assert isinstance(adam, AdamW), "the Trainer is given the same optimizer"
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            out,
            per_device_train_batch_size=work.examples_a_step(),
            learning_rate=work.recipe.train.learning_rate,
            weight_decay=adam.decay,
            adam_beta1=adam.betas[0],
            adam_beta2=adam.betas[1],
            adam_epsilon=adam.eps,
            **SETTINGS,
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            data_collator=Collator(tokenizer, mlm_probability=0.15),
            train_dataset=rows_of(work),
            callbacks=[Pause()],
        )
        if meter.wait():
            trainer.train()


def rows_of(work: Workload) -> list[dict[str, list[int]]]:
    """The examples as a tokenizer of the peer would give them."""
    ragged = work.examples()
    rows = []
    for begin, end in zip(ragged.first[:-1].tolist(), ragged.first[1:].tolist(), strict=True):
        tokens, special = ragged.tokens[begin:end].tolist(), ragged.special[begin:end].astype(int).tolist()
        rows.append({"input_ids": tokens, "attention_mask": [1] * len(tokens), "special_tokens_mask": special})
    return rows


def losses(folder: Path) -> tuple[float, float]:
    """Our loss on packed rows and theirs on padded ones: the same examples, masked the same way, no dropout."""
    transformers = library()
    work = Workload.open(folder)
    objective = work.recipe.objective
    rows = Rows(Source(work.text, objective.segments, objective.corruption, work.vocabulary, 0))
    chosen = [rows.next() for _ in range(work.recipe.train.batch_tokens // objective.segments.length)]
    batch = collate(chosen)
    ragged = [row.epoch.examples(row.index) for row in chosen]
    pieces = [
        (part.tokens[begin:end], part.labels[begin:end])
        for part in ragged
        for begin, end in zip(part.first[:-1], part.first[1:], strict=True)
        if part.labels is not None
    ]
    width = max(len(tokens) for tokens, _ in pieces)
    ids = torch.full((len(pieces), width), work.vocabulary.pad)
    labels, real = torch.full_like(ids, -100), torch.zeros_like(ids)
    for row, (tokens, answers) in enumerate(pieces):
        ids[row, : len(tokens)] = torch.from_numpy(tokens)
        labels[row, : len(tokens)] = torch.from_numpy(answers)
        real[row, : len(tokens)] = 1
    model = transformers.BertForMaskedLM.from_pretrained(folder / THEIRS).eval()
    with torch.no_grad():
        theirs = float(model(input_ids=ids, attention_mask=real, labels=labels).loss)
        mine = work.model()
        ours = float(mine(batch).losses["masked_lm"]) / mine.count(batch)["masked_lm"]
    return ours, theirs
