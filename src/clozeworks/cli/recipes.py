"""clozeworks recipes"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from clozeworks.cli.arguments import Idle, JsonOptions, option
from clozeworks.cli.diff import differences, shown

if TYPE_CHECKING:
    from rich.tree import Tree

    from clozeworks.recipe import Recipe


@dataclass(kw_only=True)
class Options(JsonOptions):
    """List the recipes: every named model

    clozeworks recipes
    clozeworks recipes --tree
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(("tree",), lambda options: options.json, "--json names the parent of each recipe"),
    )
    tree: bool = option("as a family tree: what each recipe changes of the one it is made from", False)


def run(options: Options) -> None:
    """Print every recipe in a table or as a tree."""
    from clozeworks.recipes import named
    from clozeworks.screen.console import closing, columns, emit, screen

    made = {name: function() for name, function in named().items()}
    console = screen()
    if options.json:
        kin = family()
        emit({"recipes": [{**facts(r), "parent": kin[name]} for name, r in made.items()]})
        return
    if options.tree:
        console.print(tree(made, console.width))
    else:
        numbers = ("layers", "width", "length", "parameters")
        table = columns("recipe", *numbers, "learns", right=numbers)
        for r in made.values():
            fact = facts(r)
            learns = " + ".join(loss.replace("_", " ") for loss in fact["losses"])
            shape = [str(fact[name]) for name in ("depth", "width", "length")]
            table.add_row(r.name, *shape, f"{fact['parameters']:,}", learns)
        console.print(table)
    closing(console, None, "clozeworks show bert_mini", "clozeworks diff bert_base roberta_base")


def facts(recipe: Recipe) -> dict[str, Any]:
    from clozeworks.recipe import count_parameters

    return {
        "name": recipe.name,
        "depth": recipe.encoder.stack.depth,
        "width": recipe.encoder.width,
        "length": recipe.longest(),
        "vocab": recipe.encoder.vocab,
        "parameters": count_parameters(recipe),
        "losses": [loss.name for loss in recipe.objective.losses],
    }


def family() -> dict[str, str | None]:
    """The recipe that each one calls and changes, as its code says."""
    from clozeworks.recipes import named

    made = named()
    return {
        name: next((called for called in function.__code__.co_names if called in made), None)
        for name, function in made.items()
    }


def changes(before: Recipe, after: Recipe) -> dict[str, tuple[Any, Any]]:
    return {path: pair for path, pair in differences(before, after).items() if path != "name"}


def tree(made: dict[str, Recipe], width: int = 80) -> Tree:
    """Each recipe below the one it changes, with its size and what changes; no change is broken over two lines."""
    from rich.text import Text
    from rich.tree import Tree

    from clozeworks.recipe import count_parameters
    from clozeworks.screen.console import short
    from clozeworks.screen.drawing import wrap_words

    parents = family()

    def grow(branch: Tree, above: str | None, room: int) -> Tree:
        for name in (each for each, parent in parents.items() if parent == above):
            text = Text.assemble((name, "bold"), (f"  {short(count_parameters(made[name]))}", "dim"))
            if above is not None:
                shown_changes = [Text(f"{change}  ", "dim") for change in summary(changes(made[above], made[name]))]
                for line in wrap_words(Text(), shown_changes, room):
                    line.rstrip()
                    text.append("\n").append_text(line)
            grow(branch.add(text), name, room - 4)
        return branch

    return grow(Tree("", hide_root=True, guide_style="dim"), None, width)


def summary(changed: dict[str, tuple[Any, Any]]) -> list[str]:
    """The fields of the model that changed; how it is trained, which `diff` shows, is only counted."""
    model = [f"{path}={shown(after)}" for path, (_, after) in changed.items() if not path.startswith("train.")]
    training = len(changed) - len(model)
    return [*model, *([f"{training} fields of train"] if training else [])]
