"""model.onnx, traced, run against the model it was made of, and made int8 where that is asked for.

    model.onnx  onnx.json  tokenizer.json  tokenizer_config.json

The graph has the axes [batch, length] free, and is the dense definition of attention: quadratic in length, in memory
too. onnx.json says what goes in and what comes out, what classes are called, how vectors are pooled, how long a text
may be, and how far onnxruntime was from the model when the file was written.
"""

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch

from clozeworks.core import atomic_io, spec
from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.onnx.check import compare
from clozeworks.exchange.onnx.graph import BATCH, IDS, LENGTH, MASK, SEGMENTS, Graph, Signature, refuse_untraceable
from clozeworks.model import Model
from clozeworks.recipe import Recipe

FILE, FACTS = "model.onnx", "onnx.json"
OPSET = 18
Precision = Literal["fp32", "int8"]
EXTRA = "pip install 'clozeworks[onnx]'"
QUANTIZED = ["MatMul", "Gemm", "Gather"]  # linears, and tables of words and positions


def write(
    directory: Path, model: Model, recipe: Recipe, tokenizer: Tokenizer | None, precision: Precision = "fp32"
) -> dict[str, Any]:
    """The graph and what is known of it; given back as well."""
    refuse_untraceable(recipe)
    for package in ("onnx", "onnxscript"):
        need(package, f"export of {recipe.name} to ONNX")
    if precision == "int8":
        need("onnxruntime", "int8 in ONNX")
    device, training = next(model.parameters()).device, model.training
    try:
        graph = Graph(model.cpu().eval(), recipe, tokenizer)
        signature = graph.signature()
        trace(graph, signature, directory / FILE)
        facts = describe(recipe, tokenizer, signature, precision)
        if is_installed("onnxruntime"):
            own = Graph(model, recipe, tokenizer, "auto")
            comparison = compare(directory / FILE, own, signature)
            comparison.refuse(recipe.name)
            if precision == "int8":
                quantize(directory / FILE)
                comparison = compare(directory / FILE, own, signature)
            facts["checked"] = comparison.facts()
    finally:
        model.to(device).train(training)
    facts["bytes"] = (directory / FILE).stat().st_size
    atomic_io.write_json(directory / FACTS, facts)
    return facts


def trace(graph: Graph, signature: Signature, file: Path) -> None:
    """Write the graph with free axes; what torch cannot trace is refused."""
    ids = torch.arange(12).view(2, 6) % graph.recipe.encoder.vocab
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    arguments = graph.arguments({IDS: ids, MASK: mask, SEGMENTS: (torch.arange(6) > 2).long().expand(2, 6)})
    axes = {0: torch.export.Dim(BATCH), 1: torch.export.Dim(LENGTH)}
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                graph,
                arguments,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(signature.inputs),
                output_names=list(signature.outputs),
                dynamic_shapes=dict.fromkeys(signature.inputs, axes),
                verbose=False,
            )
    except Exception as error:  # of torch: its classes are private, and each of its releases has others
        reason = str(error.__cause__ or error).strip().splitlines()[0][:200]
        needed = f"torch.export traces no such model ({reason})"
        raise InputError(graph.recipe.name, "export to ONNX", needed, "keep its own format, or --to hf") from error
    assert program is not None
    program.model.producer_name = "clozeworks"
    _strip(program.model)
    program.save(file)


def _strip(graph: Any) -> None:
    """Without torch's notes on where each operator came from: paths of this machine, and a sixth of a small file."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(graph)


def quantize(file: Path) -> None:
    """Weights to int8, a scale each output channel; activations are quantized as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(
            file, file, op_types_to_quantize=QUANTIZED, per_channel=True, weight_type=QuantType.QInt8
        )  # fmt: skip


def describe(recipe: Recipe, tokenizer: Tokenizer | None, signature: Signature, precision: Precision) -> dict[str, Any]:
    """What a reader of the graph has to know."""
    task = recipe.task
    pooling = recipe.pooling or (None if task is None else task.encodes)
    length = recipe.length if task is None else min(task.template.length, recipe.length)
    if pooling is not None and pooling.length is not None:
        length = min(length, pooling.length)
    facts: dict[str, Any] = {
        "name": recipe.name,
        "file": FILE,
        "opset": OPSET,
        "precision": precision,
        "inputs": {name: {"type": "int64", "axes": [BATCH, LENGTH]} for name in signature.inputs},
        "outputs": {name: {"type": "float32", "axes": list(axes)} for name, axes in signature.outputs.items()},
        "max_length": length,
        "pad_id": 0 if tokenizer is None or tokenizer.pad is None else tokenizer.pad,
        "task": None if task is None else task.name,
        "labels": list(getattr(task, "labels", ())),
        "pooling": None if pooling is None else spec.to_dict(pooling),
        "checked": None,
    }
    if getattr(task, "crf", None) is not None:
        facts["note"] = "logits are the emissions of a conditional random field, whose transitions are not in the graph"
    if any(loss.decides for loss in recipe.objective.losses):
        facts["note"] = "the early exits of the model are not in the graph: every text passes through all layers"
    return facts


def is_installed(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def need(package: str, doing: str) -> None:
    """Refuse what a missing package would do."""
    if not is_installed(package):
        raise InputError(doing, f"{package} is not installed", "the extra onnx is needed", EXTRA)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch and onnxruntime print of their own steps."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
