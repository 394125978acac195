"""Runs whose teacher has another tokenizer: what it reads, what is learned, refused and resumed."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.batches.rows import Source, collate, read_ahead
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import checkpoint
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.pooling import Pooling
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_vectors import SentenceVectors
from clozeworks.objectives.losses.soft_targets import SoftTargets
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.segments import DocSentences
from clozeworks.recipe import Recipe, build
from clozeworks.starts.distilled import DistilledTable
from clozeworks.train import metrics_log
from clozeworks.train.heldout_evaluator import HeldOutEvaluator
from clozeworks.train.pretrain import fit_to_data, pretrain
from clozeworks.train.resources.budget import fit_to_budget
from clozeworks.train.resources.cost import measure_cost
from clozeworks.train.teacher import check_teacher, fit_to_teacher, make_teacher
from clozeworks.train.text_teacher import TextReader
from tests.train.conftest import tiny_recipe

ENGLISH = ["the red cat sees a grey hen .", "a dog, a fox", "hens don't like foxes"]
CHINESE = ["我喜欢这本书。", "酒店的房间很干净", "他在北京工作,很忙"]


def student(steps: int = 8, **train: object) -> Recipe:
    r = tiny_recipe(steps, **train)
    r.name = "student"
    r.encoder.embed.segments, r.encoder.pooler = 0, None
    r.objective.segments = DocSentences(32)
    r.objective.losses = (MaskedLM(), SentenceVectors(5.0))
    r.start = (DistilledTable(),)
    return r


def encoder_of(tokenizer: Tokenizer | None, width: int = 48, **recipe: object) -> TextEncoder:
    r = tiny_recipe()
    r.name, r.encoder.width, r.train.seed, r.pooling = "teacher", width, 9, Pooling(normalise=True)
    r.encoder.vocab, r.encoder.init = (400 if tokenizer is None else tokenizer.size), 0.3
    for name, value in recipe.items():
        setattr(r, name, value)
    return TextEncoder(build(r).eval(), tokenizer, r)


@pytest.fixture(scope="module")
def teacher(foreign_data: Path) -> TextEncoder:
    return encoder_of(Tokenizer.load(foreign_data))


@pytest.fixture(scope="module")
def whole(data: Path, teacher: TextEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("taught") / "run"
    torch.set_num_threads(1)
    result = pretrain(student(), [(data, 1.0)], run, teacher=teacher, progress=False)
    assert result.finished
    assert any("begin as what the teacher knows of them" in note for note in result.notes)
    return run


def batch_of(texts: list[str], tokenizer: Tokenizer, out: Path, rate: float = 0.3) -> Batch:
    """Each text an example, packed into rows, some tokens masked."""
    prepare(iter(texts), out, tokenizer=tokenizer, heldout=0)
    source = Source(Corpus.open(out), DocSentences(32), MaskTokens(rate=rate), tokenizer.vocabulary(), 0)
    epoch = source.epoch(0)
    return collate(list(read_ahead(epoch, epoch.rows(0, epoch.order()))))


@pytest.mark.parametrize("theirs", ["wordpiece", "bytes", "unigram", "chars"])
@pytest.mark.parametrize(("lang", "texts"), [("en", ENGLISH), ("zh", CHINESE)])
def test_the_teacher_reads_the_text_that_was_masked(lang: str, texts: list[str], theirs: str, tmp_path: Path):
    own = Tokenizer.train(texts * 20, "wordpiece", 120, lang=lang)
    other = encoder_of(Tokenizer.train(texts * 20, theirs, 300, lang=lang))
    batch = batch_of(texts, own, tmp_path / "data")
    assert batch.targets is not None
    assert len(batch.targets) > 0
    reader = TextReader(other, own, restores=True)
    squeezed = [text.replace(" ", "") for text in texts]
    order = [squeezed.index(read.replace(" ", "")) for read in reader.texts(batch)]
    assert order
    assert len(set(order)) == len(order)
    expected = other.encode([own.write(own.encode([texts[n]])[0].ids) for n in order])
    np.testing.assert_allclose(reader(batch).numpy(), expected, rtol=1e-4, atol=1e-5)
    if lang == "zh":
        assert reader.texts(batch) == [texts[n] for n in order]
        np.testing.assert_allclose(expected, other.encode([texts[n] for n in order]), rtol=1e-4, atol=1e-5)


def test_tokens_that_are_unknown_to_the_student_are_left_out(tmp_path: Path):
    own = Tokenizer.train(ENGLISH, "words", 64)
    batch = batch_of(["the red cat sees a zebra"], own, tmp_path / "data")
    assert TextReader(encoder_of(own), own, restores=True).texts(batch) == ["the red cat sees a"]


def test_long_texts_are_cut_as_the_teacher_cuts_them(tmp_path: Path):
    own = Tokenizer.train(ENGLISH, "wordpiece", 120)
    other = encoder_of(Tokenizer.train(ENGLISH, "chars", 64), pooling=Pooling(length=8))
    batch = batch_of(ENGLISH[:1], own, tmp_path / "data")
    cut = other.encode(["the re"])  # six characters between two specials
    np.testing.assert_allclose(TextReader(other, own, restores=True)(batch).numpy(), cut, rtol=1e-4, atol=1e-5)


def test_both_losses_fall_and_are_measured(whole: Path):
    rows = metrics_log.read(whole / "metrics.jsonl")
    assert all({"masked_lm", "sentence_vectors"} <= row.keys() for row in rows)
    assert {row.get("split") for row in rows} == {None, "heldout"}
    measured = [row["sentence_vectors"] for row in rows if row.get("split") == "heldout"]
    assert measured[-1] < measured[0]
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["masked_lm"] + 5 * rows[-1]["sentence_vectors"])


def test_the_run_knows_its_teacher_and_the_map_has_its_width(whole: Path, teacher: TextEncoder):
    record = json.loads((whole / "run.json").read_text())["teacher"]
    assert record["name"] == "teacher"
    encoder = cw.load(whole)
    assert encoder.recipe.objective.losses[1] == SentenceVectors(5.0, width=48)
    assert encoder.encode(["the red cat"]).shape == (1, 32)


def test_resumed_is_uninterrupted(whole: Path, data: Path, teacher: TextEncoder, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "step-00000008")
    result = pretrain(student(), [(data, 1.0)], run, teacher=teacher, progress=False)
    assert result.resumed == 5
    for file in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        assert (result.checkpoint / file).read_bytes() == (whole / "step-00000008" / file).read_bytes()


def test_another_teacher_is_refused(whole: Path, data: Path, foreign_data: Path):
    other = encoder_of(Tokenizer.load(foreign_data), width=32)
    with pytest.raises(InputError, match=r"another recipe|another teacher"):
        pretrain(student(), [(data, 1.0)], whole, teacher=other, progress=False)
    with pytest.raises(InputError, match="--teacher: none; student learns from a teacher; give --teacher DIR"):
        pretrain(student(), [(data, 1.0)], whole, progress=False)


def test_a_run_of_ours_teaches_too(whole: Path, data: Path, tmp_path: Path):
    r = student(3)
    r.start = ()
    assert pretrain(r, [(data, 1.0)], tmp_path / "run", teacher=cw.load(whole), progress=False).finished


def test_what_the_teacher_lacks_is_refused(data: Path, teacher: TextEncoder):
    tokenizer = Tokenizer.load(data)
    with pytest.raises(InputError, match=r"a model without a tokenizer; student has it read texts; put its tokenizer"):
        check_teacher(fit_to_teacher(student(), teacher), tokenizer, dataclasses.replace(teacher, tokenizer=None))
    r = student()
    r.objective.losses = (MaskedLM(), SentenceVectors(width=7))
    with pytest.raises(RecipeError, match=r"losses\.1\.width = 7: teacher has sentence vectors of width 48"):
        check_teacher(r, tokenizer, teacher)
    r.objective.losses = (MaskedLM(), SoftTargets())
    with pytest.raises(InputError, match=r"another tokenizer than the data has.*or compare texts: SentenceVectors"):
        check_teacher(r, tokenizer, dataclasses.replace(teacher, recipe=with_words(teacher.recipe)))


def with_words(recipe: Recipe) -> Recipe:
    return dataclasses.replace(
        recipe, objective=dataclasses.replace(recipe.objective, losses=(MaskedLM(),)), pooling=None
    )


def test_held_out_text_is_read_once(data: Path, teacher: TextEncoder, monkeypatch: pytest.MonkeyPatch):
    corpus, tokenizer = Corpus.open(data), Tokenizer.load(data)
    recipe = fit_to_teacher(fit_to_data(student(), tokenizer), teacher)
    evaluator, model = HeldOutEvaluator(recipe, [(corpus, 1.0)], tokenizer.vocabulary()), build(recipe).eval()
    teach = make_teacher(teacher, recipe, tokenizer, "cpu")
    assert teach is not None
    first = evaluator.measure(model, teach)
    monkeypatch.setattr(TextReader, "__call__", lambda *_: pytest.fail("read again"))
    assert evaluator.measure(model, teach) == first
    assert first["sentence_vectors"] > 0


def test_a_budget_has_room_for_the_teacher(data: Path, teacher: TextEncoder):
    own, notes = fit_to_budget(student(), [(data, 1.0)], "20s", None, "cpu", teacher)
    assert own.train.steps >= 50
    assert "CPU ms: what 20s of CPU time have room for" in notes[0]
    sized, _ = fit_to_budget(None, [(data, 1.0)], "20m", None, "cpu", teacher)
    assert sized.name == "cloze_mini_distilled"
    with pytest.raises(InputError, match="--teacher: none; student learns from a teacher; give --teacher DIR"):
        fit_to_budget(student(), [(data, 1.0)], "20s", None, "cpu")


def test_memory_counts_the_teacher(teacher: TextEncoder):
    r = fit_to_teacher(student(), teacher)
    assert measure_cost(r, teacher).teacher == measure_cost(teacher.recipe).parameters
