"""Fine-tuning and prediction against the Trainer and the pipeline of `transformers`.

Same weights, head and all, same rows (docstrings by area: ragged texts), same examples a step, same threads, in turns.
The Trainer pads each batch to its longest text, which is its default, or sorts texts by length first.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import Contestant, ask, turns
from benchmarks.figures import footer, setting_of, told
from benchmarks.lm_figures import summary
from clozeworks.core.errors import InputError, suggest
from clozeworks.machine import doctor

if TYPE_CHECKING:
    from rich.console import RenderableType

    from benchmarks.contestant import Meter
    from clozeworks.data.tables.table import Table
    from clozeworks.inference.text_encoder import TextEncoder
    from clozeworks.tasks.task import Task

PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
CELLS = {
    "train": "the Trainer, its batches padded to their longest text",
    "train-grouped": "the Trainer, texts of like length together",
    "predict": "the pipeline, 32 texts at a time",
}
OURS, SETTING = "ours", "tune.json"
NEAR = 1e-4  # how far the losses of the two may lie apart on the same weights and rows


@dataclass(frozen=True, slots=True)
class Setting:
    cells: tuple[str, ...] = tuple(CELLS)
    recipe: str = "bert_mini"
    vocab: int = 8192
    length: int = 256  # tokens of a text at most
    batch: int = 32
    steps: int = 12  # in a segment
    repetitions: int = 5
    threads: int | None = None  # None: every core this process may use

    @staticmethod
    def quick() -> "Setting":
        """Under two minutes."""
        return Setting(("train", "predict"), steps=4, repetitions=3)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    from benchmarks import peer

    for name in setting.cells:
        if name not in CELLS:
            raise InputError("--only", name, "a cell of this benchmark is needed", suggest(name, CELLS))
    peer.library()
    threads, begin = setting.threads or doctor.cores(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        work = ask("tune", folder, threads, "make")
        if abs(work["losses"]["ours"] - work["losses"]["theirs"]) > NEAR:
            raise RuntimeError(f"the two models are not the same: {work['losses']}")
        cells = {}
        for each in setting.cells:
            kind = "predict" if each == "predict" else "train"
            sides = {
                "ours": Contestant("tune", folder, threads, kind),
                "theirs": Contestant("tune", folder, threads, f"their-{each}"),
            }
            segments = turns(sides, 1, setting.repetitions, steps_of(each, setting, work["rows"]))
            cells[each] = {"peer": CELLS[each], **summary(segments), "segments": segments}
    return {"benchmark": "tune", "dtype": "fp32", "workload": work, "cells": cells,
            **setting_of(threads, PACKAGES, begin)}  # fmt: skip


def steps_of(cell: str, setting: Setting, rows: int) -> int:
    """An epoch where texts of like length come together; those of `predict` have twenty times the texts."""
    if cell == "train-grouped":
        return rows // setting.batch
    return setting.steps if cell == "train" else max(1, setting.steps // 4)


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    work = figures["workload"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "examples/s", "peer's", "ratio", "by processor time", "memory"):
        table.add_column(column, justify="right" if column else "left")
    for name, cell in figures["cells"].items():
        speeds = (f"{cell['sides'][side]['tokens_per_second']:,.1f}" for side in ("ours", "theirs"))
        ratios = (told(cell["ratio"][clock]) for clock in ("seconds", "cpu_seconds"))
        memory = cell["peak_memory_ratio"]
        table.add_row(name, *speeds, *ratios, "?" if memory is None else f"{memory:.2f}")
    lines = [f"{name}: against {cell['peer']}" for name, cell in figures["cells"].items()]
    about = (
        f"{work['recipe']}, {work['parameters']:,} parameters; {work['rows']:,} docstrings of {work['shortest']} to "
        f"{work['longest']} tokens, {work['mean']:.0f} on average; {work['batch']} a step"
    )
    threads = figures["machine"]["threads"]
    return Group(
        about, *lines, "", table, "", f"fp32, {threads} threads; {footer(figures)}; {figures['seconds']:,.0f} s"
    )


# ---- in a process of its own


def make(folder: Path) -> dict[str, Any]:
    """The model as both sides load it, and what it makes of the first rows on each."""
    import torch

    import clozeworks as cw
    from benchmarks import peer
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.inference.text_encoder import TextEncoder, save
    from clozeworks.recipe import build
    from clozeworks.tasks.classify import Classify
    from clozeworks.train.finetune.recipe import infer_template, make_finetune_recipe

    setting = _setting(folder)
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


def work(folder: Path, meter: "Meter", act: str) -> None:
    """Until the meter has had enough; it counts examples."""
    if act in ("their-train", "their-train-grouped"):
        their_training(folder, meter, grouped=act.endswith("grouped"))
        return
    steps = {"train": ours, "predict": predictions, "their-predict": their_predictions}[act](folder)
    if meter.wait():
        for examples in steps:
            if not meter.step(examples, examples):
                return


def ours(folder: Path) -> Iterator[int]:
    import clozeworks as cw
    from clozeworks.optim import parameter_groups
    from clozeworks.train.finetune.batches import LabelledBatches
    from clozeworks.train.loop import fit
    from clozeworks.train.resources import allocator

    allocator.keep_freed()
    encoder, setting = cw.load(folder / OURS), _setting(folder)
    assert encoder.tokenizer is not None
    train = encoder.recipe.train
    labelled = _task(encoder).examples(_table(), encoder.tokenizer)
    lessons = LabelledBatches(labelled, setting.batch, train, encoder.recipe.reading, encoder.tokenizer.need("pad"))
    adam = parameter_groups.build_optimizer(encoder.model, train.optimizer, train.learning_rate)
    for step in fit(encoder.model, lessons, adam, lambda _: train.learning_rate, steps=10**9, clip=train.clip):
        yield len(step.examples)


def predictions(folder: Path) -> Iterator[int]:
    """As many texts a step as in training, answered together with those of twenty more steps, as `predict` does."""
    import clozeworks as cw
    from clozeworks.inference.answers import predict_records

    encoder, setting, table = cw.load(folder / OURS), _setting(folder), _table()
    assert encoder.tokenizer is not None
    many = 20 * setting.batch
    while True:
        for begin in range(0, len(table) - many, many):
            some = table.some(list(range(begin, begin + many)))
            predict_records(encoder.model, _task(encoder), some, encoder.tokenizer, encoder.recipe.reading)
            yield many


def their_training(folder: Path, meter: "Meter", grouped: bool) -> None:
    from benchmarks import peer

    transformers = peer.library()
    transformers.logging.set_verbosity_error()
    setting = _setting(folder)
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
    setting, texts = _setting(folder), [row["text"] for row in _table().rows]
    pipe = transformers.pipeline("text-classification", model=str(folder / "theirs"), device="cpu")
    many = 20 * setting.batch
    while True:
        for begin in range(0, len(texts) - many, many):
            pipe(texts[begin : begin + many], batch_size=setting.batch, truncation=True, top_k=None)
            yield many


def _setting(folder: Path) -> Setting:
    return Setting(**json.loads((folder / SETTING).read_text()))


def _table() -> "Table":
    from clozeworks.corpus import areas
    from clozeworks.data.tables.table import Table

    return Table("docstrings", areas.rows("en"))


def _task(encoder: "TextEncoder") -> "Task":
    task = encoder.recipe.task
    assert task is not None
    return task
