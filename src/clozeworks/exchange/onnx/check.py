"""A written graph is run by onnxruntime against the model that it was made of."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clozeworks.exchange.onnx.graph import IDS, MASK, SEGMENTS, Graph, Signature

TOLERANCE = 1e-4  # of the largest number, and of 1
TEXTS = (
    "The old bridge was closed in 1987.",
    "Rain.",
    "She asked whether the ferry would wait for the people who had come on foot, and nobody knew.",
    "今天上海的天气很好，我们去公园散步。",
    "模型",
)
SHAPES = ((1, 1), (3, 11), (2, 37))  # of random ids, beside the texts


@dataclass(slots=True)
class Difference:
    """How far an output of a graph is from the model's, over all that is no padding."""

    largest: float = 0.0  # of a number
    scale: float = 1.0  # the largest number, and 1
    cosine: float = 1.0  # the smallest, of the vectors of a row or a token

    def add(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        """Vectors [n, D] or numbers [n], of both."""
        if not ours.size:
            return
        apart = np.abs(ours - theirs).max()
        self.largest = float(np.maximum(self.largest, apart))  # which keeps what is no number
        self.scale = max(self.scale, float(np.abs(ours).max()))
        if ours.ndim > 1:
            lengths = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
            cosines = (ours * theirs).sum(-1)[lengths > 0] / lengths[lengths > 0]
            self.cosine = float(np.minimum(self.cosine, cosines.min(initial=1.0)))

    def facts(self) -> dict[str, float]:
        return {"largest_difference": float(f"{self.largest:.3g}"), "smallest_cosine": round(self.cosine, 6)}


@dataclass(slots=True)
class Comparison:
    """Differences by output, and of how many rows they are."""

    rows: int
    outputs: dict[str, Difference]

    def refuse(self, model: str) -> None:
        """Raise `RuntimeError` where numbers differ by more than rounding does."""
        for name, each in self.outputs.items():
            if not each.largest <= TOLERANCE * each.scale:
                raise RuntimeError(
                    f"{model}: {name} of onnxruntime differ from the model's by {each.largest:.2g}, so nothing was "
                    "written; this is a mistake of clozeworks: please report it with the recipe"
                )

    def facts(self) -> dict[str, Any]:
        return {"rows": self.rows, "outputs": {name: each.facts() for name, each in self.outputs.items()}}


def compare(file: Path, graph: Graph, signature: Signature) -> Comparison:
    """Texts where there is a tokenizer, and random ids of several shapes, ragged."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    batches = draw(graph)
    comparison = Comparison(
        sum(len(batch[IDS]) for batch in batches), {name: Difference() for name in signature.outputs}
    )
    for batch in batches:
        given = {name: batch[name].numpy() for name in signature.inputs}
        theirs = session.run(list(signature.outputs), given)
        with torch.no_grad():
            ours = graph.outputs(*graph.arguments(batch))
        real = batch[MASK].bool().numpy()
        for name, each in zip(signature.outputs, theirs, strict=True):
            mine = ours[name].numpy()
            along = real if mine.shape[:2] == real.shape and len(signature.outputs[name]) > 1 else slice(None)
            comparison.outputs[name].add(mine[along], np.asarray(each)[along])
    return comparison


def draw(graph: Graph) -> list[dict[str, Tensor]]:
    """Batches by input name, padded on the right."""
    recipe, tokenizer = graph.recipe, graph.tokenizer
    longest, vocab = recipe.length, recipe.encoder.vocab
    generator = np.random.default_rng(0)
    rows: list[list[np.ndarray]] = [
        [generator.integers(0, vocab, max(1, min(length, longest) - 2 * row)) for row in range(count)]
        for count, length in SHAPES
    ]
    if tokenizer is not None:
        ends = [] if tokenizer.cls is None else [tokenizer.cls], [] if tokenizer.sep is None else [tokenizer.sep]
        texts = [np.r_[ends[0], each.ids[: longest - 2], ends[1]] for each in tokenizer.encode(list(TEXTS))]
        rows.append([text.astype(np.int64) for text in texts if len(text)])
    pad = 0 if tokenizer is None or tokenizer.pad is None else tokenizer.pad
    return [_pad(some, pad) for some in rows if some]


def _pad(rows: list[np.ndarray], pad: int) -> dict[str, Tensor]:
    width = max(map(len, rows))
    ids, mask = torch.full((len(rows), width), pad), torch.zeros(len(rows), width, dtype=torch.long)
    for at, row in enumerate(rows):
        ids[at, : len(row)], mask[at, : len(row)] = torch.from_numpy(row), 1
    return {IDS: ids, MASK: mask, SEGMENTS: (torch.arange(width) * 2 > width).long().expand_as(ids).contiguous()}
