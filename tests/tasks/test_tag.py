"""Tags of words, from rows to answers."""

import dataclasses
import itertools
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.batch import Batch
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import NOTHING
from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.starts.transfer import transfer
from clozeworks.tasks.heads.crf import CRF
from clozeworks.tasks.heads.task_encoder import TaskEncoder
from clozeworks.tasks.layer_selection import JoinLayers, Reading, ScalarMix
from clozeworks.tasks.tag import Tag, TagLayer
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run
from tests.tasks.test_families import FAMILIES, WORDS, known

NAMES = {"PER": ["anna", "berta"], "LOC": ["york", "delhi"]}
SECOND = {"PER": "smith", "LOC": "city"}
OTHERS = ["the", "sees", "in", "walks", "unwalked"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = [word for words in NAMES.values() for word in words] + OTHERS[:-1]
    return Tokenizer.train([" ".join([*words, *SECOND.values(), "un", "ed"])] * 3, vocab=200)


def table(count: int = 48, seed: int = 0, longest: int = 4) -> Table:
    """Names of one word or two."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        tokens, tags = [], []
        for _ in range(draw.integers(1, longest + 1)):
            tokens.append(str(draw.choice(OTHERS)))
            tags.append("O")
            kind = str(draw.choice(list(NAMES)))
            two = bool(draw.random() < 0.3)
            tokens += [str(draw.choice(NAMES[kind]))] + [SECOND[kind]] * two
            tags += [f"B-{kind}"] + [f"I-{kind}"] * two
        rows.append({"tokens": tokens, "tags": tags})
    return Table("rows", rows)


def recipe(tokenizer: Tokenizer, task: Tag, rows: Table, **tune: int) -> Recipe:
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    train = Train(learning_rate=3e-3, guard=None)
    return make_finetune_recipe(base, task, len(rows), Finetune(**{"epochs": 8, "batch_size": 8, **tune}), train)


def fresh(length: int = 64, **more: object) -> Tag:
    return Tag(template=InputTemplate(length=length), **more)  # pyright: ignore[reportArgumentType]


QUICK = ("gpt_mini", "xlnet_mini_memory", "longformer_mini", "reformer_mini")  # the others are slow tests
KINDS = {"first": {}, "all": {"pieces": "all"}, "chain": {"crf": CRF()}}


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_and_the_directory_is_a_model(tokenizer: Tokenizer, tmp_path: Path, kind: str):
    rows, dev = table(), table(24, 1)
    made = recipe(tokenizer, fresh(**KINDS[kind]).with_labels(rows), rows)
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.finished
    assert done.heldout is not None
    assert done.heldout["f1"] > 0.95
    loaded = cw.load(tmp_path / "run")
    task = loaded.recipe.task
    assert isinstance(task, Tag)
    assert task.labels == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    assert (task.scheme, task.metric) == ("BIO", "f1")
    answers, loss = predict_records(loaded.model, task, dev, tokenizer, "full", truth=True)
    metrics = task.score(answers, dev)
    assert metrics == {name: done.heldout[name] for name in ("accuracy", "precision", "recall", "f1")}
    assert loss is not None
    assert all(0 < score <= 1 for one in answers for score in one["scores"])
    (again,), none = predict_records(
        loaded.model, task, Table("t", [{"tokens": ["the", "york", "city"]}]), tokenizer, "full"
    )
    assert none is None
    assert again["tags"] == ["O", "B-LOC", "I-LOC"]
    (entity,) = again["entities"]
    assert (entity["type"], entity["start"], entity["end"], entity["text"]) == ("LOC", 1, 3, "york city")
    assert entity["score"] == pytest.approx(np.mean(again["scores"][1:]))


@pytest.mark.parametrize("kind", ["first", "chain"])
def test_a_resumed_run_ends_with_the_same_weights(tokenizer: Tokenizer, tmp_path: Path, kind: str):
    rows = table()
    made = recipe(tokenizer, fresh(**KINDS[kind]).with_labels(rows), rows, epochs=2)
    whole = finetune_run(made, tokenizer, rows, rows, tmp_path / "whole", progress=False)

    class Stop:
        def write(self, row: dict) -> None:
            if row.get("step") == 7:
                os.kill(os.getpid(), signal.SIGTERM)

        def close(self) -> None: ...

    made.train.log_every = 1
    cut = finetune_run(made, tokenizer, rows, rows, tmp_path / "cut", progress=False, writers=[Stop()])
    assert not cut.finished
    resumed = finetune_run(made, tokenizer, rows, rows, tmp_path / "cut", progress=False)
    assert resumed.resumed == cut.step == 7
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (whole.checkpoint / file).read_bytes() == (resumed.checkpoint / file).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [64, 12])
def test_rows_beside_it_change_no_answer(tokenizer: Tokenizer, kind: str, length: int):
    rows = table(12, longest=8)
    task = fresh(length, overlap=4, **KINDS[kind]).with_labels(rows)
    model = chained(build(recipe(tokenizer, task, rows)).eval())
    together, _ = predict_records(model, task, rows, tokenizer, "full")
    for at in range(12):
        (alone,), _ = predict_records(model, task, rows.some([at]), tokenizer, "full")
        assert alone["tags"] == together[at]["tags"]
        np.testing.assert_allclose(alone["scores"], together[at]["scores"], atol=2e-6)


def chained(model: torch.nn.Module) -> torch.nn.Module:
    """With steps between tags that matter."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if ".crf." in name:
            torch.nn.init.normal_(parameter, 0, 0.01)
    return model


@pytest.mark.parametrize("length", [8, 12, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_no_word_is_lost_and_none_counts_twice(tokenizer: Tokenizer, kind: str, length: int):
    rows = table(10, longest=12)
    task = fresh(length, overlap=3, **KINDS[kind]).with_labels(rows)
    labelled = task.examples(rows, tokenizer)
    assert labelled.examples.lengths.max() <= length
    examples = labelled.examples
    asked = (examples.labels != NOTHING) & (examples.word_starts if kind == "all" else True)
    words = np.concatenate([row["tags"] for row in rows.rows])
    assert [task.labels[at] for at in examples.labels[asked]] == words.tolist()
    assert not examples.special[asked].any()
    assert (len(labelled) > 10) == (length < 64 and kind != "chain")
    model = build(recipe(tokenizer, task, rows)).eval()
    answers, _ = predict_records(model, task, rows, tokenizer, "full")
    assert [len(one["tags"]) for one in answers] == [len(row["tokens"]) for row in rows.rows]


def test_a_chain_goes_through_all_windows_of_its_row(tokenizer: Tokenizer):
    rows = table(3, longest=12)
    task = fresh(12, overlap=4, crf=CRF(constrain=False)).with_labels(rows)
    model = chained(build(recipe(tokenizer, task, rows)).eval())
    head = model.head("tag")
    assert isinstance(head, TagLayer)
    assert head.crf is not None
    labelled = task.examples(rows, tokenizer)
    assert len(labelled.examples) > len(labelled) == 3
    (batch,) = make_batch(labelled, np.arange(3), "full", 0)
    with torch.no_grad():
        hidden = model.read(batch, (task,))
    logits = head.logits(hidden, batch)
    sizes = torch.tensor([len(rows.rows[at]["tags"]) for at in batch.index])
    assert batch.labels is not None
    torch.testing.assert_close(head(hidden, batch)[0], head.crf(logits, batch.labels, sizes))
    best = head.crf.best(logits, sizes)
    with torch.no_grad():
        assert np.concatenate(head.outputs(hidden, batch))[:, 0].tolist() == best.tolist()


def test_pieces_that_are_asked(tokenizer: Tokenizer):
    rows = Table("rows", [{"tokens": ["the", "unwalked", "york"], "tags": ["A", "B1", "C"]}])
    shown = {}
    for which in ("first", "all"):
        task = fresh(pieces=which).with_labels(rows)
        examples = task.examples(rows, tokenizer).examples
        names = [tokenizer.token(index) for index in examples.tokens]
        shown[which] = [name for name, label in zip(names, examples.labels, strict=True) if label != NOTHING]
    pieces = [tokenizer.token(index) for index in tokenizer.encode(["unwalked"])[0].ids]
    assert len(pieces) > 1
    assert shown["first"] == ["the", pieces[0], "york"]
    assert shown["all"] == ["the", *pieces, "york"]


def test_the_first_piece_is_believed(tokenizer: Tokenizer):
    rows = Table("rows", [{"tokens": ["unwalked", "york"], "tags": ["A", "C"]}])
    task = fresh(pieces="all").with_labels(rows)
    labelled = task.examples(rows, tokenizer)
    many = int((labelled.examples.labels != NOTHING).sum())
    outputs = np.array([[0, 0.9], *[[1, 0.5]] * (many - 2), [1, 0.8]])
    (answer,) = task.answers([outputs], labelled, rows)
    assert answer == {"tags": ["A", "C"], "scores": [0.9, 0.8]}


def test_a_chain_keeps_to_the_scheme(tokenizer: Tokenizer):
    rows = table(30)
    free = fresh(crf=CRF(constrain=False)).with_labels(rows)
    bound = dataclasses.replace(free, crf=CRF())
    broken = {}
    for task in (free, bound):
        model = build(recipe(tokenizer, task, rows)).eval()
        torch.nn.init.normal_(model.get_parameter("heads.tag.out.weight"), 0, 3)
        answers, _ = predict_records(model, task, rows, tokenizer, "full")
        tags = [["O", *one["tags"]] for one in answers]
        pairs = [(a, b) for row in tags for a, b in itertools.pairwise(row)]
        broken[task is bound] = sum(b[0] == "I" and a[1:] != b[1:] for a, b in pairs)
    assert broken[False] > 0
    assert broken[True] == 0


@pytest.mark.parametrize("reading", [Reading(), JoinLayers(2), ScalarMix(2)], ids=lambda r: type(r).__name__)
def test_a_frozen_encoder_stays_as_it_is(tokenizer: Tokenizer, tmp_path: Path, reading: Reading):
    rows = table(16)
    made = recipe(tokenizer, fresh(reading=reading, crf=CRF()).with_labels(rows), rows, epochs=2)
    before = build(made)
    made.finetune = Finetune(epochs=2, batch_size=8, freeze=True)
    finetune_run(made, tokenizer, rows, None, tmp_path / "run", progress=False)
    after = cw.load(tmp_path / "run").model
    pairs = zip(before.named_parameters(), after.parameters(), strict=True)
    changed = {name for (name, a), b in pairs if not a.equal(b)}
    assert {"heads.tag.out.weight", "heads.tag.crf.step"} <= changed
    assert all(name.startswith("heads.tag.") for name in changed)


def test_what_is_dropped_does_not_depend_on_micro_batches(tokenizer: Tokenizer):
    rows = table(40)
    task = fresh().with_labels(rows)
    model = build(recipe(tokenizer, task, rows))
    model.freeze()  # the head alone drops
    labelled = task.examples(rows, tokenizer)
    (whole,) = make_batch(labelled, np.arange(40), "full", 0)
    cut = make_batch(labelled, np.arange(40), "full", 0, most=256)
    assert len(cut) > 1

    def loss(batch: Batch, drops: bool = True) -> float:
        key = DropoutKey.make(1, 2, rows=range(batch.row or 0, (batch.row or 0) + len(batch.tokens))) if drops else None
        return model(batch, key).losses["tag"].item()

    assert sum(map(loss, cut)) == pytest.approx(loss(whole), rel=1e-5)
    assert loss(whole) != pytest.approx(loss(whole, drops=False), rel=1e-4)


def test_plain_tags_have_no_entities(tokenizer: Tokenizer, tmp_path: Path):
    rows = table(40)
    for row in rows.rows:
        row["tags"] = ["NN" if tag != "O" else "VB" for tag in row["tags"]]
    task = fresh().with_labels(rows)
    assert (task.scheme, task.metric, task.labels) == ("plain", "accuracy", ("NN", "VB"))
    done = finetune_run(recipe(tokenizer, task, rows), tokenizer, rows, rows, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert done.heldout["accuracy"] > 0.95
    assert done.heldout["f1"] > 0.95
    answers, _ = predict_records(cw.load(tmp_path / "run").model, task, rows, tokenizer, "full")
    assert set(answers[0]) == {"tags", "scores"}


def test_the_scheme_is_read_off_the_rows():
    rows = Table("rows", [{"tokens": ["a", "b", "c"], "tags": ["I-X", "O", "I-X"]}])
    assert fresh().with_labels(rows).scheme == "IOB1"
    assert fresh(scheme="BIO").with_labels(rows).scheme == "BIO"
    assert fresh().with_labels(rows).labels == ("B-X", "I-X", "O")


def test_rows_with_little_in_them(tokenizer: Tokenizer):
    """No word at all, a word of no piece, a word longer than the frame; words with spaces between them."""
    rows = [{"tokens": []}, {"tokens": ["the", "\x01", ""]}, {"tokens": ["the", "york" * 40, "in"]}, {"tokens": "a b"}]
    task = fresh(12).with_labels(table())
    model = build(recipe(tokenizer, task, table())).eval()
    answers, _ = predict_records(model, task, Table("rows", rows), tokenizer, "full")
    assert [len(one["tags"]) for one in answers] == [0, 3, 3, 2]
    assert predict_records(model, task, Table("rows", rows[:1]), tokenizer, "full")[0] == [
        {"tags": [], "scores": [], "entities": []}
    ]


def test_bad_rows_are_told_apart(tokenizer: Tokenizer):
    task = fresh().with_labels(table())
    uneven = Table("dev.jsonl", [{"tokens": ["a", "b"], "tags": ["O"]}], [7])
    with pytest.raises(InputError, match=r"dev.jsonl, line 7: 2 tokens and 1 tags"):
        task.examples(uneven, tokenizer)
    strange = Table("dev.jsonl", [{"tokens": ["a"], "tags": ["B-ORG"]}], [3])
    with pytest.raises(InputError, match=r"dev.jsonl, line 3: label 'B-ORG'; the model knows B-LOC"):
        task.examples(strange, tokenizer)
    with pytest.raises(InputError, match="one tag only, O"):
        fresh().with_labels(Table("rows", [{"tokens": ["a"], "tags": ["O"]}]))
    for field, task in {"dropout": fresh(dropout=1.0), "overlap": fresh(overlap=-1)}.items():
        with pytest.raises(RecipeError, match=f"tag.{field}"):
            spec.check(task, "tag")
    with pytest.raises(RecipeError, match="a chain has one tag a word"):
        spec.check(fresh(pieces="all", crf=CRF()), "tag")


@pytest.mark.parametrize("family", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FAMILIES])
def test_every_family_is_trained_and_answers(family: str, tmp_path: Path):
    given, tokenizer = known(family)
    draw = np.random.default_rng(0)
    rows = [[str(draw.choice([*WORDS, "a", "b"])) for _ in range(draw.integers(1, 30))] for _ in range(12)]
    tags = [["B-X" if word in WORDS[:2] else "O" for word in words] for words in rows]
    data = Table("rows", [{"tokens": a, "tags": b} for a, b in zip(rows, tags, strict=True)])
    template = dataclasses.replace(infer_template(given, tokenizer), length=24)
    task = Tag(template=template, overlap=8).with_labels(data)
    run = make_finetune_recipe(
        given, task, len(data), Finetune(epochs=1, batch_size=6), Train(learning_rate=1e-3, guard=None)
    )
    done = finetune_run(run, tokenizer, data, data, tmp_path / "run", progress=False)
    assert done.heldout is not None
    loaded = cw.load(tmp_path / "run")
    assert loaded.recipe.task == task
    answers, loss = predict_records(loaded.model, task, data, tokenizer, given.reading, truth=True)
    assert loss == pytest.approx(done.heldout["loss"], rel=1e-4)
    assert [len(one["tags"]) for one in answers] == list(map(len, rows))
    (alone,), _ = predict_records(loaded.model, task, data.some([7]), tokenizer, given.reading)
    hashed = family.startswith("reformer")  # tokens of the rows beside it may push some out of a chunk
    np.testing.assert_allclose(alone["scores"], answers[7]["scores"], atol=1e-2 if hashed else 1e-5)


def test_logits_and_loss_are_those_of_transformers(tokenizer: Tokenizer, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    rows = table(9, longest=6)
    task = fresh(dropout=0.0).with_labels(rows)
    config = transformers.BertConfig(
        vocab_size=tokenizer.size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=64, num_labels=len(task.labels), initializer_range=0.3,
    )  # fmt: skip
    theirs = transformers.BertForTokenClassification(config).eval()
    theirs.bert.save_pretrained(tmp_path / "hf")
    tokenizer.save(tmp_path / "hf")
    source = cw.load(tmp_path / "hf")
    model = build(make_finetune_recipe(source.recipe, task, len(rows))).eval()
    transfer(source.model, model)
    with torch.no_grad():
        for name in ("weight", "bias"):
            model.get_parameter(f"heads.tag.out.{name}").copy_(getattr(theirs.classifier, name))
    labelled = task.examples(rows, tokenizer)
    examples = labelled.examples
    size = int(examples.lengths.max())
    ids, labels = np.zeros((9, size), np.int64), np.full((9, size), -100)
    for at in range(9):
        here = slice(examples.first[at], examples.first[at + 1])
        ids[at, : examples.lengths[at]], labels[at, : examples.lengths[at]] = (
            examples.tokens[here],
            examples.labels[here],
        )
    mask = torch.arange(size) < torch.from_numpy(examples.lengths)[:, None]
    expected = theirs(torch.from_numpy(ids), attention_mask=mask.long(), labels=torch.from_numpy(labels))
    (batch,) = make_batch(labelled, np.arange(9), "full", 0)
    head = model.head("tag")
    assert isinstance(head, TagLayer)
    logits = head.logits(model.read(batch, (task,)), batch)
    asked = [expected.logits[at][torch.from_numpy(labels[at]) != -100] for at in batch.index]
    torch.testing.assert_close(logits, torch.cat(asked), atol=2e-5, rtol=1e-4)
    _, loss = predict_outputs(model, task, labelled, "full", 0)
    assert loss == pytest.approx(expected.loss.item(), rel=1e-5)


def test_readers_over_a_frozen_model_learn_names(tokenizer: Tokenizer, tmp_path: Path):
    """TagLM in small: the encoder stays as it is, and what the rows teach is there again after loading."""
    rows = table(48)
    task = fresh(crf=CRF(), task_encoder=TaskEncoder(cells=16, words=8, dropout=0.0)).with_labels(rows)
    made = recipe(tokenizer, task, rows, epochs=8)
    made.finetune = Finetune(epochs=8, batch_size=8, freeze=True)
    made.train.learning_rate = 1e-2
    before = build(made)
    done = finetune_run(made, tokenizer, rows, None, tmp_path / "run", progress=False)
    assert done.finished
    after = cw.load(tmp_path / "run")
    pairs = zip(before.named_parameters(), after.model.parameters(), strict=True)
    changed = {name for (name, a), b in pairs if not a.equal(b)}
    assert any(name.startswith("heads.tag.task_encoder.readers.1.back.") for name in changed)
    assert all(name.startswith("heads.tag.") for name in changed)
    answers = after.predict([{"tokens": row["tokens"]} for row in rows.rows])
    assert task.score(answers, rows)["f1"] > 0.9
    ids = torch.tensor([tokenizer.encode(["the anna sees"])[0].ids.tolist()])
    assert after.forward(ids).logits.shape == (1, ids.shape[1], len(task.labels))


def test_a_whole_text_is_cut_as_the_words_that_were_learned_from(tokenizer: Tokenizer, tmp_path: Path):
    rows = table()
    made = recipe(tokenizer, fresh().with_labels(rows), rows, epochs=4)
    finetune_run(made, tokenizer, rows, None, tmp_path / "run", progress=False)
    model = cw.load(tmp_path / "run")
    text = "the anna smith,  walks in (york)"
    bare, row, words = model.predict([text]) + model.predict([{"text": text}]) + model.predict([{"tokens": text}])
    assert bare["tokens"] == ["the", "anna", "smith", ",", "walks", "in", "(", "york", ")"]
    assert bare["tags"] == row["tags"]
    assert bare["entities"]
    for entity in bare["entities"]:
        begin, end = entity["characters"]
        assert entity["text"] == text[begin:end] != ""
        assert bare["tokens"][entity["start"]] == entity["text"].split()[0]
    assert words["tokens"] == text.split()
    assert "characters" not in str(model.predict([{"tokens": text.split()}]))


def test_how_a_text_is_cut_stays_with_the_model():
    characters = Table("rows", [{"tokens": list("李明在1998"), "tags": ["B-PER", "I-PER", *"OOOOO"]}])
    task = fresh().with_labels(characters)
    assert task.cut == "characters"
    assert spec.from_dict(spec.to_dict(task)) == task
    assert fresh(cut="spaces").with_labels(characters).cut == "spaces"
    assert spec.to_dict(fresh())["cut"] is None
