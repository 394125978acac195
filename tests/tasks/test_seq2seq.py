"""Texts from texts: rows, both forms beside `transformers`' own, and what is learned."""

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import NOTHING
from clozeworks.core.spec import walk
from clozeworks.core.token_info import visible
from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.names.bert import HEAD_NAMES, encoder_names
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.model import Model
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.generation import Search
from clozeworks.tasks.seq2seq import Seq2Seq, Seq2SeqLayer
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run

WORDS = ["red", "old", "sad", "big", "new", "hot"]
FORMS = ["decoder", "prefix", "causal"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS)], "words", vocab=64)


def table(count: int = 24, seed: int = 0, most: int = 4, turned: bool = True) -> Table:
    """Words, to be written once more, from their end if `turned`."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words = [str(word) for word in draw.choice(WORDS, draw.integers(1, most + 1))]
        rows.append({"source": " ".join(words), "target": " ".join(words[::-1] if turned else words)})
    return Table("rows", rows)


def small(tokenizer: Tokenizer, name: str = "bert_tiny") -> Recipe:
    base = cw.recipe(name)
    base.encoder.vocab = tokenizer.size
    return base


def task_of(form: str, length: int = 32, **more: object) -> Seq2Seq:
    return Seq2Seq(template=InputTemplate(length=length), architecture=form, target_length=8, **more)  # pyright: ignore[reportArgumentType]


def recipe(tokenizer: Tokenizer, task: Seq2Seq, rows: Table, **tune: int) -> Recipe:
    base = small(tokenizer)
    base.encoder.width, base.encoder.stack.depth, base.encoder.init = 64, 1, 0.05
    train = Train(learning_rate=3e-3, guard=None)
    return make_finetune_recipe(base, task, len(rows), Finetune(**{"epochs": 4, "batch_size": 8, **tune}), train)


def lively(made: Recipe, seed: int = 0) -> Model:
    """Weights of which no two words are alike."""
    model = build(made).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.3, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1)
    return model


def logits(model: Model, task: Seq2Seq, rows: Table, tokenizer: Tokenizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of each row the logits of what is predicted, and the labels, from one packed batch."""
    labelled = task.examples(rows, tokenizer)
    (batch,) = make_batch(labelled, np.arange(len(rows)), "full", 0)
    assert batch.targets is not None
    assert batch.labels is not None
    head = model.head("seq2seq")
    assert isinstance(head, Seq2SeqLayer)
    with torch.no_grad():
        result = head.logits(model.read(batch, (task,)).at(batch))
    owner = batch.token_info.document.flatten()[batch.targets]
    places = [(owner == place).nonzero()[:, 0] for place in np.argsort(np.array(batch.index))]
    return [(result[at], batch.labels[at]) for at in places]


def test_what_is_read_and_what_is_predicted(tokenizer: Tokenizer):
    rows = Table("rows", [{"source": "red old sad", "target": "big new"}])
    read, predicted = {}, {}
    for form in FORMS:
        one = task_of(form).examples(rows, tokenizer).examples
        read[form] = " ".join(tokenizer.token(t) for t in one.tokens)
        predicted[form] = [
            (tokenizer.token(t), tokenizer.token(y)) for t, y in zip(one.tokens, one.labels, strict=True) if y >= 0
        ]
        assert one.segment.tolist() == ([0] * 5 + [1] * 3 if form == "decoder" else [0] * 5 + [1] * 2)
    assert read["decoder"] == "[CLS] red old sad [SEP] [CLS] big new"
    assert read["prefix"] == read["causal"] == "[CLS] red old sad [SEP] big new"
    assert predicted["decoder"] == [("[CLS]", "big"), ("big", "new"), ("new", "[SEP]")]
    assert predicted["prefix"] == predicted["causal"] == [("[SEP]", "big"), ("big", "new"), ("new", "[SEP]")]
    order = task_of("prefix").examples(rows, tokenizer).examples.order
    assert order is not None
    assert order.tolist() == [0, 0, 0, 0, 0, 1, 2]


def test_a_target_that_is_cut_has_no_end(tokenizer: Tokenizer):
    rows = Table("rows", [{"source": "red " * 40, "target": " ".join(["big"] * count)} for count in (7, 8)])
    for form in FORMS:
        task = task_of(form, length=20)
        ragged = task.examples(rows, tokenizer).examples
        ends = [ragged.labels[end - 1] for end in ragged.first[1:]]
        assert ends[0] == tokenizer.sep
        assert ends[1] == NOTHING
        labels = [ragged.labels[a:b] for a, b in zip(ragged.first[:-1], ragged.first[1:], strict=True)]
        assert [int((one >= 0).sum()) for one in labels] == [8, 7]
        assert ragged.fields["source"].tolist() == ([20, 20] if form == "decoder" else [13, 13])
        if form != "decoder":
            assert ragged.lengths.max() == 20


def test_who_sees_whom(tokenizer: Tokenizer):
    rows = Table("rows", [{"source": "red old", "target": "big new sad"}, {"source": "hot", "target": "old"}])
    (batch,) = make_batch(task_of("prefix").examples(rows, tokenizer), np.arange(2), "full", 0)
    seen = visible(batch.token_info, batch.token_info)[0].int().tolist()
    assert batch.kind == "prefix"
    assert [row[:7] for row in seen[:7]] == [[1, 1, 1, 1, 0, 0, 0]] * 4 + [
        [1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1]
    ]  # fmt: skip
    assert not any(any(row[7:]) for row in seen[:7])


@pytest.mark.parametrize("form", FORMS)
def test_rows_beside_it_change_no_answer(tokenizer: Tokenizer, form: str):
    rows = table(12)
    task = task_of(form, search=Search(beams=3)).with_labels(rows)
    model = lively(recipe(tokenizer, task, rows))
    together, loss = predict_outputs(model, task, task.examples(rows, tokenizer), "full", 0)
    words = logits(model, task, rows, tokenizer)
    assert len({tuple(row[1:]) for row in together}) > 4
    for at in range(12):
        one = rows.some([at])
        alone, _ = predict_outputs(model, task, task.examples(one, tokenizer, truth=False), "full", 0)
        assert alone[0][1:].tolist() == together[at][1:].tolist()
        assert alone[0][0] == pytest.approx(together[at][0], abs=1e-4)
        torch.testing.assert_close(logits(model, task, one, tokenizer)[0][0], words[at][0], rtol=0, atol=1e-4)
    assert loss == pytest.approx(
        float(torch.cat([z.log_softmax(-1).gather(1, y[:, None]) for z, y in words]).mean()) * -1, abs=1e-4
    )


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_is_as_likely_as_it_was_read(tokenizer: Tokenizer, form: str):
    """The score of a search is the sum of what teacher forcing gives its tokens."""
    rows = table(8, most=6)
    task = task_of(form, search=Search(beams=2)).with_labels(rows)
    model = lively(recipe(tokenizer, task, rows), 3)
    written, _ = predict_outputs(model, task, task.examples(rows, tokenizer, truth=False), "full", 0)
    answers = task.answers(written, task.examples(rows, tokenizer, truth=False), rows)
    longer = dataclasses.replace(task, target_length=12)
    assert sum(one["text"] != "" for one in answers) > 4
    for row, one, answer in zip(rows.rows, written, answers, strict=True):
        if answer["text"]:
            read = Table("x", [{"source": row["source"], "target": answer["text"]}])
            scores, tokens = logits(model, longer, read, tokenizer)[0][0], torch.from_numpy(one[1:]).long()
            chances = scores.log_softmax(-1)[: len(tokens)].gather(1, tokens[:, None])
            assert float(chances.sum()) == pytest.approx(answer["score"], abs=1e-4)


@pytest.mark.parametrize("form", ["decoder", "prefix"])
def test_it_learns_and_the_directory_is_a_model(tokenizer: Tokenizer, tmp_path: Path, form: str):
    rows, dev = table(320, most=2, turned=False), table(24, 1, most=2, turned=False)
    task = task_of(form, label_smoothing=0.05, search=Search(2), metric_name="rougeL").with_labels(rows)
    made = recipe(tokenizer, task, rows, batch_size=32)
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert done.heldout["exact_match"] > 0.9
    loaded = cw.load(tmp_path / "run")
    task = loaded.recipe.task
    assert task is not None
    answers, loss = predict_records(loaded.model, task, dev, tokenizer, "full", truth=True)
    assert np.mean([one["text"] == row["target"] for one, row in zip(answers, dev.rows, strict=True)]) > 0.9
    assert loss is not None
    assert set(answers[0]) == {"text", "score"}
    blank, nothing = predict_records(loaded.model, task, Table("x", [{"source": " "}]), tokenizer, "full")
    assert (blank, nothing) == ([{"text": "", "score": 0.0}], None)


def test_a_resumed_run_ends_with_the_same_weights(tokenizer: Tokenizer, tmp_path: Path):
    rows = table(40)
    made = recipe(tokenizer, task_of("decoder", search=Search(1)).with_labels(rows), rows, epochs=2)
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


def test_a_frozen_encoder_stays_as_it_is(tokenizer: Tokenizer, tmp_path: Path):
    rows = table(16)
    made = recipe(tokenizer, task_of("decoder", search=Search(1)).with_labels(rows), rows, epochs=1)
    made.finetune = Finetune(epochs=1, batch_size=8, freeze=True)
    before = build(made)
    finetune_run(made, tokenizer, rows, None, tmp_path / "run", progress=False)
    after = cw.load(tmp_path / "run").model
    same = {name: a.equal(b) for (name, a), b in zip(before.named_parameters(), after.parameters(), strict=True)}
    assert all(stays for name, stays in same.items() if name.startswith("encoder."))
    assert not any(stays for name, stays in same.items() if name.startswith("decoder.stack.") and "weight" in name)


def test_a_frozen_encoder_drops_nothing(tokenizer: Tokenizer):
    rows = table(6)
    made = recipe(tokenizer, task_of("decoder").with_labels(rows), rows)
    assert made.decoder is not None
    assert made.decoder.embed is not None
    for _, part in walk(made.decoder):
        if hasattr(part, "dropout"):
            part.dropout = 0.0
    (batch,) = make_batch(task_of("decoder").examples(rows, tokenizer), np.arange(6), "full", 0)
    model = build(made)
    losses = [[float(model(batch, DropoutKey.make(seed)).losses["seq2seq"].detach()) for seed in (1, 2)]]
    model.freeze()
    losses += [[float(model(batch, DropoutKey.make(seed)).losses["seq2seq"].detach()) for seed in (1, 2)]]
    assert losses[0][0] != losses[0][1]
    assert losses[1][0] == losses[1][1]


def test_micro_batches_change_nothing(tokenizer: Tokenizer):
    rows = table(60)
    for form in FORMS:
        task = task_of(form).with_labels(rows)
        model, labelled = lively(recipe(tokenizer, task, rows)), task.examples(rows, tokenizer)
        losses = []
        for most in (None, 300):
            batches = make_batch(labelled, np.arange(60), "full", 0, most)
            losses.append(sum(float(model(batch).losses["seq2seq"].detach()) for batch in batches))
            assert sorted(sum((batch.index for batch in batches), ())) == list(range(60))
        assert len(batches) > 1
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_bad_rows_are_told_apart(tokenizer: Tokenizer):
    rows = Table("train.csv", [{"source": "red", "target": "old"}, {"source": "red", "target": "  "}], [2, 3])
    with pytest.raises(InputError, match=r"train.csv, line 3: an empty target; there must be something to write"):
        task_of("prefix").with_labels(rows)
    with pytest.raises(InputError, match="an empty target"):
        task_of("decoder").examples(rows, tokenizer)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"target_length": 1}, "2 or more"),
        ({"architecture": "prefix", "target_length": 30}, "the source needs 4 at least"),
        ({"label_smoothing": 1.0}, "a number in"),
        ({"search": Search(beams=0)}, "1 or more is needed"),
    ],
)
def test_settings_that_cannot_be_are_refused(tokenizer: Tokenizer, change: dict, sentence: str):
    task = Seq2Seq(**{"template": InputTemplate(length=32), "target_length": 8, **change})
    with pytest.raises(RecipeError, match=sentence):
        recipe(tokenizer, task, table(4))


def test_figures(tokenizer: Tokenizer):
    rows = Table(
        "x", [{"source": "a", "target": "The cat sat on the mat."}, {"source": "b", "target": "A dog ran off."}]
    )
    answers = [{"text": "the cat sat on the mat.", "score": 0.0}, {"text": "a dog ran.", "score": 0.0}]
    metrics = Seq2Seq().score(answers, rows)
    assert set(metrics) == {"bleu", "exact_match", "rouge1", "rouge2", "rougeL"}
    assert metrics["exact_match"] == 0.5
    assert metrics["rougeL"] == pytest.approx((1 + 6 / 7) / 2)
    assert metrics["bleu"] > 60
    assert Seq2Seq().metric == "bleu"
    assert Seq2Seq(metric_name="rougeL").metric == "rougeL"


transformers = pytest.importorskip("transformers")
SHAPE = {
    "vocab_size": 11,
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
}


def theirs(ours: Model, name: str, prefix: str, **config: object):
    """A class of theirs with our weights: those of `encoder` or `decoder`, and of the head where it has one."""
    model = getattr(transformers, name)(transformers.BertConfig(**SHAPE, **config, attn_implementation="eager")).eval()
    state = ours.state_dict()
    names = encoder_names("") if name == "BertModel" else encoder_names("bert.")
    block = "encoder.stack.blocks.{i}."
    layer = names[5][1].split("attention.")[0]
    names += tuple(
        (block + mine, layer + other) for mine, other in (
            ("cross.query", "crossattention.self.query"), ("cross.key", "crossattention.self.key"),
            ("cross.value", "crossattention.self.value"), ("cross.out", "crossattention.output.dense"),
            ("cross_norm", "crossattention.output.LayerNorm"),
        )
    )  # fmt: skip
    names += tuple((mine.replace("heads.masked_lm", "heads.seq2seq.words"), other) for mine, other in HEAD_NAMES)
    results = {}
    for mine, other in names:
        mine = mine.replace("{i}", "0").replace("encoder.", prefix + ".", 1) if mine.startswith("encoder.") else mine
        for end in ("weight", "bias"):
            if f"{mine}.{end}" in state and "pooler" not in mine:
                results[f"{other.replace('{i}', '0')}.{end}"] = state[f"{mine}.{end}"]
    missing, unexpected = model.load_state_dict(results, strict=False)
    assert not [key for key in unexpected if not key.startswith("cls.")]
    assert not [key for key in missing if "position_ids" not in key and "pooler" not in key and ".decoder." not in key]
    model.tie_weights()
    return model


def test_the_decoder_is_theirs(tokenizer: Tokenizer):
    rows = table(9, most=6)
    task = task_of("decoder").with_labels(rows)
    ours = lively(recipe(tokenizer, task, rows))
    decoder = theirs(ours, "BertLMHeadModel", "decoder", is_decoder=True, add_cross_attention=True)
    model = transformers.EncoderDecoderModel(encoder=theirs(ours, "BertModel", "encoder"), decoder=decoder).eval()
    read = task.examples(rows, tokenizer).examples
    for at, (scores, labels) in enumerate(logits(ours, task, rows, tokenizer)):
        tokens = torch.from_numpy(read.tokens[read.first[at] : read.first[at + 1]].astype(np.int64))[None]
        source = int(read.fields["source"][at])
        with torch.no_grad():
            expected = model(input_ids=tokens[:, :source], decoder_input_ids=tokens[:, source:]).logits[0]
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)
        assert labels.tolist() == [*tokens[0, source + 1 :].tolist(), tokenizer.sep]


@pytest.mark.parametrize("form", ["prefix", "causal"])
def test_one_stack_is_theirs_under_a_mask(tokenizer: Tokenizer, form: str):
    rows = table(9, most=6)
    task = task_of(form).with_labels(rows)
    ours = lively(recipe(tokenizer, task, rows))
    model = theirs(ours, "BertForMaskedLM", "encoder")
    read = task.examples(rows, tokenizer).examples
    for at, (scores, _) in enumerate(logits(ours, task, rows, tokenizer)):
        tokens = torch.from_numpy(read.tokens[read.first[at] : read.first[at + 1]].astype(np.int64))[None]
        source, length = int(read.fields["source"][at]), tokens.shape[1]
        seen = torch.ones(length, length).tril().bool()
        if form == "prefix":
            seen[:, :source] = True
        added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
        segments = (torch.arange(length) >= source).long()[None]
        with torch.no_grad():
            expected = model(tokens, attention_mask=added, token_type_ids=segments).logits[0, source - 1 :]
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)
