"""clozeworks show"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import RECIPE, JsonOptions, argument, changes
from clozeworks.cli.diff import shown
from clozeworks.core import spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clozeworks.nn.stack import Stack
    from clozeworks.recipe import Recipe
    from clozeworks.train.resources.cost import Cost


@dataclass(kw_only=True)
class Options(JsonOptions):
    """Show the parts of a recipe: parameters, FLOPs, memory

    Nothing is allocated, so the largest model is shown at once.

    clozeworks show bert_base
    clozeworks show bert_mini --set encoder.stack.depth=8
    """

    recipe: str = argument("RECIPE", RECIPE)
    set: list[str] = changes()


def run(options: Options) -> None:
    """Print the parts of a recipe, and what it takes to train it."""
    from rich.text import Text

    from clozeworks.cli import named
    from clozeworks.screen.console import closing, columns, emit, facts, screen, short, size
    from clozeworks.train.resources.cost import measure_cost

    recipe = named.recipe(options.recipe, options.set)
    cost = measure_cost(recipe)
    if options.json:
        emit({**as_json(recipe, cost), "recipe": spec.to_dict(recipe)})
        return
    console = screen()
    table = columns("part", "", "parameters", "FLOPs a token", right=("parameters", "FLOPs a token"))
    for name, what, parameters, flops in rows(recipe, cost):
        style = "" if name.startswith(" ") else "bold"
        table.add_row(Text(name, style=style), what, f"{parameters:,}", f"{flops:,.0f}" if flops else "")
    console.print(table)
    console.print()
    train, forward, step = recipe.train, short(cost.flops), short(3 * cost.flops * cost.tokens)
    named_optimizer = type(train.optimizer).__name__
    memory = (
        f"{size(cost.memory)} to train: {size(cost.fixed)} for weights, gradients and {named_optimizer}, "
        f"{size(cost.step - cost.fixed)} for {cost.rows} x {cost.length} tokens at once, "
        f"{size(cost.saving)} for a checkpoint on its way to the disk; the rest is torch and slack"
    )
    rows_of = [
        ("examples", shown(recipe.objective.segments)),
        ("hidden", shown(recipe.objective.corruption)),
        ("training", f"{train.steps:,} steps of {train.batch_tokens:,} tokens, learning rate {train.learning_rate:g}"),
        ("arithmetic", f"{forward} FLOPs a token forward, {step} a training step"),
        ("memory", memory),
    ]
    console.print(facts(rows_of))
    other = "bert_base" if options.recipe != "bert_base" else "roberta_base"
    closing(console, None, f"clozeworks diff {other} {options.recipe}")


def rows(recipe: Recipe, cost: Cost) -> Iterator[tuple[str, str, int, float]]:
    """Name, spec, parameters and arithmetic of each part, parts of parts indented."""
    encoder = recipe.encoder
    yield "embed", f"{encoder.vocab:,} x {encoder.embed.width or encoder.width}", *cost.of("encoder.embed")
    for name in ("words", "positions", "segments", "norm", "project"):
        if (counted := cost.of(f"encoder.embed.{name}"))[0]:
            yield f"  {name}", "", *counted
    yield from _stack(recipe, cost, "encoder", "stack", encoder.stack)
    if recipe.decoder is not None:
        if (counted := cost.of("decoder.embed"))[0]:
            yield "decoder's embed", f"{encoder.vocab:,} tokens", *counted
        yield from _stack(recipe, cost, "decoder", "decoder", recipe.decoder.stack)
    if (counted := cost.of("encoder.pooler"))[0]:
        yield "pooler", shown(encoder.pooler), *counted
    for loss in recipe.objective.losses:
        yield loss.name, shown(loss), *cost.of(f"heads.{loss.name}")
    yield "all", "", cost.parameters, cost.flops


def _stack(recipe: Recipe, cost: Cost, side: str, name: str, stack: Stack) -> Iterator[tuple[str, str, int, float]]:
    from clozeworks.nn.stack import Share

    block = stack.block_at(0)
    alike = all(stack.block_at(layer) == block for layer in range(stack.depth))
    shared = f", {shown(stack.share)}" if stack.share != Share() else ""
    yield name, f"{stack.depth} layers of width {recipe.encoder.width}{shared}", *cost.of(f"{side}.stack")
    for part in ("mixer", "cross", "ffn", "norm"):
        if (counted := cost.of_blocks(part, side))[0]:
            what = getattr(block, part, None)
            yield f"  {part}", shown(what) if alike and part != "norm" else "", *counted


def as_json(recipe: Recipe, cost: Cost) -> dict[str, Any]:
    parts, above = {}, ""
    for name, _, count, flops in rows(recipe, cost):
        above = above if name.startswith(" ") else name
        path = f"{above}.{name.strip()}" if name.startswith(" ") else name
        parts[path] = {"parameters": count, "flops_per_token": flops}
    parts.pop("all")
    return {
        "name": recipe.name,
        "parameters": cost.parameters,
        "parameters_without_heads": cost.without_heads,
        "flops_per_token": cost.flops,
        "memory_bytes": cost.memory,
        "parts": parts,
    }
