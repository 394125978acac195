"""Every family and every head in ONNX gives what the model gives, for rows of other shapes than the traced ones."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.onnx import write as onnx_write
from clozeworks.exchange.onnx.check import Comparison, Difference
from clozeworks.exchange.onnx.graph import refuse_untraceable
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.recipe import build
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.embed import SentenceEmbedding
from clozeworks.tasks.heads.crf import CRF
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.qa import QuestionAnswering
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.tag import Tag
from clozeworks.tasks.task import Task

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = "the river runs fast and a stone falls into cold water near an old mill 今天 天气 很 好"
LABELS = ("a", "b", "c")
TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Classify, Pair, Tag, QuestionAnswering, Choice, SentenceEmbedding)
}
OUTPUTS = {
    "classify": {"logits": ["batch", 3]},
    "pair": {"logits": ["batch", 3]},
    "tag": {"logits": ["batch", "length", 3]},
    "qa": {"start_logits": ["batch", "length"], "end_logits": ["batch", "length"]},
    "choice": {"mc_logits": ["batch"]},
}
SHAPES = ((1, 1), (3, 17), (5, 4), (2, 70))


def model(family: str, task: str | None = None, depth: int = 1, **more: object) -> TextEncoder:
    """One of a family that is narrow and of one layer, or as many as its blocks take turns."""
    tokenizer = Tokenizer.train([WORDS], "bytes" if family in ("roberta_mini", "longformer_mini") else "wordpiece", 300)
    recipe = cw.recipe(family)
    recipe.encoder.vocab, recipe.encoder.stack.depth, recipe.encoder.init = tokenizer.size, depth, 0.05
    if task is not None:
        own = TASKS[task](template=infer_template(recipe, tokenizer))
        own = dataclasses.replace(own, **{"labels": LABELS} if task in ("classify", "pair", "tag") else {}, **more)
        recipe.objective.losses = (own,)
        recipe.pooling = own.encodes
        if recipe.encoder.pooler is None and getattr(own, "summary", None) is not None and "summary" not in more:
            own.summary = Summary("last" if recipe.reading == "causal" else "first", "own")
    return TextEncoder(build(recipe).eval(), tokenizer, recipe)


def session(directory: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(directory / "model.onnx", providers=["CPUExecutionProvider"])


def ragged(encoder: TextEncoder, rows: int, length: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * length)
    ids = torch.randint(5, encoder.recipe.encoder.vocab, (rows, length), generator=generator)
    mask = (torch.arange(length) < (length - 3 * torch.arange(rows)).clamp(1)[:, None]).long()
    ids = torch.where(mask.bool(), ids, encoder.tokenizer.pad)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": torch.arange(length).gt(length // 2).long().expand(rows, -1),
    }


def compare(encoder: TextEncoder, directory: Path) -> None:
    """Against `forward`, whose attention takes other paths."""
    runs, facts = session(directory), json.loads((directory / "onnx.json").read_text())
    assert [each.name for each in runs.get_inputs()] == list(facts["inputs"])
    assert [each.name for each in runs.get_outputs()] == list(facts["outputs"])
    for shape in SHAPES:
        batch = {name: each for name, each in ragged(encoder, *shape).items() if name in facts["inputs"]}
        ours = encoder.forward(**batch)
        theirs = runs.run(None, {name: each.numpy() for name, each in batch.items()})
        for name, given in zip(facts["outputs"], theirs, strict=True):
            if name == "sentence_embedding":
                continue
            wanted = getattr(ours, name).detach().numpy()
            axes = [{"batch": shape[0], "length": shape[1]}.get(axis, axis) for axis in facts["outputs"][name]["axes"]]
            assert list(given.shape) == list(wanted.shape) == axes
            real = batch["attention_mask"].bool().numpy() if "length" in facts["outputs"][name]["axes"] else slice(None)
            np.testing.assert_allclose(given[real], wanted[real], atol=1e-4, rtol=0)


HEADS = [
    ("bert_tiny", "classify", {}),
    ("roberta_mini", "tag", {"crf": CRF()}),
    ("albert_mini", "qa", {}),
    ("gpt_mini", None, {}),
    ("xlnet_mini", None, {}),
    ("longformer_mini", "choice", {}),
    pytest.param("distilbert_mini", "pair", {"summary": Summary("mean", None)}, marks=pytest.mark.slow),
    pytest.param("bert_tiny", None, {}, marks=pytest.mark.slow),
    pytest.param("bert_tiny", "choice", {}, marks=pytest.mark.slow),
    pytest.param("roberta_mini", None, {}, marks=pytest.mark.slow),
    pytest.param("ernie_basic_mini", "classify", {"summary": Summary("concat", "own")}, marks=pytest.mark.slow),
    pytest.param("spanbert_mini", "qa", {}, marks=pytest.mark.slow),
    pytest.param("longformer_mini", "classify", {}, marks=pytest.mark.slow),
    pytest.param("longformer_mini", None, {}, marks=pytest.mark.slow),
    pytest.param("gpt_mini", "classify", {}, marks=pytest.mark.slow),
    pytest.param("cloze_tiny", "tag", {}, marks=pytest.mark.slow),
    pytest.param("xlnet_mini_memory", "classify", {}, marks=pytest.mark.slow),
    pytest.param("transformer_xl_mini", None, {}, marks=pytest.mark.slow),
    pytest.param("adaptive_span_mini", None, {}, marks=pytest.mark.slow),
    pytest.param("lite_transformer_lm_mini", None, {}, marks=pytest.mark.slow),
    pytest.param("longformer_enwik8", None, {}, marks=pytest.mark.slow),
    pytest.param("nnlm", None, {}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("family", "task", "more"), HEADS)
def test_onnxruntime_gives_what_the_model_gives(family: str, task: str | None, more: dict[str, object], tmp_path: Path):
    encoder = model(family, task, **more)
    save(encoder, tmp_path / "onnx", format="onnx")
    facts = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
    outputs = {name: each["axes"] for name, each in facts["outputs"].items()}
    assert outputs == OUTPUTS.get(task, {"logits": ["batch", "length", encoder.recipe.encoder.vocab]})
    assert facts["labels"] == (
        list(LABELS) if "labels" in dir(encoder.recipe.task) and task != "choice" and task != "qa" else []
    )
    assert ("emissions" in facts.get("note", "")) == ("crf" in more)
    assert facts["opset"] == 18
    assert max(each["largest_difference"] for each in facts["checked"]["outputs"].values()) < 1e-4
    compare(encoder, tmp_path / "onnx")


@pytest.mark.parametrize(
    ("family", "part", "reason"),
    [
        ("transformer_mini", "decoder = Decoder", "it writes token by token"),
        ("elmo_mini", "embed.words = Characters", "words are read by their characters"),
        ("awd_lstm_mini", "mixer = LSTM", "a token after another"),
        ("rnn_attention_mini", "decoder = Decoder", "it writes token by token"),
        ("reformer_mini", "mixer = LocalAttention", "how many chunks"),
    ],
)
def test_what_no_graph_holds_is_refused_with_a_reason(family: str, part: str, reason: str):
    recipe = cw.recipe(family)
    with pytest.raises(RecipeError, match=f"{part}: .*{reason}"):
        refuse_untraceable(recipe)


def test_two_rows_that_are_decided_together_are_refused(tmp_path: Path):
    with pytest.raises(RecipeError, match="Pair: a row alone does not say which other"):
        save(model("gpt_mini", "pair", both=True), tmp_path / "onnx", format="onnx")
    assert not (tmp_path / "onnx").exists()


def test_what_torch_cannot_trace_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no decomposition of aten::something\nand more")

    monkeypatch.setattr(torch.onnx, "export", fails)
    encoder = model("bert_tiny")
    encoder.model.train()
    with pytest.raises(InputError, match=r"traces no such model \(no decomposition of aten::something\)"):
        save(encoder, tmp_path / "onnx", format="onnx")
    assert not (tmp_path / "onnx").exists()
    assert encoder.model.training


def test_a_graph_that_differs_is_not_written(tmp_path: Path, monkeypatch):
    def wrong(*_: object) -> Comparison:
        difference = Difference()
        difference.add(np.zeros((2, 3)), np.full((2, 3), 1e-3))
        return Comparison(2, {"logits": difference})

    monkeypatch.setattr(onnx_write, "trace", lambda *_: None)
    monkeypatch.setattr(onnx_write, "compare", wrong)
    with pytest.raises(RuntimeError, match=r"logits of onnxruntime differ from the model's by 0\.001, so nothing"):
        save(model("bert_tiny"), tmp_path / "onnx", format="onnx")
    assert not (tmp_path / "onnx").exists()


def test_a_difference_that_is_no_number_counts():
    difference = Difference()
    difference.add(np.zeros((2, 3)), np.full((2, 3), np.nan))
    difference.add(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(RuntimeError):
        Comparison(2, {"logits": difference}).refuse("a model")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_one_sentence(package: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(onnx_write, "is_installed", lambda name: name != package)
    with pytest.raises(InputError, match=rf"{package} is not installed; .*pip install 'clozeworks\[onnx\]'"):
        save(model("bert_tiny"), tmp_path / "onnx", format="onnx")


def test_precision_belongs_to_this_format(tmp_path: Path):
    with pytest.raises(InputError, match="precision: int8; it is for onnx, and the format is hf"):
        save(model("bert_tiny"), tmp_path / "hf", format="hf", precision="int8")
    with pytest.raises(InputError, match="precision: int4; one of fp32, int8"):
        save(model("bert_tiny"), tmp_path / "onnx", format="onnx", precision="int4")  # pyright: ignore[reportArgumentType]
