"""Directories written here, used as their library uses them: its tokenizers and pipelines give the answers of ours."""

from pathlib import Path
from typing import Any

import pytest
import torch

import clozeworks as cw
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.answers import predict_records
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.objectives.segments import PairStream
from clozeworks.recipe import build
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.qa import QuestionAnswering
from clozeworks.tasks.summary import choose_summary
from clozeworks.tasks.tag import Tag
from clozeworks.tasks.task import Task

transformers = pytest.importorskip("transformers")

WORDS = "the river runs fast and a stone falls into cold water near an old mill"
TEXTS = ["the river runs", "a stone falls into cold water near an old mill", "cold", "an old river and the mill"]
NAMES = ("sad", "glad", "angry")
FAMILIES = ("bert_tiny", "roberta_mini", "xlnet_mini", "xlnet_last", "gpt_mini", "longformer_mini", "distilbert_mini")


def model(name: str, kind: type[Task], tokenizer: Tokenizer, **more: Any) -> TextEncoder:
    recipe = cw.recipe("xlnet_mini" if name == "xlnet_last" else name)
    recipe.encoder.vocab, recipe.encoder.stack.depth = tokenizer.size, min(recipe.encoder.stack.depth, 2)
    if name == "xlnet_last":
        recipe.objective.segments = PairStream(length=128)
    if isinstance(recipe.encoder.stack.block, tuple):
        recipe.encoder.stack.block = recipe.encoder.stack.block[:2]
    recipe.encoder.pooler = None
    template = infer_template(recipe, tokenizer)
    if kind in (Classify, Pair, Choice):
        more["summary"] = choose_summary(recipe, template, pooled=False)
    recipe.objective.losses = (kind(template=template, **more),)
    recipe.encoder.init, recipe.train.seed = 0.15, 2
    return TextEncoder(build(recipe).eval(), tokenizer, recipe)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([WORDS], vocab=90)


@pytest.fixture(scope="module")
def by_bytes() -> Tokenizer:
    return Tokenizer.train([WORDS] * 3, kind="bytes", vocab=300)


def predicted(ours: TextEncoder, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    task = ours.recipe.task
    assert task is not None
    assert ours.tokenizer is not None
    return predict_records(ours.model, task, Table("rows", rows), ours.tokenizer, ours.kind)[0]


def doubled(ours: TextEncoder) -> None:
    """Two separators between two texts: what one class of theirs counts on to know what to mark."""
    assert ours.recipe.task is not None
    ours.recipe.task.template.between *= 2


@pytest.mark.parametrize("name", FAMILIES)
def test_classes(name: str, tokenizer: Tokenizer, by_bytes: Tokenizer, tmp_path: Path):
    ours = model(name, Classify, by_bytes if name == "roberta_mini" else tokenizer, labels=NAMES)
    save(ours, tmp_path, format="hf")
    pipe = transformers.pipeline("text-classification", str(tmp_path), device="cpu")
    result = pipe(TEXTS, top_k=None, batch_size=4)
    for mine, theirs in zip(predicted(ours, [{"text": text} for text in TEXTS]), result, strict=True):
        assert mine["label"] == theirs[0]["label"]
        assert mine["scores"] == pytest.approx({each["label"]: each["score"] for each in theirs}, abs=1e-5)
    again = load(tmp_path)
    assert predicted(again, [{"text": TEXTS[1]}])[0]["scores"] == pytest.approx(
        predicted(ours, [{"text": TEXTS[1]}])[0]["scores"], abs=1e-5
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_relations(name: str, tokenizer: Tokenizer, by_bytes: Tokenizer, tmp_path: Path):
    ours = model(name, Pair, by_bytes if name == "roberta_mini" else tokenizer, labels=NAMES)
    save(ours, tmp_path, format="hf")
    pipe = transformers.pipeline("text-classification", str(tmp_path), device="cpu")
    rows = [{"text_a": a, "text_b": b} for a, b in zip(TEXTS, reversed(TEXTS), strict=True)]
    result = pipe([{"text": row["text_a"], "text_pair": row["text_b"]} for row in rows], top_k=None, batch_size=2)
    for mine, theirs in zip(predicted(ours, rows), result, strict=True):
        assert mine["scores"] == pytest.approx({each["label"]: each["score"] for each in theirs}, abs=1e-5)


def test_scores(tokenizer: Tokenizer, tmp_path: Path):
    ours = model("bert_tiny", Pair, tokenizer, problem="regression")
    save(ours, tmp_path, format="hf")
    pipe = transformers.pipeline("text-classification", str(tmp_path), device="cpu")
    (mine,) = predicted(ours, [{"text_a": TEXTS[0], "text_b": TEXTS[1]}])
    (theirs,) = pipe([{"text": TEXTS[0], "text_pair": TEXTS[1]}])
    assert theirs == {"label": "score", "score": pytest.approx(mine["score"], abs=1e-5)}


@pytest.mark.parametrize("name", ["bert_tiny", "xlnet_last", "longformer_mini", "distilbert_mini"])
def test_tags(name: str, tokenizer: Tokenizer, tmp_path: Path):
    ours = model(name, Tag, tokenizer, labels=("O", "B-X", "I-X"), scheme="BIO")
    save(ours, tmp_path, format="hf")
    pipe = transformers.pipeline("ner", str(tmp_path), device="cpu", ignore_labels=[], aggregation_strategy="first")
    mine = predicted(ours, [{"tokens": text.split()} for text in TEXTS])
    assert len({tag for answer in mine for tag in answer["tags"]}) > 1
    for answer, text in zip(mine, TEXTS, strict=True):
        groups = pipe(text)
        tags = []
        for group in groups:
            count, kind = len(group["word"].split()), group["entity_group"]
            tags += ["O" if kind == "O" else kind] * count
        assert tags == [tag.removeprefix("B-").removeprefix("I-") for tag in answer["tags"]]


@pytest.mark.parametrize("name", ["bert_tiny", "roberta_mini", "xlnet_last", "longformer_mini"])
def test_places_of_answers(name: str, tokenizer: Tokenizer, by_bytes: Tokenizer, tmp_path: Path):
    ours = model(name, QuestionAnswering, by_bytes if name == "roberta_mini" else tokenizer)
    if name == "longformer_mini":
        doubled(ours)
    save(ours, tmp_path, format="hf")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()
    for question, passage in zip(TEXTS, [TEXTS[1], TEXTS[3], TEXTS[1], TEXTS[0]], strict=True):
        given = reader(question, passage, return_tensors="pt", return_offsets_mapping=True)
        offsets, second = given.pop("offset_mapping")[0], torch.tensor([s == 1 for s in given.sequence_ids()])
        with torch.no_grad():
            out = theirs(**given)
        total = out.start_logits[0][:, None] + out.end_logits[0][None]
        total = total.masked_fill(~(second[:, None] & second[None]).triu(), -torch.inf)
        i, j = divmod(int(total.argmax()), total.shape[1])
        begin, end = int(offsets[i][0]), int(offsets[j][1])
        (mine,) = predicted(ours, [{"question": question, "context": passage}])
        assert mine["answer"] == passage[begin:end].strip()
        here = ours.forward(**given)
        torch.testing.assert_close(here.start_logits, out.start_logits, rtol=1e-5, atol=2e-5)


def test_options_in_windows(tokenizer: Tokenizer, tmp_path: Path):
    """What is marked by default: the second text."""
    ours = model("longformer_mini", Choice, tokenizer)
    doubled(ours)
    save(ours, tmp_path, format="hf")
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path).eval()
    row = {"context": TEXTS[1], "question": "the", "choices": ["river", "cold water"]}
    given = reader([TEXTS[1]] * 2, ["the river", "the cold water"], padding=True, return_tensors="pt")
    with torch.no_grad():
        out = theirs(**{key: value[None] for key, value in given.items()})
    torch.testing.assert_close(ours.forward(**given).mc_logits, out.logits[0], rtol=0, atol=1e-5)
    (mine,) = predicted(ours, [row])
    assert mine["scores"] == pytest.approx(out.logits[0].softmax(0).tolist(), abs=1e-5)
