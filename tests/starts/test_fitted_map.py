"""The map to a teacher's vectors begins as the best one."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.losses.sentence_vectors import SentenceVectors
from clozeworks.objectives.segments import DocSentences
from clozeworks.recipe import Recipe, begin, build
from clozeworks.starts.counted import CountedTable
from clozeworks.starts.fitted_map import FittedMap
from clozeworks.starts.initializer import TeacherVectors
from tests.train.conftest import tiny_recipe


def recipe_for(data: Path, *start: FittedMap | CountedTable) -> Recipe:
    r = tiny_recipe()
    r.encoder.vocab, r.encoder.embed.segments, r.encoder.pooler = Corpus.open(data).vocab, 0, None
    r.objective.segments = DocSentences(32)
    r.objective.losses, r.start = (MaskedLM(), SentenceVectors(width=6)), start
    return r


def begun(r: Recipe, data: Path, teacher: TeacherVectors) -> tuple[TextEncoder, torch.Tensor]:
    model, tokenizer = build(r), Tokenizer.load(data)
    begin(r, model, [(Corpus.open(data), 1.0)], tokenizer, teacher)
    return TextEncoder(model.eval(), tokenizer, r), model.get_parameter("heads.sentence_vectors.map.weight").detach()


def test_a_teacher_that_is_a_map_of_the_student_is_fitted(data: Path):
    """The teacher's vectors are the fresh student's own through a matrix, which is fitted again."""
    r = recipe_for(data, CountedTable(), FittedMap(texts=200, ridge=1e-9))
    student, _ = begun(recipe_for(data, CountedTable()), data, TeacherVectors(lambda _: np.zeros((0, 6)), "0"))
    matrix = np.random.default_rng(0).normal(size=(32, 6))
    teacher = TeacherVectors(lambda texts: (student.encode(texts) @ matrix).astype(np.float32), "1")
    fitted = begun(r, data, teacher)[1].numpy()
    corpus, tokenizer = Corpus.open(data), Tokenizer.load(data)
    tokens = corpus.take(corpus.sentences[:40], corpus.sentences[1:41])
    sizes = np.diff(corpus.sentences[:41])
    texts = [tokenizer.write(row) for row in np.split(tokens.tokens, np.cumsum(sizes)[:-1])]
    vectors = student.encode(texts)
    mine, theirs = vectors @ fitted.T, vectors @ matrix
    cosines = (mine * theirs).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.99


def test_it_is_the_same_again_and_better_than_one_that_was_drawn(data: Path):
    digits = lambda text: np.frombuffer(hashlib.sha256(text.encode()).digest()[:6], np.uint8) / 255.0  # noqa: E731
    teacher = TeacherVectors(lambda texts: np.stack([digits(text) for text in texts]).astype(np.float32), "2")
    one, again = (begun(recipe_for(data, FittedMap(texts=100)), data, teacher)[1] for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, begun(recipe_for(data), data, teacher)[1])


def test_without_the_loss_there_is_no_map(data: Path):
    r = tiny_recipe()
    r.encoder.vocab, r.start = Corpus.open(data).vocab, (FittedMap(),)
    assert "SentenceVectors is not among the losses" in begin(r, build(r), [(Corpus.open(data), 1.0)])[0]


def test_without_a_teacher_nothing_begins(data: Path):
    r = recipe_for(data, FittedMap())
    assert begin(r, build(r), [(Corpus.open(data), 1.0)], Tokenizer.load(data)) == [
        "no teacher to ask: the map to its vectors begins at random"
    ]
