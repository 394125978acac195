"""clozeworks recipes"""

from typing import Any

from rich.text import Text
from rich.tree import Tree

from clozeworks import spec
from clozeworks.commands.arguments import Options
from clozeworks.commands.diff import shown
from clozeworks.commands.screen import closing, columns, emit, screen
from clozeworks.pretraining import Recipe, count_parameters
from clozeworks.recipes import named


def run(options: Options) -> None:
    made = {name: function() for name, function in named().items()}
    console = screen()
    if options.json:
        kin = family()
        emit({"recipes": [{**facts(r), "parent": kin[name]} for name, r in made.items()]})
        return
    if options.tree:
        console.print(tree(made))
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
    made = named()
    return {
        name: next((called for called in function.__code__.co_names if called in made), None)
        for name, function in made.items()
    }


def changes(before: Recipe, after: Recipe) -> dict[str, tuple[Any, Any]]:
    return {path: pair for path, pair in spec.diff(before, after).items() if path != "name"}


def tree(made: dict[str, Recipe]) -> Tree:
    parents = family()

    def grow(branch: Tree, name: str) -> Tree:
        for child, parent in parents.items():
            if parent == name:
                text = Text(child, style="bold")
                text.append("\n" + summary(changes(made[name], made[child])), style="not bold dim")
                grow(branch.add(text), child)
        return branch

    trunk = Tree("", hide_root=True, guide_style="dim")
    for root, parent in parents.items():
        if parent is None:
            grow(trunk.add(Text(root, style="bold")), root)
    return trunk


def summary(found: dict[str, tuple[Any, Any]]) -> str:
    """The fields of the model that changed; how it is trained, which `diff` tells, is only counted."""
    model = [f"{path}={shown(after)}" for path, (_, after) in found.items() if not path.startswith("train.")]
    training = len(found) - len(model)
    return "  ".join([*model, *([f"and {training} of train"] if training else [])])
