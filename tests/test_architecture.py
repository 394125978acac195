"""The shape of the house: who may import whom, and how big files, functions and specs may grow."""

import ast
import dataclasses
import functools
import gc
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import clozeworks
from clozeworks.core.spec import Spec
from docs.tools.architecture import ROOMS

ROOT = Path(clozeworks.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
RANK = {room: number for number, room in enumerate(ROOMS)}
TOP = {"__init__", "__main__"}  # the names that the package itself has
MODELS = (
    "bert",
    "roberta",
    "albert",
    "distilbert",
    "xlnet",
    "gpt",
    "elmo",
    "longformer",
    "reformer",
    "ernie",
    "glove",
    "word2vec",
)


@functools.cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_of(file): file for file in FILES}


def imports(file: Path) -> set[str]:
    """Modules below `clozeworks` that a file imports, anywhere in it: in functions and for types alone, too."""
    modules = set()
    for node in ast.walk(parse(file)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            parts = (node.module or "").split(".")
            if parts[0] == "clozeworks":
                below = ".".join(parts[1:])
                names = (f"{below}.{alias.name}".strip(".") for alias in node.names)
                modules |= {name if name in MODULES else below for name in names}
        elif isinstance(node, ast.Import):
            names = (alias.name.removeprefix("clozeworks.") for alias in node.names)
            modules |= {name for name in names if name in MODULES}
    return modules - {"", module_of(file)}


IMPORTS = {name: imports(file) for name, file in MODULES.items()}


def room_of(module: str) -> str:
    return module.split(".")[0]


def test_the_hallway_is_empty():
    assert {room_of(module) for module in MODULES} == set(ROOMS) | TOP
    assert {file.stem for file in ROOT.glob("*.py")} == {*TOP, "api", "model", "recipe"}


def test_rooms_import_upwards_only():
    wrong = [
        f"{module} may not import {other}"
        for module, others in IMPORTS.items()
        if room_of(module) not in TOP
        for other in others
        if RANK[room_of(other)] > RANK[room_of(module)]
    ]
    assert not wrong


def test_no_module_imports_itself_by_way_of_others():
    state: dict[str, bool] = {}  # False: its imports are being followed

    def follow(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module, True), f"a cycle: {' -> '.join((*path[path.index(module) :], module))}"
        if module not in state:
            state[module] = False
            for other in sorted(IMPORTS[module]):
                follow(other, (*path, module))
            state[module] = True

    for module in MODULES:
        if room_of(module) not in TOP:
            follow(module, ())


def test_no_module_outside_tasks_knows_one_task_from_another():
    """A task says of itself whatever others ask of it; who imports none cannot test for one with isinstance."""
    from clozeworks.tasks.task import Task, list_tasks

    library = [kind for kind in list_tasks().values() if kind.__module__.startswith("clozeworks.tasks.")]
    assert Task not in library
    concrete = {kind.__module__.removeprefix("clozeworks.") for kind in library}
    assert concrete <= MODULES.keys()
    outside = {name: others & concrete for name, others in IMPORTS.items() if room_of(name) != "tasks"}
    assert not {name: others for name, others in outside.items() if others}


def test_parts_are_not_named_after_models():
    for file in FILES:
        here = file.relative_to(ROOT).as_posix()
        if here.startswith(("recipes/", "exchange/names/", "cli/", "quickstart/")):
            continue
        tree = parse(file)
        names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        for name in [file.stem, *names]:
            words = name.lower().replace("_", " ").split()
            assert not any(model in words or name.lower().startswith(model) for model in MODELS), f"{here}: {name}"


def test_files_hold_one_idea():
    long = {str(file.relative_to(ROOT)): n for file in FILES if (n := len(file.read_text().splitlines())) > 450}
    assert not long
    assert not [file for file in FILES if file.stem in ("utils", "common", "misc", "helpers")]


ONE_OF_A_KIND = {"cli", "recipes", "objectives/losses", "exchange/names"}  # commands, recipes, losses, families


def test_a_directory_holds_at_most_twenty_modules():
    sizes = {
        folder.relative_to(ROOT).as_posix(): len([file for file in folder.glob("*.py") if file.stem != "__init__"])
        for folder in {file.parent for file in FILES}
    }
    assert not {folder: size for folder, size in sizes.items() if size > 20 and folder not in ONE_OF_A_KIND}


def definitions() -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Every class and function of the library, with where it stands."""
    for file in FILES:
        for node in ast.walk(parse(file)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node


def length(node: ast.FunctionDef | ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_functions_fit_on_a_screen():
    assert not [where for where, node in definitions() if isinstance(node, ast.FunctionDef) and length(node) > 60]


def test_what_is_public_says_what_it_is():
    """Every public class, and every public function over 15 lines, has a docstring."""
    assert not [
        where for where, node in definitions()
        if not node.name.startswith("_") and not ast.get_docstring(node)
        and (isinstance(node, ast.ClassDef) or length(node) > 15)
    ]  # fmt: skip


def test_names_say_what_they_hold():
    """Whatever is found, told or laid is something: rows, a match, a message; in the library and in all around it."""
    empty = {"found", "told", "laid"}
    around = [ROOT.parents[1] / folder for folder in ("tests", "studies", "benchmarks", "examples", "docs")]
    for file in [*FILES, *(file for folder in around for file in sorted(folder.rglob("*.py")))]:
        text = file.read_text()
        assert file.stem not in empty, file
        if empty & set(re.findall(r"\w+", text)):  # as a word of a sentence, it may be
            for node in ast.walk(parse(file)):
                names = {getattr(node, field, None) for field in ("id", "arg", "name", "attr", "asname")}
                assert not names & empty, f"{file}:{node.lineno}"  # pyright: ignore[reportAttributeAccessIssue]


def test_every_spec_refuses_an_unknown_field():
    for module in pkgutil.walk_packages([str(ROOT)], "clozeworks."):
        if not module.name.endswith(("__main__", "unpickle")):
            importlib.import_module(module.name)
    gc.collect()  # slots=True leaves the first class behind until then
    parts, pending = [], [Spec]
    while pending:
        part = pending.pop()
        pending += part.__subclasses__()
        parts.append(part)
    assert len(parts) > 15
    for part in parts:
        assert "__dict__" not in dir(part), f"{part.__name__} is not @dataclass(slots=True)"
        if part is not Spec:
            assert dataclasses.is_dataclass(part)
            assert len(dataclasses.fields(part)) <= 12 or part.__name__ == "Train", part.__name__


# Parts of families that have no recipe yet: `--set` reaches them, the conformance table measures the masks and formats,
# and the others are held to their formulas.
AWAITED = {
    "Adam",
    "AttentionScores",
    "Cosine",
    "HiddenStates",
    "LayerRates",
    "Muon",
    "Relations",
    "Shaw",
    "SkipgramTable",
    "SlantedTriangular",
    "Within",
}


def test_every_recipe_uses_every_part():
    """Parts that no recipe uses are deleted; what a labelled file adds to one is in none that has a name."""
    from clozeworks.core.spec import known_parts, walk
    from clozeworks.nn.mixer import Bias
    from clozeworks.objectives import Corruption, Loss, Segments
    from clozeworks.recipes import named

    used = {type(part) for make in named().values() for _, part in walk(make())}
    bases = {Bias, Corruption, Loss, Segments}
    elsewhere = tuple(f"clozeworks.{each}" for each in ("tasks", "optim.finetune", "nn.pooling", "nn.int8", "compress"))
    unused = {
        name for name, part in known_parts().items()
        if part not in used and part not in bases and not part.__subclasses__()
        and not part.__module__.startswith(elsewhere)
    }  # fmt: skip
    assert unused == AWAITED
