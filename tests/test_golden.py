"""Golden losses: five real steps of every recipe, tiny, and of every part that no recipe trains with.

Bit for bit on a machine like the one they were recorded on, to 1e-5 elsewhere. A change that should alter no number
alters none here. To add what is missing, and to record again what was changed on purpose:

    python -m tests.test_golden --write
    python -m tests.test_golden --write --change
"""

import argparse
import contextlib
import copy
import json
import math
import platform
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clozeworks.core import spec
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle
from clozeworks.machine import doctor
from clozeworks.nn.mixers.lstm import LSTM
from clozeworks.nn.window import Window
from clozeworks.objectives import mask, segments
from clozeworks.objectives.losses.sentence_relation import SentenceRelation
from clozeworks.objectives.objective import Corruption, Segments
from clozeworks.optim import parameter_groups, settings
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.optim.optimizers.optimizer import Optimizer
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import named, recipe
from clozeworks.starts.transfer import take_layers
from clozeworks.train.loop import Policy, fit
from clozeworks.train.pretrain import fit_to_data, open_data
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.teacher import fit_to_teacher, make_teacher

FILE = Path(__file__).parent / "golden" / "losses.json"
COMMAND = "python -m tests.test_golden --write"
NEAR = 1e-5  # how far another processor or library may be off
STEPS, LENGTH, VOCAB = 5, 32, 200
TEXT = (
    "a the some every small large red blue old young fox foxes dog hen cat river tree stone house houses road runs "
    "running ran sleeps sleeping slept sees seeing saw near under over behind slowly quickly and but while"
)


# ---- the text


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(TEXT.split(), k=draw.randint(4, 12))).capitalize() + "."


def write_text(folder: Path) -> dict[str, Path]:
    """Documents with annotated entities, and two-sided text; the embedded text is another in each Python."""
    draw = random.Random(1)
    texts = [" ".join(sentence(draw) for _ in range(draw.randint(3, 9))) for _ in range(150)]
    rows = [{"text": text, "entities": [[0, text.index(" ", 8)]]} for text in texts]
    sides = [{"a": sentence(draw), "b": sentence(draw)} for _ in range(300)]
    folders = {"documents": folder / "documents", "sides": folder / "sides"}
    prepare(rows, folders["documents"], vocab=VOCAB, heldout=0)
    prepare(sides, folders["sides"], vocab=VOCAB, heldout=0, pairs=("a", "b"))
    return folders


# ---- what is trained


def shrink(r: Recipe) -> Recipe:
    """The recipe in its own shape, as small as its sharing allows: a step of milliseconds."""
    for _, part in spec.walk(r):
        if isinstance(part, LSTM) and part.width is not None:
            part.width = 32 if part.width == r.encoder.width else 48
    r.encoder.width = 32
    for stack in (r.encoder.stack, r.top):
        cycled = len(stack.block) if isinstance(stack.block, tuple) else 1
        stack.depth = max(2, math.lcm(cycled, stack.share.attention or 1, stack.share.ffn or 1))
        stack.memory = min(stack.memory, LENGTH)
    if r.encoder.embed.width is not None:
        r.encoder.embed.width = 16
    for _, part in spec.walk(r):
        for name, small in (
            ("heads", 2),
            ("inner", 64),
            ("cutoffs", (40, 120)),
            ("streams", 8),
            ("reuse", 12),
            ("left", 9),
            ("target_length", 12),
            ("filters", ((1, 8), (3, 8))),
            ("samples", 50),
        ):
            if name in spec.fields_of(type(part)):
                setattr(part, name, small)
        if isinstance(part, Window) and isinstance(part.dilation, tuple):
            part.dilation = part.dilation[-2:]
        for name, small in (("widths", (8, 24)), ("chunk", 8), ("cells", 64)):
            if name in spec.fields_of(type(part)) and getattr(part, name) is not None:
                setattr(part, name, small)
    train, longest = r.train, r.longest()
    train.phases = tuple(replace(phase, length=LENGTH * phase.length // longest) for phase in train.phases)
    r.objective.segments.length = LENGTH
    train.steps, train.batch_tokens = STEPS, 8 * LENGTH
    train.micro_tokens = 4 * LENGTH if train.micro_tokens else None
    train.learning_rate, train.warmup, train.precision = 1e-2, 2, "fp32"
    return r


def with_format(part: Segments) -> Recipe:
    r = shrink(recipe("bert_mini"))
    r.objective.segments = part
    r.objective.losses = tuple(
        loss for loss in r.objective.losses if "pair_label" in part.writes or not isinstance(loss, SentenceRelation)
    )
    return r


def with_mask(part: Corruption) -> Recipe:
    r = shrink(recipe("roberta_mini"))
    r.objective.corruption = part
    return r


def with_optimizer(part: Optimizer) -> Recipe:
    r = shrink(recipe("bert_mini"))
    r.train.optimizer = part
    return r


KINDS: tuple[tuple[Any, type, Callable[[Any], Recipe]], ...] = (
    (segments, Segments, with_format),
    (mask, Corruption, with_mask),
    (settings, Optimizer, with_optimizer),
)
# Parts that want more than their defaults on this text.
GIVEN: dict[str, dict[str, Any]] = {
    "MaskPhrases": {"stage": "entity"},
}


def cases() -> dict[str, Callable[[], Recipe]]:
    """Every recipe by its name, then every format, mask and optimizer that none of them has."""
    recipes: dict[str, Callable[[], Recipe]] = {
        name: lambda make=make: shrink(make()) for name, make in named().items()
    }
    used = {type(part) for make in named().values() for _, part in spec.walk(make())}
    for module, base, varied in KINDS:
        for name in module.__all__:
            kind = getattr(module, name)
            if issubclass(kind, base) and kind not in used:
                given = {"length": LENGTH} if issubclass(kind, Segments) else {}
                part = kind(**given, **GIVEN.get(name, {}))
                recipes[f"with {name}"] = lambda part=part, varied=varied: varied(copy.deepcopy(part))
    return recipes


def teacher_of(r: Recipe, tokenizer: Tokenizer) -> Bundle | None:
    """For recipes that learn from one, a small model of other random weights."""
    if not r.taught:
        return None
    other = shrink(recipe("bert_mini"))
    other.encoder.vocab, other.encoder.stack.depth, other.train.seed = r.encoder.vocab, 4, 1
    return Bundle(build(other), tokenizer, other)


def losses_of(r: Recipe, data: dict[str, Path]) -> list[float]:
    """The loss of each step, through the loader and the loop that `pretrain` takes."""
    torch.set_num_threads(1)
    corpora, tokenizer = open_data(
        [(data["sides" if isinstance(r.objective.segments, segments.Pairs) else "documents"], 1.0)]
    )
    r = fit_to_data(r, tokenizer)
    bundle = teacher_of(r, tokenizer)
    r = fit_to_teacher(r, bundle)
    model, train, teacher = build(r), r.train, make_teacher(bundle, r, tokenizer, "cpu")
    if bundle is not None and r.distil is not None:
        take_layers(bundle.model, model, r.distil.layers(r.encoder.stack.depth, 4))
    adam = parameter_groups.build_optimizer(model, train.optimizer, train.learning_rate)
    with contextlib.closing(iter(PretrainingBatches(r, corpora, tokenizer.vocabulary()))) as batches:  # pyright: ignore[reportArgumentType]
        policy = Policy(clip=train.clip, seed=train.seed, teacher=teacher)
        schedule = lambda step: learning_rate(step, train)  # noqa: E731
        return [step.loss for step in fit(model, batches, adam, schedule, steps=STEPS, policy=policy)]


# ---- the record


def here() -> dict[str, Any]:
    """All that may decide the last bit of a sum."""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "processor": doctor.machine()["processor"],
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": 1,
    }


def recorded() -> dict[str, Any]:
    return json.loads(FILE.read_text()) if FILE.exists() else {"machines": [], "losses": {}}


def difference(name: str, now: list[float], record: dict[str, Any]) -> str | None:
    """What is wrong with these losses, if anything."""
    if name not in record["losses"]:
        return f"{name} has no golden losses; run `{COMMAND}` to add them"
    entry = record["losses"][name]
    exact = record["machines"][entry["machine"]] == here()
    near = 0.0 if exact else NEAR
    if len(now) == len(entry["losses"]) and all(abs(a - b) <= near for a, b in zip(now, entry["losses"], strict=True)):
        return None
    return (
        f"{name}: {now}, recorded {'on a machine like this' if exact else 'elsewhere'} {entry['losses']}; if that is "
        f"meant, run `{COMMAND} --change`"
    )


def write(change: bool) -> None:
    """Add what is missing; record everything again with `change`, and forget what is no more."""
    record = {"machines": [], "losses": {}} if change else recorded()
    if here() not in record["machines"]:
        record["machines"].append(here())
    with tempfile.TemporaryDirectory() as folder:
        data = write_text(Path(folder))
        for name, make in cases().items():
            if name not in record["losses"]:
                losses = losses_of(make(), data)
                record["losses"][name] = {"machine": record["machines"].index(here()), "losses": losses}
                print(f"{name:24}{losses[0]:.4f} ... {losses[-1]:.4f}")
    lines = ",\n".join(f'    "{name}": {json.dumps(entry)}' for name, entry in record["losses"].items())
    machines = ",\n".join(f"    {json.dumps(machine)}" for machine in record["machines"])
    FILE.write_text(f'{{\n  "machines": [\n{machines}\n  ],\n  "losses": {{\n{lines}\n  }}\n}}\n')


# ---- tests


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_text(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", cases())
def test_losses_are_the_recorded_ones(name, data):
    before = torch.get_num_threads()
    try:
        wrong = difference(name, losses_of(cases()[name](), data), recorded())
    finally:
        torch.set_num_threads(before)
    assert wrong is None, wrong


def test_nothing_is_recorded_that_is_no_more():
    assert set(recorded()["losses"]) <= set(cases()), f"run `{COMMAND} --change`"


def test_the_record_is_exact_where_it_was_made_and_near_elsewhere():
    losses = [1.0, 2.0]
    entry = {"losses": {"some": {"machine": 0, "losses": losses}}}
    same, other = entry | {"machines": [here()]}, entry | {"machines": [here() | {"torch": "0.1"}]}
    off, far = [1.0, 2.0 + 1e-6], [1.0, 2.0 + 1e-4]
    assert difference("some", losses, same) is None
    assert "--change" in str(difference("some", off, same))
    assert difference("some", off, other) is None
    assert "elsewhere" in str(difference("some", far, other))
    assert difference("some", losses[:1], other) is not None
    assert f"run `{COMMAND}`" in str(difference("another", losses, same))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record golden losses.")
    parser.add_argument("--write", action="store_true", required=True, help="add what is missing")
    parser.add_argument("--change", action="store_true", help="record everything again")
    write(parser.parse_args().change)
