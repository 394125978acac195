"""Two texts, each read by itself: from rows to vectors that `encode` gives."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.metrics.scores import pearson, spearman
from clozeworks.nn.pooling import Pooling
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.embed import SentenceEmbedding
from clozeworks.tasks.encoder_recipe import PretrainedEncoder
from clozeworks.tasks.layer_selection import SumLayers
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run
from clozeworks.train.loop import accumulate
from tests.tasks.test_families import FAMILIES, known

SORTS = [["fox", "hen", "cow"], ["red", "blue", "green"], ["runs", "sits", "eats"]]
PLAIN = ["the", "a", "one", "this"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join([*PLAIN, *(word for sort in SORTS for word in sort)])] * 9, vocab=90)


def table(count: int = 48, seed: int = 0, graded: bool = True, name: str = "rows") -> Table:
    """Two texts are as alike as their words are of the same sorts, 0 to 2; or they belong together."""
    draw, rows = np.random.default_rng(seed), []
    for _ in range(count):
        kinds = draw.integers(0, 3, (2, 2))
        kinds[1] = kinds[1] if graded else kinds[0]
        texts = [" ".join([str(draw.choice(PLAIN)), *(str(draw.choice(SORTS[k])) for k in row)]) for row in kinds]
        score = {"score": float((np.sort(kinds[0]) == np.sort(kinds[1])).sum())} if graded else {}
        rows.append({"text_a": texts[0], "text_b": texts[1], **score})
    return Table(name, rows)


def recipe(tokenizer: Tokenizer, task: SentenceEmbedding, rows: Table, **more: object) -> Recipe:
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    tune = Finetune(**{"epochs": 8, "batch_size": 8, **more})  # pyright: ignore[reportArgumentType]
    return make_finetune_recipe(base, task, len(rows), tune, Train(learning_rate=1e-3, guard=None))


def fresh(**more: object) -> SentenceEmbedding:
    return SentenceEmbedding(template=InputTemplate(length=32), pooling=Pooling(length=32), **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "loss", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("cosine", "cosent")), "in_batch_negatives"]
)
def test_it_learns_what_encode_gives(tokenizer: Tokenizer, tmp_path: Path, loss):
    rows, dev = (table(n, seed, loss != "in_batch_negatives") for n, seed in ((96, 0), (48, 1)))
    task = fresh(loss=loss).with_labels(rows)
    made = recipe(tokenizer, task, rows, epochs=10)
    before = TextEncoder(build(made).eval(), tokenizer, made)
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    loaded = cw.load(tmp_path / "run")
    assert loaded.recipe.task == task
    assert loaded.recipe.pooling == task.pooling
    metrics = [figures_of(encoder, dev) for encoder in (before, loaded)]
    assert metrics[1][task.metric] > metrics[0][task.metric] + 0.1
    best = min((row for row in read(tmp_path / "run")), key=lambda row: (-row[task.metric], row["step"]))
    assert metrics[1] == pytest.approx({name: best[name] for name in metrics[1]}, abs=1e-4)
    assert done.best == best["step"]
    answers = loaded.predict(dev.rows[:3])
    a, b = (loaded.encode([row[name] for row in dev.rows[:3]], normalise=True) for name in ("text_a", "text_b"))
    assert [each["cosine"] for each in answers] == pytest.approx((a * b).sum(1), abs=1e-5)
    assert set(answers[0]) == {"cosine"}


def read(run: Path) -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row.get("split") == "heldout"]


def figures_of(encoder: TextEncoder, rows: Table) -> dict[str, float]:
    """Those of its vectors, by numpy alone."""
    a, b = (encoder.encode([row[name] for row in rows.rows], normalise=True) for name in ("text_a", "text_b"))
    if "score" in rows.rows[0]:
        scores, cosines = [row["score"] for row in rows.rows], (a * b).sum(1).tolist()
        return {"spearman": spearman(scores, cosines), "pearson": pearson(scores, cosines)}
    places = []
    for n, row in enumerate(rows.rows):
        fits = {each["text_b"] for each in rows.rows if each["text_a"] == row["text_a"]} | {row["text_a"]}
        others = {each["text_b"]: b[at] for at, each in enumerate(rows.rows) if each["text_b"] not in fits}
        places.append(1 + sum(a[n] @ other >= a[n] @ b[n] for other in others.values()))
    return {"mrr": float(np.mean(1 / np.array(places))), "accuracy": float(np.mean(np.array(places) == 1))}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_every_family_is_trained_as_it_encodes(family: str, pool):
    base, words = known(family)
    base.pooling = Pooling(pool)
    rows = Table(
        "rows", [{"text_a": f"a {a}", "text_b": f"{b} b a", "score": 1.0 * (a > b)} for a in "fps" for b in "pws"]
    )
    task = SentenceEmbedding.for_encoder(
        PretrainedEncoder(base, infer_template(base, words), max_length=24)
    ).with_labels(rows)
    made = make_finetune_recipe(base, task, len(rows))
    encoder = TextEncoder(build(made).eval(), words, made)
    values, _ = predict_outputs(encoder.model, task, task.examples(rows, words), made.reading, words.filler)
    texts = [row[name] for row in rows.rows for name in task.columns]
    np.testing.assert_allclose(np.stack(values), encoder.encode(texts), atol=1e-5)
    if family.startswith("reformer"):
        return  # what hashing finds of a long text depends on what stands beside it
    long = Table("rows", [{"text_a": "a b " * 40, "text_b": "b " * 30}])
    values, _ = predict_outputs(
        encoder.model, task, task.examples(long, words, truth=False), made.reading, words.filler
    )
    np.testing.assert_allclose(np.stack(values), encoder.encode(["a b " * 40, "b " * 30]), atol=1e-5)


def test_a_pooler_and_a_first_token_are_trained_too(tokenizer: Tokenizer):
    rows = table(6)
    for pool in ("first", "pooled"):
        task = dataclasses.replace(fresh(), pooling=Pooling(pool, prompt="the ", length=32)).with_labels(rows)
        made = recipe(tokenizer, task, rows)
        if pool == "pooled":
            assert made.encoder.pooler is not None
        encoder = TextEncoder(build(made).eval(), tokenizer, made)
        values, _ = predict_outputs(encoder.model, task, task.examples(rows, tokenizer), "full", 0)
        texts = [row[name] for row in rows.rows for name in task.columns]
        np.testing.assert_allclose(np.stack(values), encoder.encode(texts), atol=1e-5)


def gradients(model: torch.nn.Module, batches: list) -> tuple[dict[str, torch.Tensor], float]:
    model.zero_grad()
    parts = accumulate(model, batches, [None] * len(batches))  # pyright: ignore[reportArgumentType]
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}, parts["embed"].item()


@pytest.mark.parametrize("loss", ["cosine", "cosent", "in_batch_negatives"])
def test_packing_changes_no_gradient(tokenizer: Tokenizer, loss):
    rows = table(24, graded=loss != "in_batch_negatives")
    task = fresh(loss=loss, both=True).with_labels(rows)
    model = build(recipe(tokenizer, task, rows)).double()
    labelled = task.examples(rows, tokenizer)
    (packed,) = make_batch(labelled, np.arange(24), "full", 0)
    shuffled = np.random.default_rng(1).permutation(24)
    (other,) = make_batch(labelled, shuffled, "full", 0)
    (apart,) = one_a_row(labelled, shuffled)
    assert len(apart.tokens) == 24 > len(packed.tokens)
    expected, value = gradients(model, [packed])
    for batch in (other, apart):
        whole, same = gradients(model, [batch])
        assert same == pytest.approx(value, rel=1e-9)
        for name, each in expected.items():
            torch.testing.assert_close(whole[name], each, rtol=1e-5, atol=1e-6)
    vectors = np.stack(predict_outputs(model, task, labelled, "full", 0)[0])
    assert value == pytest.approx(plain(task, vectors, rows), rel=1e-6)


def one_a_row(labelled, units: np.ndarray) -> list:
    import clozeworks.data.batches.labelled as module

    before, module.ROW = module.ROW, 1
    try:
        return make_batch(labelled, units, "full", 0)
    finally:
        module.ROW = before


def plain(task: SentenceEmbedding, vectors: np.ndarray, rows: Table) -> float:
    """The loss of a step of all rows, written down once more."""
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    a, b = vectors[::2], vectors[1::2]
    cosine = (a * b).sum(1)
    if task.loss == "in_batch_negatives":
        total = 0.0
        for one, other, mine, its in ((a, b, "text_a", "text_b"), (b, a, "text_b", "text_a")):
            for i, row in enumerate(rows.rows):
                fits = {each[its] for each in rows.rows if each[mine] == row[mine]} | {row[mine]}
                kept = [n for n, each in enumerate(rows.rows) if n == i or each[its] not in fits]
                total += np.log(np.exp(20 * other[kept] @ one[i]).sum()) - 20 * cosine[i]
        return total / 2 / len(rows)
    scores = np.array([row["score"] for row in rows.rows]) / 2
    if task.loss == "cosine":
        return ((cosine - scores) ** 2).mean()
    worse = [np.exp(20 * (y - x)) for x, s in zip(cosine, scores, strict=True)
             for y, t in zip(cosine, scores, strict=True) if s > t]  # fmt: skip
    return np.log(1 + sum(worse))


def test_one_pair_by_itself_may_be_cut_into_pieces_and_rows_of_a_step_may_not(tokenizer: Tokenizer):
    rows = table(40)
    task = fresh(loss="cosine").with_labels(rows)
    model = build(recipe(tokenizer, task, rows)).double()
    labelled = task.examples(rows, tokenizer)
    (whole,), cut = (make_batch(labelled, np.arange(40), "full", 0, most) for most in (None, 256))
    assert len(cut) > 1
    for batch in cut:
        assert torch.bincount(batch.example["unit"]).tolist() == [2] * len(batch.index)
    expected, value = gradients(model, [whole])
    together, same = gradients(model, cut)
    assert same == pytest.approx(value, rel=1e-9)
    for name, each in expected.items():
        torch.testing.assert_close(together[name], each, rtol=1e-5, atol=1e-6)
    for loss in ("cosent", "in_batch_negatives"):
        made = recipe(tokenizer, fresh(loss=loss).with_labels(rows), rows)
        made.train.micro_tokens = 256
        with pytest.raises(
            RecipeError, match=r"micro_tokens = 256: SentenceEmbedding compares the rows of a step with one another"
        ):
            build(made)
        with pytest.raises(RecipeError, match=r"finetune.batch_size = 1: SentenceEmbedding compares the rows"):
            recipe(tokenizer, fresh(loss=loss).with_labels(rows), rows, batch_size=1)


def test_the_loss_of_an_evaluation_knows_no_batches(tokenizer: Tokenizer, monkeypatch):
    rows = table(70, graded=False)
    for loss, given in (("in_batch_negatives", rows), ("cosent", table(70))):
        task = fresh(loss=loss, both=True).with_labels(given)
        model = build(recipe(tokenizer, task, given)).eval()
        labelled = task.examples(given, tokenizer)
        results, value = predict_outputs(model, task, labelled, "full", 0)
        monkeypatch.setattr("clozeworks.inference.answers.TOKENS", 40)
        assert predict_outputs(model, task, labelled, "full", 0)[1] == pytest.approx(value, rel=1e-4)
        monkeypatch.undo()
        groups = [Table("rows", given.rows[at : at + 32]) for at in (0, 32, 64)]
        parts = [
            plain(task, np.stack(results[2 * at : 2 * at + 64]), group)
            for at, group in zip((0, 32, 64), groups, strict=True)
        ]
        weights = [32, 32, 6] if loss == "in_batch_negatives" else None
        assert value == pytest.approx(np.average(parts, weights=weights), rel=1e-4)


def test_scores_of_two_kinds_and_a_third_text(tokenizer: Tokenizer):
    rows = table(12, graded=False)
    for n, row in enumerate(rows.rows):
        row["score"] = float(n % 3 != 0)
    assert fresh().with_labels(rows).loss == "cosent"
    task = fresh(loss="in_batch_negatives").with_labels(rows)
    assert task.graded
    (batch,) = make_batch(task.examples(rows, tokenizer), np.arange(12), "full", 0)
    assert task.count(batch) == 8
    for row in rows.rows:
        row["text_c"] = "this one"
    labelled = task.examples(rows, tokenizer)
    assert len(labelled.examples) == 36
    assert len(task.examples(rows, tokenizer, truth=False).examples) == 24  # an answer is about two texts
    model = build(recipe(tokenizer, task, rows)).eval()
    (batch,) = make_batch(labelled, np.arange(12), "full", 0)
    assert task.count(batch) == 8
    output = model(batch)
    assert output.losses["embed"].isfinite()
    assert 0 <= output.metrics["embed_accuracy"][1].item() <= 8
    answers, loss = predict_records(model, task, rows, tokenizer, "full", truth=True)
    assert loss is not None
    assert set(task.score(answers, rows)) == {"spearman", "pearson"}


def test_what_it_is_chosen_by_depends_on_the_rows_to_measure_on(tokenizer: Tokenizer, tmp_path: Path):
    rows, dev = table(24, graded=False), table(16, 1)
    task = fresh().with_labels(rows)
    assert (task.loss, task.metric) == ("in_batch_negatives", "mrr")
    task = task.measured(dev)
    assert task.metric == "spearman"
    done = finetune_run(recipe(tokenizer, task, rows, epochs=1), tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert {"spearman", "pearson", "loss"} <= done.heldout.keys()
    same = Table("rows", [{**row, "score": 1} for row in rows.rows])
    assert (fresh().with_labels(same).loss, fresh().with_labels(same).metric) == ("in_batch_negatives", "mrr")
    answers, _ = predict_records(build(recipe(tokenizer, task, rows)).eval(), task, same, tokenizer, "full", truth=True)
    assert set(task.score(answers, same)) == {"mrr", "accuracy"}


@pytest.mark.parametrize(
    ("rows", "loss", "message"),
    [
        ([{"score": 1.0}], None, "a.csv: 1 row; a pair is learned from beside others"),
        ([{"score": 1.0}, {}], None, "a.csv, line 3: no score; a number is needed, as in other rows"),
        ([{"score": 1.0}, {"score": "x"}], None, "a.csv, line 3: score 'x'; a number is needed"),
        ([{"score": 1.0}, {"score": "nan"}], None, "a.csv, line 3: score 'nan'; a number is needed"),
        ([{"score": 0}, {"score": 0}], None, "every score 0; pairs that belong together, or scores that differ"),
        ([{"score": 1}, {"score": 1}], "cosine", "every score 1; loss cosine learns from scores that differ"),
        ([{}, {}], "cosent", "no scores; loss cosent learns from scores that differ"),
    ],
)
def test_bad_rows_are_refused(rows, loss, message):
    given = Table("a.csv", [{"text_a": "a", "text_b": "b", **row} for row in rows], [2, 3][: len(rows)])
    with pytest.raises(InputError, match=message):
        fresh(loss=loss).with_labels(given)


def test_what_cannot_be_is_refused(tokenizer: Tokenizer):
    rows = table(8)
    with pytest.raises(InputError, match="rows, row 1: no score; the model learns from scores"):
        fresh().with_labels(rows).examples(table(4, graded=False), tokenizer)
    for more, message in (
        ({"scale": 0.0}, "a number above 0"),
        ({"low": 2.0, "high": 1.0}, "less than high, 1.0, is needed"),
        ({"reading": SumLayers()}, "vectors are made of the last layer"),
        ({"pooling": Pooling(length=16)}, "texts are cut after 32 tokens"),
    ):
        with pytest.raises(RecipeError, match=message):
            spec.check(dataclasses.replace(fresh(), **more), "task")
    made = recipe(tokenizer, fresh().with_labels(rows), rows)
    made.pooling = Pooling("max")
    with pytest.raises(RecipeError, match="encode makes vectors as the task learns them"):
        build(made)
