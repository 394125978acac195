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
    "carry": set(),
    "sentence": {"spec", "errors"},
    "batch": {"carry", "key"},
    "examples": {"batch"},
    "recall": {"batch", "carry"},
    "doctor": {"errors", "atomic", "nn.border"},  # in a child alone: the rest of it knows no torch
    "plot": {"errors", "atomic"},
    "nn": {"spec", "batch", "carry", "key", "errors"},
    "objectives": {"spec", "batch", "key", "examples", "nn", "draws", "errors"},
    "tasks": {"spec", "batch", "key", "examples", "draws", "nn", "objectives", "metrics", "data.table", "data.labelled",
              "data.sides", "data.tokens.tokenizer", "data.tokens.cut", "data.tokens.given_words", "evaluate.bleu",
              "sentence", "errors"},
    "model": {"spec", "batch", "key", "nn", "objectives", "errors"},
    "pretraining": {"spec", "model", "nn", "objectives", "tasks", "sentence", "train.settings", "errors"},
    "spelling": {"model", "nn.characters", "data.tokens.tokenizer"},
    "framing": {"nn.global_window", "objectives.segments", "pretraining", "tasks.frame", "data.tokens.tokenizer"},
    "data": {"spec", "batch", "examples", "draws", "errors", "atomic", "seal"},
    "corpus": {"data.text.documents", "draws", "errors"},
    "vectors": {"spec", "draws", "data", "metrics", "plot", "errors", "atomic", "seal"},
    "train": {"spec", "batch", "key", "draws", "examples", "recall", "model", "objectives", "pretraining", "data",
              "tasks", "framing", "sentence", "spelling", "nn", "evaluate", "doctor", "errors", "atomic", "seal",
              "exchange.tensors", "vectors.table"},
    "metrics": {"errors"},
    "evaluate": {"spec", "batch", "draws", "examples", "recall", "nn", "model", "objectives", "tasks", "metrics",
                 "beams", "generate", "prefix", "data", "corpus.planted", "corpus.compounds", "corpus.english", "key",
                 "plot", "spelling", "vectors", "errors"},
    "exchange": {"spec", "batch", "nn", "model", "objectives", "tasks", "framing", "sentence", "pretraining",
                 "metrics.schemes", "data.tokens.tokenizer", "train.settings", "train.checkpoint", "text_encoder",
                 "errors", "atomic"},
    "generate": {"batch", "carry", "model", "errors"},
    "beams": {"batch", "generate", "model", "nn", "errors"},
    "prefix": {"batch", "carry", "generate", "model"},
    "translate": {"batch", "beams", "model", "data.tokens.tokenizer", "errors"},
    "features": {"data.tokens.given_words", "data.tokens.tokenizer", "errors"},
    "predict": {"batch", "data", "evaluate.answers", "model", "pretraining", "tasks", "errors"},
    "text_encoder": {"spec", "batch", "beams", "generate", "translate", "predict", "examples", "nn", "objectives",
                     "model", "pretraining", "tasks", "data.tokens.tokenizer", "exchange", "train.checkpoint", "errors",
                     "sentence", "spelling", "features", "atomic"},
    "finetuning": {"spec", "batch", "tasks", "predict", "spelling", "pretraining", "data", "evaluate", "train",
                   "exchange", "vectors.table", "text_encoder", "errors", "atomic"},
    "estimator": {"features", "finetuning", "text_encoder", "errors"},
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
    "Adam",
    "AttentionScores",
    "CRF",
    "Cosine",
    "HiddenStates",
    "LayerRates",
    "Readers",
    "Relations",
    "Shaw",
    "SlantedTriangular",
    "Within",
}


def test_every_recipe_uses_every_part():
    """Parts that no recipe uses are deleted; what a labelled file adds to one is in none that has a name."""
    from clozeworks.nn.mixer import Bias
    from clozeworks.objectives import Corruption, Loss, Segments
    from clozeworks.recipes import named
    from clozeworks.spec import known_parts, walk

    used = {type(part) for make in named().values() for _, part in walk(make())}
    bases = {Bias, Corruption, Loss, Segments}
    elsewhere = tuple(f"clozeworks.{each}" for each in ("bench", "tasks", "train.tune", "sentence"))
    unused = {
        name for name, part in known_parts().items()
        if part not in used and part not in bases and not part.__subclasses__()
        and not part.__module__.startswith(elsewhere)
    }  # fmt: skip
    assert unused == AWAITED
