"""The directory of an ONNX export by itself: the script of the page reads it without this library."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.onnx import write as onnx_write
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.nn.pooling import Pooling
from clozeworks.recipe import build
from tests.test_readme import blocks

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = ["the film is good", "今天天气很好"]
ALONE = """import sys
for name in ("clozeworks", "torch", "transformers"):
    sys.modules[name] = None
"""


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    tokenizer = Tokenizer.train(["good bad fine poor the film is 今天 天气 很 好"], "wordpiece", 80)
    recipe = cw.recipe("cloze_tiny")
    recipe.encoder.vocab, recipe.encoder.stack.depth, recipe.objective.losses = tokenizer.size, 1, ()
    recipe.pooling = Pooling("mean", normalise=True, length=9)
    return TextEncoder(build(recipe).eval(), tokenizer, recipe)


@pytest.fixture(scope="module")
def directory(encoder: TextEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(encoder, tmp_path_factory.mktemp("onnx") / "sentences-onnx", format="onnx")


def test_the_script_of_the_page_gives_our_vectors_without_us(encoder: TextEncoder, directory: Path):
    script = next(code for _, code in blocks("docs/export.md", "python") if "InferenceSession" in code)
    assert len([line for line in script.splitlines() if line.strip()]) <= 12
    saves = 'numpy.save("vectors.npy", outputs["sentence_embedding"])'
    command = [sys.executable, "-W", "error", "-c", f"{ALONE}{script}\n{saves}"]
    done = subprocess.run(command, cwd=directory.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2, 128)\n"
    np.testing.assert_allclose(np.load(directory.parent / "vectors.npy"), encoder.encode(TEXTS), atol=1e-5)


def test_what_the_directory_says_of_itself(encoder: TextEncoder, directory: Path):
    facts = json.loads((directory / "onnx.json").read_text())
    assert facts["outputs"]["sentence_embedding"]["axes"] == ["batch", 128]
    assert facts["max_length"] == 9
    assert facts["pooling"]["mode"] == "mean"
    assert facts["bytes"] == (directory / "model.onnx").stat().st_size
    assert facts["checked"]["outputs"]["sentence_embedding"]["largest_difference"] < 1e-5
    card = (directory / "README.md").read_text()
    assert "library_name: onnx" in card
    assert "opset 18" in card


def test_the_graph_names_no_file_of_this_machine(directory: Path):
    graph = (directory / "model.onnx").read_bytes()
    assert str(Path(onnx_write.__file__).parents[4]).encode() not in graph
    assert b"stack_trace" not in graph


def test_int8_is_smaller_near_and_said(encoder: TextEncoder, directory: Path, tmp_path: Path, capsys, monkeypatch):
    save(encoder, tmp_path / "model")
    whole = (directory / "model.onnx").read_bytes()
    monkeypatch.setattr(onnx_write, "trace", lambda graph, signature, file: file.write_bytes(whole))  # traced already
    given = ["export", str(tmp_path / "model"), "--to", "onnx", "--out", str(tmp_path / "int8"), "--precision", "int8"]
    assert main(given) == 0
    said = capsys.readouterr().out
    facts = json.loads((tmp_path / "int8" / "onnx.json").read_text())
    assert facts["bytes"] < 0.4 * len(whole)
    checked = facts["checked"]["outputs"]["sentence_embedding"]
    assert checked["smallest_cosine"] > 0.99
    assert checked["largest_difference"] > 0
    assert f"int8, {facts['bytes'] / 1e6:,.1f} MB" in said
    assert "largest difference from the model in onnxruntime" in said


def test_without_onnxruntime_it_says_that_nothing_was_checked(
    encoder: TextEncoder, tmp_path: Path, capsys, monkeypatch
):
    save(encoder, tmp_path / "model")
    monkeypatch.setattr(onnx_write, "is_installed", lambda name: name != "onnxruntime")
    monkeypatch.setattr(onnx_write, "trace", lambda graph, signature, file: file.write_bytes(b"a graph"))
    given = ["export", str(tmp_path / "model"), "--to", "onnx", "--out"]
    assert main([*given, str(tmp_path / "fp32")]) == 0
    assert "not checked, since onnxruntime is not installed" in capsys.readouterr().out.replace("\n", " ")
    assert main([*given, str(tmp_path / "int8"), "--precision", "int8"]) == 2
    assert not (tmp_path / "int8").exists()
