"""Sentence vectors of one encoder: ours, transformers and onnxruntime, in fp32 and int8, one thread, in turns.

Every side gets the same sentences, tokenizes them, sorts them by length, and gives normalised means.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.harness import benchmark, footer, format_spread
from benchmarks.masking import segment
from benchmarks.side import answer
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from rich.console import RenderableType

Encode = Callable[[list[str]], "np.ndarray"]
SHAPES = {  # depth, width, heads, inner units: weights are random where no directory is given
    "minilm": (6, 384, 12, 1536),
    "base": (12, 768, 12, 3072),
    "mini": (4, 256, 4, 1024),
}
BATCH = 32  # sentences of a batch of the peers, which pad


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """The encoder and the sentences."""

    model: str | None = None  # a directory that transformers loads a BERT from; None: random weights
    data: str | None = None  # a text; None: the embedded corpus
    cells: tuple[str, ...] = ("minilm",)
    sentences: int = 256
    repetitions: int = 5
    threads: int | None = 1

    @classmethod
    def quick(cls) -> "Setting":
        return cls(sentences=64, repetitions=3)


@benchmark("int8", ("numpy", "torch", "numba", "transformers", "onnx", "onnxruntime"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Measure all sides in one process."""
    for package in ("transformers", "onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            raise InputError("int8", f"no {package}", "it is one of the peers", f"pip install {package}")
    for name in setting.cells:
        if name not in SHAPES:
            raise InputError("--only", name, f"one of {', '.join(SHAPES)} is needed", "choose one")
    return {**harness.ask("int8", folder, setting.cores), "repetitions": setting.repetitions}


def serve(folder: Path, answers: IO[str]) -> None:
    answer(answers, measure(folder))


def measure(folder: Path) -> dict[str, Any]:
    """Everything, in this process."""
    setting = Setting.read(folder)
    texts = sentences(setting)
    cells = {}
    for name in setting.cells:
        directory = (
            Path(setting.model) if setting.model and name == "minilm" else random_model(folder / name, name, texts)
        )
        cells[name] = measure_cell(directory, folder / f"{name}-onnx", texts, setting)
    lengths = sorted(len(text.split()) for text in texts)
    words = {"median": lengths[len(lengths) // 2], "longest": lengths[-1]}
    return {"cells": cells, "sentences": len(texts), "words": words}


def measure_cell(directory: Path, work: Path, texts: list[str], setting: Setting) -> dict[str, Any]:
    """Sentences a processor second of every side, each by the best int8 of onnxruntime, and how near vectors stay."""
    import numpy as np

    sides = dict(make_sides(directory, work, texts))
    reference = sides["transformers fp32"](texts)
    cosines = {name: float((encode(texts) * reference).sum(1).min()) for name, encode in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for name in harness.alternate(sides, setting.repetitions):
        seconds[name].append(segment(lambda: sides[name](texts), 1)["cpu_seconds"])  # noqa: B023
    best = min(
        (name for name in sides if name.startswith("onnxruntime int8")), key=lambda name: np.median(seconds[name])
    )
    return {
        name: {
            "sentences_per_cpu_second": round(len(texts) / float(np.median(seconds[name])), 1),
            "by_our_fp32": harness.ratio_of_pairs(seconds["ours fp32"], seconds[name]),
            "by_their_int8": harness.ratio_of_pairs(seconds[best], seconds[name]),
            "smallest_cosine": round(cosines[name], 4),
        }
        for name in sides
    }


def sentences(setting: Setting) -> list[str]:
    """Ragged ones, spread over the text."""
    from clozeworks import corpus
    from clozeworks.data.text.reader import Reader
    from clozeworks.data.text.sentences import split_sentences

    documents = corpus.documents() if setting.data is None else Reader([setting.data]).documents()
    picked: list[str] = []
    for document in documents:
        picked += [one for one in split_sentences(document.text or "") if 20 < len(one) < 600]
        if len(picked) > 20 * setting.sentences:
            break
    return picked[:: max(1, len(picked) // setting.sentences)][: setting.sentences]


def random_model(directory: Path, name: str, texts: list[str]) -> Path:
    """A BERT of this shape with random weights, and a tokenizer of the texts."""
    from transformers import BertConfig, BertModel

    from clozeworks.data.tokens.tokenizer import Tokenizer

    tokenizer = Tokenizer.train(texts, vocab=2000)
    names = "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"
    sizes: dict[str, Any] = dict(zip(names, SHAPES[name], strict=True))
    BertModel(BertConfig(vocab_size=tokenizer.size, **sizes)).save_pretrained(directory)
    tokenizer.save(directory)
    return directory


def make_sides(directory: Path, work: Path, texts: list[str]) -> Iterator[tuple[str, Encode]]:
    import torch
    from onnxruntime import InferenceSession, SessionOptions  # pyright: ignore[reportAttributeAccessIssue]
    from transformers import BertModel

    import clozeworks as cw
    from clozeworks.compress.quantize import quantize

    ours = cw.load(directory)
    small = quantize(ours)

    def tokenize(some: list[str]) -> list[list[int]]:
        assert ours.tokenizer is not None
        return [ours.add_special_tokens(each.ids[:254].tolist())[0] for each in ours.tokenizer.encode(some)]

    yield "ours fp32", lambda some: ours.encode(some, "mean", normalise=True)
    yield "ours int8", lambda some: small.encode(some, "mean", normalise=True)
    model = BertModel.from_pretrained(directory).eval()

    def theirs(ids: "np.ndarray", mask: "np.ndarray") -> "np.ndarray":
        with torch.no_grad():
            return model(torch.from_numpy(ids), torch.from_numpy(mask)).last_hidden_state.numpy()

    yield "transformers fp32", lambda some: encode_padded(tokenize(some), theirs)
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = torch.get_num_threads()
    plain = BertModel.from_pretrained(directory, attn_implementation="eager").eval()  # which the fusing tool knows
    for name, file in export(plain, work).items():
        session = InferenceSession(file, options, providers=["CPUExecutionProvider"])
        takes = {each.name for each in session.get_inputs()}

        def infer(
            ids: "np.ndarray", mask: "np.ndarray", session: Any = session, takes: set[str] = takes
        ) -> "np.ndarray":
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}
            return session.run(None, {key: value for key, value in given.items() if key in takes})[0]

        yield f"onnxruntime {name}", lambda some, infer=infer: encode_padded(tokenize(some), infer)


def encode_padded(rows: list[list[int]], infer: Callable[..., "np.ndarray"]) -> "np.ndarray":
    """Normalised means, as `sentence-transformers` makes them: sorted by length, padded batches."""
    import numpy as np

    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
    pooled: dict[int, np.ndarray] = {}
    for begin in range(0, len(order), BATCH):
        chosen = order[begin : begin + BATCH]
        ids = np.zeros((len(chosen), max(len(rows[n]) for n in chosen)), np.int64)
        mask = np.zeros_like(ids)
        for at, n in enumerate(chosen):
            ids[at, : len(rows[n])], mask[at, : len(rows[n])] = rows[n], 1
        last = infer(ids, mask)
        mean = (last * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        pooled |= dict(zip(chosen, mean / np.linalg.norm(mean, axis=1, keepdims=True), strict=True))
    return np.stack([pooled[n] for n in range(len(rows))])


def export(model: Any, folder: Path) -> dict[str, Path]:
    """The graph in fp32, fused by onnxruntime's own tool, and as dynamic int8 by tensor and by channel."""
    import torch
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model
    from torch import nn

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids, attention_mask).last_hidden_state

    folder.mkdir(parents=True, exist_ok=True)
    plain, fused = folder / "plain.onnx", folder / "fp32.onnx"
    given = torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long)
    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "batch", 1: "length"} for name in [*names, "last"]}
    torch.onnx.export(
        Last().eval(), given, plain, input_names=names, output_names=["last"], dynamic_axes=axes, dynamo=False
    )
    config = model.config
    optimize_model(str(plain), "bert", config.num_attention_heads, config.hidden_size, opt_level=1).save_model_to_file(
        str(fused)
    )
    files = {"fp32": fused}
    for name, by_channel in (("int8 by tensor", False), ("int8 by channel", True)):
        files[name] = folder / f"{name}.onnx"
        more = {"DefaultTensorType": TensorProto.FLOAT}  # of what the fused operators give
        quantize_dynamic(fused, files[name], per_channel=by_channel, weight_type=QuantType.QInt8, extra_options=more)
    return files


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    table = harness.make_table(
        "encoder", "side", "a CPU second", "by our fp32", "by their best int8", "smallest cosine", left=2, wrap=False
    )
    for name, cell in results["cells"].items():
        for number, (side, row) in enumerate(cell.items()):
            table.add_row(
                "" if number else name,
                side,
                f"{row['sentences_per_cpu_second']:,.1f}",
                format_spread(row["by_our_fp32"]),
                format_spread(row["by_their_int8"]),
                f"{row['smallest_cosine']:.4f}",
            )
    words = f"{results['words']['median']} words in the median, {results['words']['longest']} in the longest"
    first = f"{results['sentences']} sentences, {words}; {results['repetitions']} repetitions in turns, one thread"
    return Group(first, "", table, "", "cosine with the vectors of transformers in fp32", footer(results))
