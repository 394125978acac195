"""Answers in passages, from rows to characters."""

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.spec import check
from clozeworks.data.batches.labelled import Labelled, make_batch
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.layer_selection import JoinLayers
from clozeworks.tasks.qa import END, START, QuestionAnswering
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run

FOOD, OTHER = ["apple", "bread", "rice"], ["ann", "bob", "cy", "has", "milk", "tea", "and"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join([*FOOD, *OTHER, "what food ?"])], "words", 90)


def table(count: int = 48, seed: int = 0, silent: bool = False) -> Table:
    """A passage of words, one of them food."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        words = [str(word) for word in draw.permutation(OTHER)[: draw.integers(3, 8)]]
        food, at = str(draw.choice(FOOD)), int(draw.integers(0, len(words)))
        answers = [{"text": food, "start": len(" ".join([*words[:at], ""]))}]
        if silent and draw.random() < 0.4:
            answers = []
        else:
            words.insert(at, food)
        rows.append({"id": f"q{number}", "question": "what food ?", "context": " ".join(words), "answers": answers})
    return Table("rows", rows)


def recipe(tokenizer: Tokenizer, task: QuestionAnswering, rows: Table, **tune: int) -> Recipe:
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    train = Train(learning_rate=3e-3, guard=None)
    return make_finetune_recipe(base, task, len(rows), Finetune(**{"epochs": 4, "batch_size": 8, **tune}), train)


def fresh(length: int = 40, **more: Any) -> QuestionAnswering:
    return QuestionAnswering(template=InputTemplate(length=length), **more)


def perfect(task: QuestionAnswering, labelled: Labelled) -> list[np.ndarray]:
    """What a head finds that knows the truth."""
    results = [np.zeros((length, 2), np.float32) for length in labelled.examples.lengths]
    for column, name in enumerate((START, END)):
        for result, place in zip(results, labelled.examples.fields[name], strict=True):
            result[place, column] = 10
    return results


def test_it_learns_and_the_directory_is_a_model(tokenizer: Tokenizer, tmp_path: Path):
    rows, dev = table(48), table(24, 1)
    made = recipe(tokenizer, fresh().with_labels(rows), rows)
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert done.heldout["f1"] > 0.9
    assert "threshold" not in done.heldout
    loaded = cw.load(tmp_path / "run")
    task = loaded.recipe.task
    assert isinstance(task, QuestionAnswering)
    assert task.threshold is None
    answers, loss = predict_records(loaded.model, task, dev, tokenizer, "full", truth=True)
    assert task.score(answers, dev)["f1"] == pytest.approx(max(_figures(tmp_path / "run", "f1")))
    assert loss is not None
    for answer, row in zip(answers, dev.rows, strict=True):
        assert row["context"][answer["start"] : answer["end"]] == answer["answer"]
        assert answer["id"] == row["id"]
        assert not answer["no_answer"]
        assert 1 >= answer["score"] >= answer["others"][0]["score"]


def _figures(run: Path, name: str) -> list[float]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row[name] for row in rows if row.get("split") == "heldout"]


def test_a_threshold_is_found_on_other_rows_and_stays_with_the_model(tokenizer: Tokenizer, tmp_path: Path):
    rows, dev = table(48, silent=True), table(40, 1, silent=True)
    made = recipe(tokenizer, fresh().with_labels(rows), rows)
    assert isinstance(made.task, QuestionAnswering)
    assert made.task.threshold == 0
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert {"HasAns_f1", "NoAns_exact", "threshold"} <= set(done.heldout)
    loaded = cw.load(tmp_path / "run")
    task = loaded.recipe.task
    assert isinstance(task, QuestionAnswering)
    f1, loss = (_figures(tmp_path / "run", name) for name in ("f1", "loss"))
    best = max(range(len(f1)), key=lambda step: (f1[step], -loss[step]))
    assert task.threshold == _figures(tmp_path / "run", "threshold")[best] != 0
    answers, _ = predict_records(loaded.model, task, dev, tokenizer, "full")
    assert task.score(answers, dev)["f1"] == pytest.approx(max(_figures(tmp_path / "run", "f1")))
    assert any(answer["no_answer"] for answer in answers)
    assert all((answer["answer"] == "") == answer["no_answer"] for answer in answers)
    for threshold in (-99.0, 99.0):
        other = fresh(threshold=threshold)
        result, _ = predict_records(loaded.model, other, dev, tokenizer, "full")
        assert {answer["no_answer"] for answer in result} == {threshold < 0}
        assert other.score(result, dev)["f1"] <= task.score(answers, dev)["f1"]
    again = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert again.step == done.step
    assert cw.load(tmp_path / "run").recipe.task == task


TEXTS = {
    "wordpiece": "The café in São Paulo , e\u0301te\u0301 1990 , sold 3.5 % of U.S. tea in well-known shops . 😀 ok ½",
    "bytes": "The café in  São Paulo, e\u0301te\u0301 1990, sold 3.5% of U.S. tea in well-known shops. 😀👨‍👩‍👧 ok ½",
    "unigram": "The café in  São Paulo, e\u0301te\u0301 1990, sold 3.5% of U.S. tea in well-known shops. 😀 ok ½ end",
    "chars": "The café in São Paulo, e\u0301te\u0301 1990, sold 3.5% of U.S. tea in well-known shops. 😀 ok ½ end",
    "chinese": "范廷颂枢机（，），圣名保禄·若瑟，是越南罗马天主教枢机。1963年被任为主教；Nexon公司在2009年2月离世😀。",
}


@functools.cache
def trained(name: str) -> Tokenizer:
    kind, lang = ("wordpiece", "zh") if name == "chinese" else (name, "en")
    return Tokenizer.train([TEXTS[name] + " what ? 什么"], kind, 400, lang=lang)


def template_of(tokenizer: Tokenizer, length: int) -> InputTemplate:
    opening, between, closing = tokenizer.pair_template() or ((), (), ())
    return InputTemplate(opening, between, closing, length=length)


def having(offsets: np.ndarray, begin: int, end: int) -> np.ndarray:
    return np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end) & (offsets[:, 1] > offsets[:, 0]))


def marked(context: str, offsets: np.ndarray, i: int, j: int) -> tuple[int, int]:
    """An answer about tokens i to j: no white space around it, no letter without its accents, and, since bytes of two
    characters may share a token, no character that tokens cut in two."""
    begin, end = int(offsets[i, 0]), int(offsets[j, 1])
    for _ in range(4):
        end -= len(context[begin:end]) - len(context[begin:end].rstrip())
        begin = end - len(context[begin:end].lstrip())
        end += begin < end < len(context) and context[end] == "\u0301"
        begin -= begin < end and context[begin] == "\u0301"
        inside = having(offsets, begin, end)
        if len(inside):
            begin, end = min(begin, int(offsets[inside[0], 0])), max(end, int(offsets[inside[-1], 1]))
    end -= len(context[begin:end]) - len(context[begin:end].rstrip())
    return end - len(context[begin:end].lstrip()), end


@pytest.mark.parametrize("name", TEXTS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_perfect_model_gives_every_answer_back(name: str, data):
    tokenizer = trained(name)
    context = " ".join([TEXTS[name]] * data.draw(st.integers(1, 6)))
    offsets = tokenizer.encode([context])[0].offsets
    task = QuestionAnswering(
        template=template_of(tokenizer, data.draw(st.integers(30, 140))),
        stride=data.draw(st.integers(0, 64)),
        longest=data.draw(st.integers(1, 30)),
        question=data.draw(st.integers(1, 9)),
    )
    question = "什么 什么 ?" if name == "chinese" else "what what ?"
    room = task.template.length - task.template.around(True) - 9
    allowed = min(task.longest, min(task.stride, max(room // 2, task.longest - 1), room - 1) + 1)
    i = data.draw(st.integers(0, len(offsets) - 1))
    j = min(data.draw(st.integers(i, i + allowed - 1)), len(offsets) - 1)
    begin, end = marked(context, offsets, i, j)
    inside = having(offsets, begin, end)
    if begin == end or inside[-1] - inside[0] >= allowed:
        return
    row = {"question": question, "context": context, "answers": [{"text": context[begin:end], "start": begin}]}
    rows = Table("rows", [row])
    labelled = task.examples(rows, tokenizer)
    assert (labelled.examples.lengths <= task.template.length).all()
    (answer,) = task.answers(perfect(task, labelled), labelled, rows)
    assert (answer["answer"], answer["start"], answer["end"]) == (context[begin:end], begin, end)
    assert task.score([answer], rows) == {"exact_match": 1, "f1": 1} or not any(map(str.isalnum, answer["answer"]))


def test_windows_of_a_long_passage(tokenizer: Tokenizer):
    context = "milk and tea food rice bread apple ann bob cy has what"
    row = {"question": "what ?", "context": context, "answers": [{"text": "what", "start": context.index("what")}]}
    rows = Table("rows", [row, {**row, "answers": [{"text": "tea", "start": 9}]}])
    labelled = fresh(13, stride=3, longest=2).examples(rows, tokenizer)
    examples = labelled.examples
    words = [" ".join(tokenizer.token(t) for t in examples.tokens[a:b]) for a, b in itertools.pairwise(examples.first)]
    assert (
        words
        == [
            "[CLS] what ? [SEP] milk and tea food rice bread apple ann [SEP]",
            "[CLS] what ? [SEP] bread apple ann bob cy has what [SEP]",
        ]
        * 2
    )
    assert labelled.row.tolist() == [0, 0, 1, 1]
    assert examples.fields[START].tolist() == examples.fields[END].tolist() == [0, 10, 6, 0]
    last = InputTemplate((), ("[SEP]",), ("[SEP]", "[CLS]"), "last", length=13)
    turned = QuestionAnswering(template=last, stride=3, longest=2).examples(rows, tokenizer).examples
    assert turned.fields[START].tolist() == [12, 9, 5, 11]
    assert QuestionAnswering(template=last).examples(rows, tokenizer, truth=False).examples.fields == {}


def test_the_question_is_marked_and_cut(tokenizer: Tokenizer):
    rows = Table("rows", [{"question": "what has ann ?", "context": "ann has tea", "answers": []}])
    marked = (
        QuestionAnswering(template=InputTemplate(length=32, marks=True), question=2).examples(rows, tokenizer).examples
    )
    assert [tokenizer.token(t) for t in marked.tokens] == [
        "[CLS]",
        "what",
        "has",
        "[SEP]",
        "ann",
        "has",
        "tea",
        "[SEP]",
    ]
    assert marked.marked is not None
    assert marked.marked.tolist() == [True] * 3 + [False] * 5


def test_no_answer_is_cut_from_the_question_or_is_longer_than_allowed(tokenizer: Tokenizer):
    rows = Table("rows", [{"question": "what has ann ?", "context": "ann has tea and milk", "answers": []}])
    task = fresh(longest=2)
    labelled = task.examples(rows, tokenizer)
    logits = np.zeros((len(labelled.examples.tokens), 2), np.float32)
    logits[1:4], logits[-1] = 9, 9  # the question, the last [SEP]
    logits[6, 0], logits[7, 0], logits[8, 1], logits[10, 1] = 4, 2, 2, 5  # ann has tea and milk
    (answer,) = task.answers([logits], labelled, rows)
    assert answer["answer"] == "and milk"  # 5; "ann ... milk" would have 9
    assert answer["others"][0]["answer"] == "milk"
    assert (answer["margin"], answer["id"]) == (-5, 0)
    (whole,) = fresh().answers([logits], labelled, rows)
    assert whole["answer"] == "ann has tea and milk"
    logits[0] = 4.6, 4.6
    (none,) = fresh(threshold=0.1).answers([logits], labelled, rows)
    assert (none["answer"], none["start"], none["no_answer"]) == ("", None, True)
    assert none["others"][0]["answer"] == "ann has tea and milk"
    (some,) = fresh(threshold=0.3).answers([logits], labelled, rows)
    assert not some["no_answer"]
    assert some["score"] < none["score"]


def test_the_lowest_window_decides_that_there_is_no_answer(tokenizer: Tokenizer):
    row = {"question": "what ?", "context": " ".join(OTHER * 2), "answers": []}
    rows, task = Table("rows", [row]), fresh(13, threshold=0.0, longest=2)
    labelled = task.examples(rows, tokenizer)
    results = [np.zeros((length, 2), np.float32) for length in labelled.examples.lengths]
    assert len(results) > 1
    for result in results[1:]:
        result[0] = 5
    results[0][5] = 2
    (answer,) = task.answers(results, labelled, rows)
    assert (answer["answer"], answer["margin"]) == ("bob", -4)


def test_a_passage_without_tokens_has_no_answer(tokenizer: Tokenizer):
    rows = Table("rows", [{"question": "what ?", "context": " \n", "answers": []}])
    labelled = fresh().examples(rows, tokenizer)
    (answer,) = fresh().answers([np.zeros((5, 2), np.float32)], labelled, rows)
    assert (answer["answer"], answer["no_answer"], answer["margin"], answer["score"]) == ("", True, None, 1)


def test_rows_beside_it_change_no_answer_and_no_loss(tokenizer: Tokenizer):
    rows = table(20, silent=True)
    task = fresh(13).with_labels(rows)
    model = build(recipe(tokenizer, task, rows)).eval()
    labelled = task.examples(rows, tokenizer)
    assert len(labelled) > len(rows)
    together, loss = predict_outputs(model, task, labelled, "full", 0)
    total, at = 0.0, 0
    for row in range(20):
        one = task.examples(rows.some([row]), tokenizer)
        alone, own = predict_outputs(model, task, one, "full", 0)
        assert own is not None
        total += own * len(one)
        for result in alone:
            np.testing.assert_allclose(result, together[at], atol=2e-6)
            at += 1
    assert loss == pytest.approx(total / len(labelled), rel=1e-5)


@pytest.mark.parametrize("name", ["longformer_mini", "xlnet_mini", "gpt_mini", "albert_mini"])
def test_every_way_of_reading(tokenizer: Tokenizer, name: str):
    rows, base = table(6, silent=True), cw.recipe(name)
    base.encoder.vocab, base.encoder.stack.depth = tokenizer.size, 2
    task = QuestionAnswering(template=infer_template(base, tokenizer)).with_labels(rows)
    made = make_finetune_recipe(base, task, len(rows))
    model = build(made)
    together, loss = predict_outputs(model, task, task.examples(rows, tokenizer), made.reading, 0)
    alone = [
        predict_outputs(model, task, task.examples(rows.some([row]), tokenizer), made.reading, 0) for row in range(6)
    ]
    for one, (other, _) in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other[0], atol=1e-5)
    assert loss == pytest.approx(np.mean([own for _, own in alone if own is not None]), rel=1e-4)


def test_dropout_and_layers(tokenizer: Tokenizer, tmp_path: Path):
    rows = table(32)
    task = fresh(dropout=0.1, reading=JoinLayers(2)).with_labels(rows)
    made = recipe(tokenizer, task, rows, epochs=1)
    assert build(made).get_parameter("heads.qa.out.weight").shape == (2, 256)
    assert finetune_run(made, tokenizer, rows, None, tmp_path / "run", progress=False).finished


def test_logits_and_loss_are_those_of_transformers(tokenizer: Tokenizer, tmp_path: Path):
    from transformers import BertConfig, BertForQuestionAnswering

    config = BertConfig(
        vocab_size=90, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = BertForQuestionAnswering(config).eval()
    theirs.bert.save_pretrained(tmp_path)
    rows = table(6, silent=True)
    task = fresh().with_labels(rows)
    base = cw.load(tmp_path)
    ours = build(make_finetune_recipe(base.recipe, task, len(rows)))
    ours.encoder.load_state_dict(base.model.encoder.state_dict(), strict=False)
    with torch.no_grad():
        ours.get_parameter("heads.qa.out.weight").copy_(theirs.qa_outputs.weight)
        ours.get_parameter("heads.qa.out.bias").normal_()
        theirs.qa_outputs.bias.copy_(ours.get_parameter("heads.qa.out.bias"))
    labelled = task.examples(rows, tokenizer)
    results, _ = predict_outputs(ours, task, labelled, "full", 0)
    for unit, result in enumerate(results):
        (batch,) = make_batch(labelled, np.array([unit]), "full", 0)
        with torch.no_grad():
            wanted = theirs(
                input_ids=batch.tokens, token_type_ids=batch.token_info.segment,
                start_positions=batch.example[START], end_positions=batch.example[END],
            )  # fmt: skip
            loss = ours(batch).losses["qa"]
        torch.testing.assert_close(torch.from_numpy(result[:, 0]), wanted.start_logits[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(torch.from_numpy(result[:, 1]), wanted.end_logits[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(loss, wanted.loss, atol=1e-5, rtol=1e-5)


def test_bad_rows_are_told_apart(tokenizer: Tokenizer):
    row = {"question": "what ?", "context": "ann has tea", "answers": [{"text": "tea", "start": 7}]}
    wrong = Table("dev.json", [{**row, "answers": [{"text": "tea", "start": 8}]}, row], [4, 9])
    with pytest.raises(InputError, match=r"dev.json, line 9: answer 'tea' at 7; the passage must have it there"):
        fresh().examples(wrong, tokenizer)
    with pytest.raises(InputError, match="no question with an answer"):
        fresh().with_labels(Table("train.json", [{**row, "answers": []}]))


@pytest.mark.parametrize(
    ("field", "value"), [("stride", -1), ("question", 0), ("longest", 0), ("threshold", float("inf")), ("dropout", 1.0)]
)
def test_fields_that_cannot_be(field: str, value: float):
    with pytest.raises(RecipeError, match=field):
        check(fresh(**{field: value}), "span")
