"""The shape of the house: who may import whom, where names of models may stand, how big a file may grow."""

import ast
import dataclasses
import gc
import importlib
import pkgutil
from pathlib import Path

import pytest

import clozeworks
from clozeworks.spec import Spec

ROOT = Path(clozeworks.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# What each package or module of the library may import from it, besides itself.
MAY_IMPORT = {
    "errors": set(),
    "atomic": {"errors"},
    "draws": set(),
    "written": {"errors"},
    "seal": set(),
    "spec": {"errors", "written"},
    "key": {"draws"},
    "batch": {"key"},
    "examples": {"batch"},
    "recall": {"batch"},
    "doctor": {"errors", "atomic"},
    "plot": {"errors", "atomic"},
    "nn": {"spec", "batch", "key", "errors"},
    "objectives": {"spec", "batch", "examples", "nn", "draws", "errors"},
    "model": {"spec", "batch", "key", "nn", "objectives", "errors"},
    "pretraining": {"spec", "model", "nn", "objectives", "train.settings", "errors"},
    "data": {"spec", "batch", "examples", "draws", "errors", "atomic", "seal"},
    "corpus": {"data.text.documents", "draws", "errors"},
    "train": {"spec", "batch", "key", "draws", "examples", "recall", "model", "objectives", "pretraining", "data",
              "evaluate", "doctor", "errors", "atomic", "seal", "exchange.tensors"},
    "evaluate": {"spec", "batch", "draws", "examples", "recall", "model", "objectives", "data", "corpus.planted",
                 "corpus.compounds", "plot", "errors"},
    "exchange": {"spec", "batch", "nn", "model", "objectives", "pretraining", "data.tokens.tokenizer", "train.settings",
                 "train.checkpoint", "text_encoder", "errors", "atomic"},
    "generate": {"batch", "model", "errors"},
    "text_encoder": {"spec", "batch", "generate", "examples", "nn", "objectives", "model", "pretraining",
                     "data.tokens.tokenizer", "exchange", "train.checkpoint", "errors", "atomic"},
    "recipes": {"spec", "model", "nn", "objectives", "pretraining", "train.settings", "errors"},
}  # fmt: skip
OPEN = {"__init__", "__main__", "api", "cli", "commands", "quickstart", "bench"}  # the top of the house sees all of it
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


def place(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(file: Path) -> set[str]:
    """Dotted names below `clozeworks` that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            module = node.module or ""
            if module == "clozeworks":
                found |= {alias.name for alias in node.names}
            elif module.startswith("clozeworks."):
                below = module.removeprefix("clozeworks.")
                folder = ROOT.joinpath(*below.split("."))
                modules = {f"{below}.{alias.name}" for alias in node.names if (folder / f"{alias.name}.py").is_file()}
                found |= modules or {below}
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("clozeworks.") for alias in node.names if alias.name.startswith("clozeworks.")
            }
    return found


def allowed(name: str, rules: set[str]) -> bool:
    return any(name == rule or name.startswith(rule + ".") for rule in rules)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_go_one_way(file):
    here = place(file)
    if here in OPEN:
        return
    for name in imports(file):
        if name.split(".")[0] != here:
            assert allowed(name, MAY_IMPORT[here]), f"{file.relative_to(ROOT)} may not import clozeworks.{name}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_parts_are_not_named_after_models(file):
    here = file.relative_to(ROOT).as_posix()
    if here.startswith(("recipes/", "exchange/names/")) or place(file) in OPEN:
        return
    names = [file.stem] + [
        node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef | ast.FunctionDef)
    ]
    for name in names:
        words = name.lower().replace("_", " ").split()
        assert not any(model in words or name.lower().startswith(model) for model in MODELS), f"{here}: {name}"


def test_files_hold_one_idea():
    long = {str(file.relative_to(ROOT)): n for file in FILES if (n := len(file.read_text().splitlines())) > 450}
    assert not long
    assert not [file for file in FILES if file.stem in ("utils", "common", "misc", "helpers")]


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
            assert len(dataclasses.fields(part)) <= 20, part.__name__


# Parts of families that have no recipe yet: `--set` reaches them, the conformance table measures the masks and formats,
# and the others are held to their formulas.
AWAITED = {
    "Adagrad",
    "Adam",
    "AttentionScores",
    "Choice",
    "HiddenStates",
    "LayerRates",
    "Pairs",
    "Polynomial",
    "Relations",
    "Shaw",
    "SinusoidalPositions",
    "SlantedTriangular",
    "Within",
}


def test_every_recipe_uses_every_part():
    """Parts that no recipe uses are deleted."""
    from clozeworks.nn.mixer import Bias
    from clozeworks.objectives import Corruption, Loss, Segments
    from clozeworks.recipes import named
    from clozeworks.spec import known_parts, walk

    used = {type(part) for make in named().values() for _, part in walk(make())}
    bases = {Bias, Corruption, Loss, Segments}
    unused = {
        name for name, part in known_parts().items()
        if part not in used and part not in bases and not part.__subclasses__() and ".bench" not in part.__module__
    }  # fmt: skip
    assert unused == AWAITED
