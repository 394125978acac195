"""Classes with the head of a task, both ways, on random weights: the same scores, the same loss, the same labels."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.token_info import PADDING
from clozeworks.exchange.templates import fitting
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.recipe import build
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.layer_selection import SumLayers
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.qa import QuestionAnswering
from clozeworks.tasks.summary import Summary, choose_summary
from clozeworks.tasks.tag import Tag
from clozeworks.tasks.template import InputTemplate

transformers = pytest.importorskip("transformers")

VOCAB, ROWS, LENGTH = 61, 4, 16
PLAIN = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
DISTIL = {"vocab_size": VOCAB, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40}
REFORMER = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "attention_head_size": 8,
    "feed_forward_size": 48,
    "attn_layers": ["local", "lsh"],
    "local_attn_chunk_length": 8,
    "lsh_attn_chunk_length": 8,
    "num_hashes": 2,
    "num_buckets": 4,
    "hash_seed": 5,
    "axial_pos_shape": [4, 8],
    "axial_pos_embds_dim": [8, 24],
    "max_position_embeddings": 32,
    "is_decoder": False,
    "pad_token_id": 0,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("BertConfig", PLAIN),
    "Ernie": ("ErnieConfig", PLAIN),
    "Roberta": ("RobertaConfig", PLAIN | {"type_vocab_size": 1}),
    "Albert": ("AlbertConfig", PLAIN | {"embedding_size": 16}),
    "DistilBert": ("DistilBertConfig", DISTIL),
    "XLNet": ("XLNetConfig", {"vocab_size": VOCAB, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    "OpenAIGPT": (
        "OpenAIGPTConfig",
        {"vocab_size": VOCAB, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "pad_token_id": 0},
    ),
    "Longformer": ("LongformerConfig", PLAIN | {"attention_window": 4, "type_vocab_size": 1, "sep_token_id": 2}),
    "Reformer": ("ReformerConfig", REFORMER),
}
NAMES = ("sad", "glad", "angry")  # not sorted: the order is theirs


def their_model(family: str, kind: str, **more: Any):
    torch.manual_seed(0)
    config, fields = FAMILIES[family]
    if kind in ("ForSequenceClassification", "ForTokenClassification") and not {"num_labels", "id2label"} & set(more):
        more["id2label"] = dict(enumerate(NAMES))
        more["label2id"] = {name: number for number, name in enumerate(NAMES)}
    config = getattr(transformers, config)(**{**fields, **more})
    model = getattr(transformers, family + kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    return model


def inputs(theirs, seed: int = 1) -> dict[str, Tensor]:
    """Rows with padding, before the text where the class reads the last token of a row; segments where there are."""
    left, pad = getattr(theirs.config, "summary_type", "") == "last", theirs.config.pad_token_id or 0
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCAB, (ROWS, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    for row, length in enumerate((LENGTH, 3, 9, 12)):
        padding = slice(0, LENGTH - length) if left else slice(length, LENGTH)
        mask[row, padding], ids[row, padding] = 0, pad
    results = {"input_ids": ids, "attention_mask": mask}
    if getattr(theirs.config, "type_vocab_size", 0) > 1 or theirs.config.model_type == "xlnet":
        results["token_type_ids"] = (torch.arange(LENGTH) > 6).long().expand(ROWS, LENGTH).contiguous() * mask
    return results


def as_batch(ours: TextEncoder, given: dict[str, Tensor]) -> Batch:
    """The same rows, each without its padding before the text."""
    ids, mask, kinds = given["input_ids"].clone(), given["attention_mask"].clone(), given.get("token_type_ids")
    kinds = None if kinds is None else kinds.clone()
    for row in range(len(ids)):
        before = int(mask[row].argmax())
        for tensor in (ids, mask, *([] if kinds is None else [kinds])):
            tensor[row] = tensor[row].roll(-before)
    task = ours.recipe.task
    assert task is not None
    marked = torch.zeros_like(ids).bool().index_fill_(1, torch.tensor([0]), True) if task.template.marks else None
    batch = from_padded(ids, mask, kinds, ours.kind, marked)
    batch.lasts = batch.firsts + mask.sum(1) - 1
    return batch


@pytest.fixture(autouse=True)
def single_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One class is computed in double precision, for the weights of its rounds have steps of 0.008 in single; its
    random turns stay what they are."""
    draw = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *a, dtype=None, **more: draw(*a, **more).to(dtype or torch.float32))


@torch.no_grad()
def compare(theirs, ours: TextEncoder, labels: Tensor | None = None) -> None:
    """Scores by `forward`, and scores and loss as a run computes them."""
    given, task = inputs(theirs), ours.recipe.task
    assert task is not None
    theirs = theirs.double() if "Reformer" in type(theirs).__name__ else theirs
    truth = labels if labels is None or not labels.is_floating_point() else labels.to(theirs.dtype)
    expected = theirs(**given, labels=truth)
    torch.testing.assert_close(ours.forward(**given).logits, expected.logits.float(), rtol=0, atol=1e-5)
    batch = as_batch(ours, given)
    batch.example["class_label"] = labels
    actual = ours.model(batch).losses[task.name] / task.count(batch)
    torch.testing.assert_close(actual, expected.loss.float(), rtol=0, atol=1e-5)


def write(ours: TextEncoder, folder: Path) -> None:
    """As `save` does with a tokenizer: one class must know what padding is."""
    save(ours, folder, format="hf")
    if ours.kind == "causal":
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "pad_token_id": 0}))


LABELS = torch.tensor([2, 0, 1, 1])
SEVERAL = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]).float()


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("family", FAMILIES)
def test_classes_both_ways(family: str, many: bool, tmp_path: Path):
    problem = "multi_label_classification" if many else None
    theirs = their_model(family, "ForSequenceClassification", problem_type=problem)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    task = ours.recipe.task
    assert isinstance(task, Classify)
    assert task.labels == NAMES
    assert task.many == many
    assert ours.unused == []
    assert spec.from_dict(spec.to_dict(ours.recipe)) == ours.recipe
    labels = SEVERAL if many else LABELS
    compare(theirs, ours, labels)
    with torch.no_grad():
        for parameter in ours.model.parameters():
            parameter.normal_(0, 0.15)
    write(ours, tmp_path / "ours")
    again, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert type(again).__name__ == type(theirs).__name__
    assert tuple(again.config.id2label.values()) == NAMES
    assert again.config.problem_type == (problem or "single_label_classification")
    compare(again.eval(), ours, labels)
    back = load(tmp_path / "ours")
    assert back.recipe.task == task
    for (name, a), b in zip(ours.model.named_parameters(), back.model.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_both_ways(family: str, tmp_path: Path):
    theirs = their_model(family, "ForSequenceClassification", num_labels=1)
    theirs.save_pretrained(tmp_path / "theirs")
    ours, scores = load(tmp_path / "theirs"), torch.tensor([0.5, -1.0, 2.0, 0.0])
    task = ours.recipe.task
    assert isinstance(task, Pair)
    assert task.graded
    compare(theirs, ours, scores)
    write(ours, tmp_path / "ours")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    assert again.config.num_labels == 1
    assert again.config.problem_type == "regression"
    compare(again, ours, scores)
    assert load(tmp_path / "ours").recipe.task == task


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("OpenAIGPT", "Reformer")])
def test_options_both_ways(family: str, tmp_path: Path):
    theirs = their_model(family, "ForMultipleChoice")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert isinstance(ours.recipe.task, Choice)
    assert ours.unused == []
    compare_options(theirs, ours)
    save(ours, tmp_path / "ours", format="hf")
    again, loading = transformers.AutoModelForMultipleChoice.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    compare_options(again.eval(), ours)
    assert load(tmp_path / "ours").recipe.task == ours.recipe.task


@torch.no_grad()
def compare_options(theirs, ours: TextEncoder) -> None:
    """Two questions of two options."""
    given, right = inputs(theirs), torch.tensor([1, 0])
    if "Longformer" in type(theirs).__name__:
        given["global_attention_mask"] = torch.zeros_like(given["input_ids"]).index_fill_(1, torch.tensor([0]), 1)
    expected = theirs(**{name: value.view(2, 2, LENGTH) for name, value in given.items()}, labels=right)
    actual = ours.forward(**given).mc_logits
    assert actual is not None
    torch.testing.assert_close(actual.view(2, 2), expected.logits, rtol=0, atol=1e-5)
    given.pop("global_attention_mask", None)
    batch = as_batch(ours, given)
    batch.example |= {"unit": torch.tensor([0, 0, 1, 1]), "choice_right": torch.tensor([False, True, True, False])}
    batch.index = (0, 1)
    loss = ours.model(batch).losses["choice"] / 2
    torch.testing.assert_close(loss, expected.loss, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("OpenAIGPT", "Reformer")])
def test_tags_both_ways(family: str, tmp_path: Path):
    theirs = their_model(family, "ForTokenClassification", id2label={0: "O", 1: "B-X", 2: "I-X"})
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    task = ours.recipe.task
    assert isinstance(task, Tag)
    assert task.labels == ("O", "B-X", "I-X")
    assert task.scheme == "BIO"
    assert ours.unused == []
    compare_tags(theirs, ours)
    save(ours, tmp_path / "ours", format="hf")
    again, loading = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    compare_tags(again.eval(), ours)
    assert load(tmp_path / "ours").recipe.task == task


@torch.no_grad()
def compare_tags(theirs, ours: TextEncoder) -> None:
    given = inputs(theirs)
    real = given["attention_mask"].bool()
    labels = torch.randint(0, 3, real.shape, generator=torch.Generator().manual_seed(2)).where(real, -100)
    expected = theirs(**given, labels=labels)
    actual = ours.forward(**given).logits
    assert actual is not None
    torch.testing.assert_close(actual[real], expected.logits[real], rtol=0, atol=1e-5)
    batch = as_batch(ours, given)
    if batch.token_info.marked is not None:  # nothing is marked in their class, or where a task reads every token
        batch = from_padded(given["input_ids"], given["attention_mask"])
    batch.targets = torch.nonzero((batch.token_info.document != PADDING).flatten())[:, 0]
    batch.labels, batch.example["tag_known"] = labels[real], torch.ones(ROWS, dtype=torch.bool)
    loss = ours.model(batch).losses["tag"] / len(batch.labels)
    torch.testing.assert_close(loss, expected.loss, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "OpenAIGPT"])
def test_answers_both_ways(family: str, tmp_path: Path):
    kind = "ForQuestionAnswering" + ("Simple" if family == "XLNet" else "")
    theirs = their_model(family, kind)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert isinstance(ours.recipe.task, QuestionAnswering)
    assert ours.unused == []
    compare_answers(theirs, ours)
    save(ours, tmp_path / "ours", format="hf")
    again, loading = transformers.AutoModelForQuestionAnswering.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    compare_answers(again.eval(), ours)
    assert load(tmp_path / "ours").recipe.task == ours.recipe.task


@torch.no_grad()
def compare_answers(theirs, ours: TextEncoder) -> None:
    """Scores with padding; the loss without, which their softmax runs over too."""
    given = inputs(theirs)
    real, places = given["attention_mask"].bool(), {}
    name = type(theirs).__name__
    theirs = theirs.double() if "Reformer" in name else theirs
    if "Longformer" in name:
        places["global_attention_mask"] = (torch.arange(LENGTH) < 4).long().expand(ROWS, LENGTH).contiguous()
    expected, actual = theirs(**given, **places), ours.forward(**given, **places)
    for side in ("start_logits", "end_logits"):
        wanted = getattr(expected, side).float()
        torch.testing.assert_close(getattr(actual, side)[real], wanted[real], rtol=0, atol=1e-5)
    whole = {name: value[:1] for name, value in (given | places).items()}
    begin, end = torch.tensor([3]), torch.tensor([7])
    wanted = theirs(**whole, start_positions=begin, end_positions=end).loss
    marked = whole.get("global_attention_mask")
    batch = from_padded(
        whole["input_ids"], None, whole.get("token_type_ids"), "full", None if marked is None else marked.bool()
    )
    batch.lasts = torch.tensor([LENGTH - 1])
    batch.example |= {"span_start": begin, "span_end": end}
    torch.testing.assert_close(ours.model(batch).losses["qa"], wanted.float(), rtol=0, atol=1e-5)


def test_answers_by_beams_are_refused(tmp_path: Path):
    their_model("XLNet", "ForQuestionAnswering").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="XLNetForQuestionAnswering; its end of an answer is predicted from its start"):
        load(tmp_path)


def test_labels_of_relations_are_of_pairs(tmp_path: Path):
    relation = {0: "contradiction", 1: "entailment", 2: "neutral"}
    theirs = their_model("Bert", "ForSequenceClassification", num_labels=3, id2label=relation)
    theirs.save_pretrained(tmp_path / "theirs")
    task = load(tmp_path / "theirs").recipe.task
    assert isinstance(task, Pair)
    assert task.labels == tuple(relation.values())
    theirs.config.problem_type = "regression"
    theirs.save_pretrained(tmp_path / "scores")
    with pytest.raises(InputError, match="3 scores; one score of a text is supported"):
        load(tmp_path / "scores")


def tuned(name: str, **more: Any) -> TextEncoder:
    """A recipe of ours with a head as fine-tuning makes it."""
    recipe = cw.recipe(name)
    recipe.encoder.vocab = VOCAB
    last = more.pop("last", name.startswith("gpt"))
    template = fitting(InputTemplate(summary="last" if last else "first"), recipe)
    recipe.encoder.pooler = recipe.encoder.pooler if more.pop("pooled", False) else None
    summary = choose_summary(recipe, template, recipe.encoder.pooler is not None)
    kind = more.pop("kind", Classify)
    recipe.objective.losses = (kind(**{"template": template, "summary": summary, "labels": NAMES, **more}),)
    model = build(recipe).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)), alpha=0.1)
    return TextEncoder(model, None, recipe)


@pytest.mark.parametrize(
    ("name", "pooled", "theirs"),
    [
        ("bert_tiny", True, "Bert"),
        ("bert_tiny", False, "Bert"),  # a layer of its own becomes the pooler
        ("roberta_mini", False, "Roberta"),
        ("albert_mini", True, "Albert"),
        ("distilbert_mini", False, "Bert"),  # its own class has a relu there
        ("spanbert_mini", False, "Bert"),
        ("xlnet_mini", False, "XLNet"),  # [CLS] opens its texts
        ("gpt_mini", False, "OpenAIGPT"),  # whose bias the last norm takes over
        ("longformer_mini", False, "Longformer"),
    ],
)
def test_what_is_trained_here_is_a_class_there(name: str, pooled: bool, theirs: str, tmp_path: Path):
    ours = tuned(name, pooled=pooled)
    write(ours, tmp_path / "ours")
    model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert type(model).__name__ == f"{theirs}ForSequenceClassification"
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    compare(model.eval(), ours, LABELS)
    compare(model, load(tmp_path / "ours"), LABELS)


def test_what_no_class_has_is_refused(tmp_path: Path):
    for name, more, where in (
        ("bert_tiny", {"summary": Summary("mean", None)}, "summary"),
        ("bert_tiny", {"bias": False}, "bias"),
        ("bert_tiny", {"reading": SumLayers(2)}, "reading"),
        ("xlnet_mini", {"summary": Summary("mean", "own")}, "summary"),
        ("reformer_mini", {}, "summary"),
        ("bert_tiny", {"kind": Pair, "both": True}, "both"),
    ):
        with pytest.raises(RecipeError, match=rf"{name}\.objective\.losses\.0\.{where} = .* has no such head"):
            save(tuned(name, **more), tmp_path / "hf", format="hf")
        assert not (tmp_path / "hf").exists()
    with pytest.raises(RecipeError, match="Hugging Face has no class with a task of this family"):
        save(tuned("transformer_xl_mini"), tmp_path / "hf", format="hf")


@pytest.mark.parametrize("name", ["bert_tiny", "roberta_mini", "distilbert_mini", "xlnet_mini", "reformer_mini"])
def test_the_refusal_of_a_mean_says_which_head_there_is(name: str, tmp_path: Path):
    with pytest.raises(RecipeError, match="--to sentence-transformers writes the encoder alone") as error:
        save(tuned(name, summary=Summary("mean", None)), tmp_path / "hf", format="hf")
    advised = re.search(r"--set 'task.summary=(Summary\(.*?\))'", str(error.value))
    assert advised is not None
    task = Classify()
    spec.set_path(task, "summary", advised[1])
    save(tuned(name, summary=task.summary), tmp_path / "hf", format="hf")


def test_a_head_that_no_class_says_is_told_not_loaded(tmp_path: Path):
    their_model("Bert", "ForSequenceClassification").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": None}))
    ours = load(tmp_path)
    assert ours.unused == ["classifier.bias", "classifier.weight"]
    assert ours.recipe.task is None


def test_labels_that_cannot_be_are_refused(tmp_path: Path):
    their_model("Bert", "ForSequenceClassification").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for labels in ({"0": "a", "1": "a", "2": "b"}, {"0": "a", "2": "b", "3": "c"}, ["a", "b", "c"], {"x": "a"}):
        (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": labels}))
        with pytest.raises(InputError, match="id2label"):
            load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": {"0": "a", "1": "b"}}))
    with pytest.raises(InputError, match=r"out\.weight of shape"):
        load(tmp_path)


def test_another_summary_than_the_published_is_refused(tmp_path: Path):
    their_model("XLNet", "ForSequenceClassification", summary_type="mean").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="summary_type mean; summary_type last is supported"):
        load(tmp_path)


def test_rates_of_dropout_are_kept(tmp_path: Path):
    for family, name in (("Bert", "classifier_dropout"), ("DistilBert", "seq_classif_dropout")):
        their_model(family, "ForSequenceClassification", **{name: 0.3}).save_pretrained(tmp_path / family)
        task = load(tmp_path / family).recipe.task
        assert isinstance(task, Classify)
        assert task.summary.dropout == 0.3
