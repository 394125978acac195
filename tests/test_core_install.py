"""What a plain `pip install clozeworks` can do: to look up a part, to make, save and load a model needs no extra."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
MODULES = {"scikit-learn": "sklearn"}  # packages whose module has another name
ALONE = """
import sys
from importlib.machinery import PathFinder

class Plain(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {blocked} else super().find_spec(name, path, target)

sys.meta_path[:] = [Plain if each is PathFinder else each for each in sys.meta_path]
import clozeworks as cw
from clozeworks.compress import Data, Quantize, list_steps
from clozeworks.core.spec import known_parts
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder

texts = [f"the fox sees {{n}} red stones under the old tree" for n in range(20)]
assert known_parts() and list_steps()
tokenizer, recipe = Tokenizer.train(texts, vocab=90), cw.recipe("cloze_tiny")
recipe.encoder.vocab = tokenizer.size
small = Quantize().apply(TextEncoder(cw.build(recipe).eval(), tokenizer, recipe), Data(texts=texts))
cw.save(small, "small")
assert (cw.load("small").encode(texts) == small.encode(texts)).all()
"""


def extra_modules() -> set[str]:
    """What the extras bring that a plain installation has not, by the names to import."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name not in ("test", "dev")}
    brought = {re.split(r"[\[>]", each)[0] for needs in extras.values() for each in needs}
    return {MODULES.get(name, name).replace("-", "_") for name in brought} | {"llvmlite"}  # which numba brings


def test_nothing_of_the_road_needs_an_extra(tmp_path: Path) -> None:
    blocked = extra_modules()
    assert {"numba", "sklearn", "onnx", "transformers"} <= blocked
    code = ALONE.format(blocked=blocked)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
