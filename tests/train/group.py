"""One process of a test's world: `group.py DATA OUT`; writes OUT/WAY.json, and checkpoints into OUT/WAY-NAME."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from clozeworks.core.process_group import ProcessGroup
from clozeworks.exchange import checkpoint
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.reversible import Reversible
from clozeworks.nn.stack import Share
from clozeworks.optim import parameter_groups
from clozeworks.optim.optimizers.optimizer import Optimizer
from clozeworks.optim.settings import Adagrad, Adam, AdamW, Lamb, LayerRates
from clozeworks.recipe import Recipe, build
from clozeworks.train import distributed
from clozeworks.train.checkpoint import distributed_checkpoint
from clozeworks.train.loop import Policy, fit
from clozeworks.train.pretrain import fit_to_data, open_data
from clozeworks.train.pretraining_batches import PretrainingBatches
from tests.train.conftest import tiny_recipe

LONG, SHORT = 12, 5
# A start above 0: what has no gradient but rounding errors would else be moved by the sign of these.
EACH: dict[str, tuple[Optimizer, int]] = {
    "adamw": (AdamW(), LONG),
    "adam": (Adam(), SHORT),
    "lamb": (Lamb(), SHORT),
    "adagrad": (Adagrad(start=1e-4), SHORT),
    "layer_rates": (LayerRates(Adam(correction=True), factor=0.5), SHORT),
    "shared": (AdamW(), SHORT),  # layers with the same Parameters
    "reversible": (AdamW(), SHORT),  # layers that are computed back
}


def tiny(optimizer: Optimizer, **train: object) -> Recipe:
    """Without dropout of attention's weights, which the rows beside a row still have a say in."""
    r = tiny_recipe(steps=LONG + 1, optimizer=optimizer, **train)
    r.encoder.stack.block_at(0).mixer.dropout = 0.0  # pyright: ignore[reportAttributeAccessIssue]
    return r


def trained(world: ProcessGroup, data: str, name: str, **train: object) -> tuple[dict[str, Any], Any, Any, Any]:
    optimizer, steps = EACH[name]
    corpora, tokenizer = open_data([(data, 1.0)])
    recipe = tiny(optimizer, **train)
    if name == "shared":
        recipe.encoder.stack.share = Share(attention=1, ffn=1)
    if name == "reversible":
        block = recipe.encoder.stack.block_at(0)
        block.place = "pre"
        recipe.encoder.stack = Reversible(4, block, Share(attention=2), norm=LayerNorm())
    recipe = fit_to_data(recipe, tokenizer)
    model = build(recipe)
    world.place(model)
    adam = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    batches = iter(PretrainingBatches(recipe, corpora, tokenizer.vocabulary(), share=(world.rank, world.size)))
    results: dict[str, Any] = {"loss": [], "norm": [], "tokens": [], "examples": [], "metrics": []}
    policy = Policy(clip=1.0, seed=3, group=world)
    for step in fit(model, batches, adam, lambda _: 1e-3, steps=steps, policy=policy):
        results["loss"].append(step.loss)
        results["norm"].append(step.grad_norm)
        results["tokens"].append(step.tokens)
        results["metrics"].append(step.metrics)
        results["examples"].append(world.joined(step.examples))
    batch = next(batches)[0]
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]
    return results, model, adam, batch


def main(data: str, out: str) -> None:
    torch.set_num_threads(1)
    world = distributed.join("replicate", "cpu")
    checked(world, "replicate", ["adamw", "lamb", "shared", "reversible"], data, out)
    checked(distributed.Shards(world.rank, world.size), "shard", list(EACH), data, out)
    world.leave()


def checked(world: ProcessGroup, way: str, names: list[str], data: str, out: str) -> None:
    report: dict[str, Any] = {"first": world.first(lambda: {"rank": world.rank}), "joined": world.joined((world.rank,))}
    for name in names:
        report[name], model, adam, batch = trained(world, data, name)
        run = Path(out) / f"{way}-{name}"
        if world.main:
            run.mkdir(parents=True)
        world.wait()
        with torch.no_grad():
            model(batch)  # an evaluation may come before a save
        world.scatter(model)
        tensors = distributed_checkpoint.gather_tensors(model, adam)
        if world.sharded:
            distributed_checkpoint.save(world, run, EACH[name][1], tensors, {}, {})
        elif world.main:
            checkpoint.save(run, EACH[name][1], tensors, {})
    world.asked = lambda: signal.SIGTERM if world.rank == world.size - 1 else 0
    report["totals"] = world.totals([world.rank, 1])
    report["stopping"] = world.stopping
    if world.main:
        (Path(out) / f"{way}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
