"""Fine-tuning and prediction against the Trainer and the pipeline of `transformers`.

Same weights, head and all, same rows (docstrings by area: ragged texts), same examples a step, same threads, in turns.
The Trainer pads each batch to its longest text, which is its default, or sorts texts by length first.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.cells import check_cells, check_losses
from benchmarks.harness import Side, ask, benchmark
from benchmarks.side import Meter, answer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clozeworks.data.tables.table import Table
    from clozeworks.inference.text_encoder import TextEncoder
    from clozeworks.tasks.task import Task

CELLS = {
    "train": "the Trainer, its batches padded to their longest text",
    "train-grouped": "the Trainer, texts of like length together",
    "predict": "the pipeline, 32 texts at a time",
}
OURS = "ours"
NEAR = 1e-4  # how far the losses of the two may lie apart on the same weights and rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The model, and the examples of a step."""

    cells: tuple[str, ...] = tuple(CELLS)
    recipe: str = "bert_mini"
    vocab: int = 8192
    length: int = 256  # tokens of a text at most
    batch: int = 32
    steps: int = 12  # in a segment

    @classmethod
    def quick(cls) -> "Setting":
        """Under two minutes."""
        return cls(cells=("train", "predict"), steps=4, repetitions=3)


@benchmark("tune", ("torch", "transformers", "tokenizers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure every cell with one model."""
    from benchmarks import peer

    check_cells(setting.cells, CELLS)
    peer.library()
    work = ask("tune", folder, setting.cores, "make")
    check_losses(work["losses"], NEAR)
    cells = {}
    for each in setting.cells:
        acts = {"ours": "predict" if each == "predict" else "train", "theirs": f"their-{each}"}
        sides = {side: Side("tune", folder, setting.cores, act) for side, act in acts.items()}
        steps = steps_of(each, setting, work["rows"])
        segments = harness.compare(sides, warmup=1, rounds=setting.repetitions, steps=steps)
        cells[each] = {"peer": CELLS[each], **harness.summarize(segments), "segments": segments}
    return {"dtype": "fp32", "workload": work, "cells": cells}


def steps_of(cell: str, setting: Setting, rows: int) -> int:
    """An epoch where texts of like length come together; those of `predict` have twenty times the texts."""
    if cell == "train-grouped":
        return rows // setting.batch
    return setting.steps if cell == "train" else max(1, setting.steps // 4)


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    work = results["workload"]
    table = harness.make_table("", "examples/s", "peer's", "ratio", "by processor time", "memory")
    for row in harness.compare_speeds(results["cells"], digits=1):
        table.add_row(*row)
    lines = [f"{name}: against {cell['peer']}" for name, cell in results["cells"].items()]
    about = (
        f"{work['recipe']}, {work['parameters']:,} parameters; {work['rows']:,} docstrings of {work['shortest']} to "
        f"{work['longest']} tokens, {work['mean']:.0f} on average; {work['batch']} a step"
    )
    return Group(about, *lines, "", table, "", harness.long_footer(results))


# ---- in a process of its own


def make(folder: Path) -> dict[str, Any]:
    """The model as both sides load it, and what it makes of the first rows on each."""
    import torch

    import clozeworks as cw
    from benchmarks import peer
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.exchange.templates import infer_template
    from clozeworks.inference.text_encoder import TextEncoder, save
    from clozeworks.recipe import build
    from clozeworks.tasks.classify import Classify
    from clozeworks.train.finetune.recipe import make_finetune_recipe

    setting = Setting.read(folder)
    table = _table()
    tokenizer = Tokenizer.train([row["text"] for row in table.rows], vocab=setting.vocab)
    recipe = cw.recipe(setting.recipe)
    recipe.encoder.vocab = tokenizer.size
    frame = infer_template(recipe, tokenizer)
    positions = recipe.encoder.embed.positions
    assert positions is not None
    frame.length = positions.length = setting.length  # pyright: ignore[reportAttributeAccessIssue]
    recipe = make_finetune_recipe(recipe, Classify(template=frame).with_labels(table), len(table))
    encoder = TextEncoder(build(recipe).eval(), tokenizer, recipe)
    save(encoder, folder / OURS)
    save(encoder, folder / "theirs", format="hf")
    lengths = _task(encoder).examples(table, tokenizer).lengths
    transformers = peer.library()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "theirs").eval()
    names = transformers.AutoTokenizer.from_pretrained(folder / "theirs")
    first = table.some(list(range(32)))
    given = names([row["text"] for row in first.rows], padding=True, truncation=True, return_tensors="pt")
    truth = torch.tensor([_task(encoder).labels.index(row["label"]) for row in first.rows])
    with torch.no_grad():
        theirs = float(model(**given, labels=truth).loss)
    from clozeworks.inference.answers import predict_records

    _, ours = predict_records(encoder.model, _task(encoder), first, tokenizer, "full", truth=True)
    return {
        "recipe": setting.recipe,
        "parameters": sum(parameter.numel() for parameter in encoder.model.parameters()),
        "rows": len(table),
        "batch": setting.batch,
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "mean": float(lengths.mean()),
        "losses": {"ours": ours, "theirs": theirs},
    }


def serve(folder: Path, answers: IO[str], act: str) -> None:
    """What a side does: make the model, train or predict; its meter counts examples."""
    if act == "make":
        answer(answers, make(folder))
        return
    meter = Meter(answers)
    if act in ("their-train", "their-train-grouped"):
        their_training(folder, meter, grouped=act.endswith("grouped"))
        return
    meter.follow({"train": ours, "predict": predictions, "their-predict": their_predictions}[act](folder))


def ours(folder: Path) -> Iterator[int]:
    import clozeworks as cw
    from clozeworks.optim import parameter_groups
    from clozeworks.train.finetune.batches import LabelledBatches
    from clozeworks.train.loop import Policy, fit
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    encoder, setting = cw.load(folder / OURS), Setting.read(folder)
    assert encoder.tokenizer is not None
    train = encoder.recipe.train
    labelled = _task(encoder).examples(_table(), encoder.tokenizer)
    lessons = LabelledBatches(labelled, setting.batch, train, encoder.recipe.reading, encoder.tokenizer.need("pad"))
    adam = parameter_groups.build_optimizer(encoder.model, train.optimizer, train.learning_rate)
    policy = Policy(clip=train.clip)
    for step in fit(encoder.model, lessons, adam, lambda _: train.learning_rate, steps=10**9, policy=policy):
        yield len(step.examples)


def predictions(folder: Path) -> Iterator[int]:
    """As many texts a step as in training, answered together with those of twenty more steps, as `predict` does."""
    import clozeworks as cw
    from clozeworks.inference.answers import predict_records

    encoder, setting, table = cw.load(folder / OURS), Setting.read(folder), _table()
    assert encoder.tokenizer is not None
    many = 20 * setting.batch
    while True:
        for begin in range(0, len(table) - many, many):
            some = table.some(list(range(begin, begin + many)))
            predict_records(encoder.model, _task(encoder), some, encoder.tokenizer, encoder.recipe.reading)
            yield many


def their_training(folder: Path, meter: Meter, grouped: bool) -> None:
    from benchmarks import peer

    transformers = peer.library()
    transformers.logging.set_verbosity_error()
    setting = Setting.read(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "theirs")
    # With dropout on the weights torch's fused attention falls back to a path that is slower than the plain one.
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder / "theirs", attn_implementation="eager"
    )

    class Pause(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_training_stop = not meter.step(setting.batch, setting.batch)

    rows = []
    for row in _table().rows:
        given = tokenizer(row["text"], truncation=True, max_length=setting.length)
        rows.append({**given, "labels": model.config.label2id[row["label"]]})
    settings = peer.SETTINGS | {"train_sampling_strategy": "group_by_length" if grouped else "random"}
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            out, per_device_train_batch_size=setting.batch, learning_rate=6e-5, weight_decay=0.01, **settings
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            train_dataset=rows,
            callbacks=[Pause()],
        )
        if meter.wait():
            trainer.train()


def their_predictions(folder: Path) -> Iterator[int]:
    from benchmarks import peer

    transformers = peer.library()
    transformers.logging.set_verbosity_error()
    setting, texts = Setting.read(folder), [row["text"] for row in _table().rows]
    pipe = transformers.pipeline("text-classification", model=str(folder / "theirs"), device="cpu")
    many = 20 * setting.batch
    while True:
        for begin in range(0, len(texts) - many, many):
            pipe(texts[begin : begin + many], batch_size=setting.batch, truncation=True, top_k=None)
            yield many


def _table() -> "Table":
    from clozeworks.corpus import areas
    from clozeworks.data.tables.table import Table

    return Table("docstrings", areas.rows("en"))


def _task(encoder: "TextEncoder") -> "Task":
    task = encoder.recipe.task
    assert task is not None
    return task
