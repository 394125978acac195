"""Evaluation files: the same scores as gensim's, in several layouts, and faults reported by their line."""

import math
from pathlib import Path

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.vectors import evaluate
from clozeworks.vectors.evaluate import analogies, read_pairs, read_questions, similarity
from clozeworks.vectors.table import Vectors
from tests.conftest import SHARED

JUDGED = SHARED / "wordvec_eval"


@pytest.fixture
def peer():
    keyed = pytest.importorskip("gensim.models").KeyedVectors

    def make(vectors: Vectors):
        other = keyed(vectors.dim)
        other.add_vectors(vectors.words, vectors.table)
        return other

    return make


def made(seed: int = 0) -> Vectors:
    """Words with planted analogies, some of them right, and two spellings of some."""
    rng = np.random.default_rng(seed)
    roots = [f"root{k}" for k in range(30)]
    words = [*roots, *(f"{root}ly" for root in roots), *(root.title() for root in roots[:10])]
    base = rng.standard_normal((30, 8))
    table = np.concatenate([base, base + rng.standard_normal(8), base[:10] + 0.1 * rng.standard_normal((10, 8))])
    table += 0.5 * rng.standard_normal(table.shape)
    order = rng.permutation(len(words))
    return Vectors([words[k] for k in order], table[order].astype(np.float32))


@pytest.fixture
def questions(tmp_path) -> Path:
    lines = [": adverbs"] + [f"root{a} Root{a}ly root{b} root{b}ly" for a in range(12) for b in range(12) if a != b]
    lines += [": unknown", "root1 root1ly nothing nothingly"]
    lines += [": plain"] + [f"root{a} root{b} root{a}ly root{b}ly" for a, b in [(1, 2), (3, 4), (5, 6), (20, 21)]]
    (tmp_path / "questions.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "questions.txt"


def theirs(peer, vectors, path, **how) -> dict[str, tuple[int, int]]:
    _, sections = peer(vectors).evaluate_word_analogies(str(path), **how)
    return {each["section"]: (len(each["correct"]), len(each["correct"] + each["incorrect"])) for each in sections}


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("first", [300_000, 40])
def test_analogies_equal_gensims(peer, questions, fold, first):
    vectors = made()
    truth = theirs(peer, vectors, questions, case_insensitive=fold, restrict_vocab=first)
    ours = analogies(vectors, questions, first=first, fold=fold)
    assert {each.name: (each.right, each.covered) for each in ours.sections} == {
        name: pair for name, pair in truth.items() if name != "Total accuracy"
    }
    assert (ours.total.right, ours.total.covered) == truth["Total accuracy"]
    assert ours.total.questions == 12 * 11 + 1 + 4
    if fold and first > 40:
        assert 0 < ours.total.right < ours.total.covered


def test_blocks_of_questions(questions, monkeypatch):
    whole = analogies(made(), questions)
    monkeypatch.setattr(evaluate, "ROOM", 300)
    assert analogies(made(), questions) == whole


def test_multiplied_analogies_are_those_of_single_questions(questions):
    vectors = made()
    result = analogies(vectors, questions, "multiply", fold=False)
    right = {
        name: sum(
            vectors.analogy(a, b, c, 1, "multiply")[0][0] == d
            for a, b, c, d in asked
            if all(word in vectors for word in (a, b, c, d))
        )
        for name, asked in read_questions(questions)
    }
    assert {each.name: each.right for each in result.sections} == right
    assert result.method == "multiply"
    with pytest.raises(InputError, match="add or multiply"):
        analogies(vectors, questions, "cosmul")


@pytest.mark.parametrize("fold", [True, False])
def test_similarity_equals_gensims(peer, tmp_path, fold):
    vectors, rng = made(), np.random.default_rng(1)
    words = [*vectors.words[:40], "missing", "ROOT3"]
    every = [(a, b) for a in words for b in words if a < b and a.lower() != b.lower()]  # equal ones tie by rounding
    pairs = [(*every[k], k / 1000) for k in rng.permutation(len(every))[:60]]
    (tmp_path / "pairs.txt").write_text("# scored\n" + "".join(f"{a}\t{b}\t{x}\n" for a, b, x in pairs))
    truth, ranks, unknown = peer(vectors).evaluate_word_pairs(str(tmp_path / "pairs.txt"), case_insensitive=fold)
    ours = similarity(vectors, tmp_path / "pairs.txt", fold=fold)
    assert ours.pearson == pytest.approx(float(truth[0]), abs=1e-6)
    assert ours.spearman == pytest.approx(float(ranks[0]), abs=1e-9)
    assert 100 * (1 - ours.covered / ours.pairs) == pytest.approx(unknown)


def test_layouts(tmp_path):
    truth = [("love", "sex", 6.77), ("tiger", "cat", 7.35)]
    for text in (
        "love\tsex\t6.77\ntiger\tcat\t7.35\n",
        "love sex 6.77\ntiger  cat 7.35\n",
        "\ufefflove sex 6.77\r\ntiger cat 7.35\r\n\r\n",
        "Word 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n",
        "word1\tword2\tPOS\tscore\tconc\nlove\tsex\tN\t6.77\t1\ntiger\tcat\tN\t7.35\t4\n",
        "# who judged\nWord 1\tWord 2\tmean\nlove\tsex\t6.77\ntiger\tcat\t7.35",
        "# who judged\nlove\tsex\t6.77\n#\ntiger\tcat\t7.35",
    ):
        (tmp_path / "pairs").write_bytes(text.encode())
        assert read_pairs(tmp_path / "pairs") == truth


PEOPLE = [("love", "life", 6.77), ("year", "war", 2.0), ("song", "album", 9.0)]


@pytest.mark.parametrize(
    "text",
    [
        "Word 1\tWord 2\tHuman (Mean)\t1\t2\nlove\tlife\t6.77\t9\t6\nyear\twar\t2\t10\t2\nsong\talbum\t9\t0\t9\n",
        "1\tlove\tlife\t6.77\n2\tyear\twar\t2\n3\tsong\talbum\t9\n",
        "ID,Word1,Word2,Score\n1,love,life,6.77\n2,year,war,2\n3,song,album,9\n",
        '"love","life",6.77\n"year","war",2\n"song","album",9\n',
        'love,life,"6,77"\nyear,war,"2,0"\nsong,album,"9"\n',
        "love;life;6,77\nyear;war;2\nsong;album;9\n",
        "love life 6,77\nyear war 2\nsong album 9\n",
        "word1\tword2\tPOS\tSimLex999\tconc\nlove\tlife\tN\t6.77\t1\nyear\twar\tN\t2\t3\nsong\talbum\tN\t9\t4\n",
        "id\tword1\tPOS1\tword2\tPOS2\tscore\n1\tlove\tn\tlife\tn\t6.77\n2\tyear\tn\twar\tn\t2\n3\tsong\tn\talbum\tn\t9\n",
    ],
)
def test_published_layouts(tmp_path, text):
    """Scores of each person behind the mean, numbered rows, quotes, commas in numbers, parts of speech."""
    (tmp_path / "pairs").write_text(text)
    assert read_pairs(tmp_path / "pairs") == PEOPLE


def test_nothing_covered_is_no_figure(tmp_path):
    (tmp_path / "pairs").write_text("x y 1\nroot1 root2 3\n")
    result = similarity(made(), tmp_path / "pairs")
    assert math.isnan(result.spearman)
    assert (result.covered, result.pairs) == (1, 2)
    (tmp_path / "pairs").write_text("root1 root2 3\nroot2 root1 3\n")  # all alike
    assert math.isnan(similarity(made(), tmp_path / "pairs").spearman)
    (tmp_path / "questions").write_text("x y root1 root2\n")
    assert math.isnan(analogies(made(), tmp_path / "questions").total.accuracy)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_pairs, "a b 1\na b\n", "line 2: 'a b'; two words and a number"),
        (read_pairs, "a b c\nd e f\n", "line 2: 'd e f'"),
        (read_pairs, "a b 1\na b nan\n", "line 2"),
        (read_pairs, "# nothing\n", "nothing in it"),
        (read_pairs, "a b NA\nc d 1\n", "line 1"),
        (read_pairs, "1 2 3\n4 5 6\n", "two words and a number"),
        (read_questions, ": one\na b c\n", "line 2: 'a b c'; four words are needed"),
        (read_questions, ": one\n", "nothing in it"),
    ],
)
def test_faults_are_reported_by_their_line(tmp_path, read, text, message):
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "file")
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "other")
    (tmp_path / "file").write_bytes(b"a b \xff 1\n")
    with pytest.raises(InputError, match="line 1: bytes; UTF-8"):
        read(tmp_path / "file")


def test_published_files_are_read():
    if not JUDGED.is_dir():
        pytest.skip("the shared text is not here")
    counted = {path.name: len(read_pairs(path)) for path in JUDGED.glob("EN-*.txt")}
    assert counted == {"EN-MTurk-771.txt": 771, "EN-RG-65.txt": 65, "EN-WS-353-ALL.txt": 353}
    english, chinese = (read_questions(JUDGED / name) for name in ("questions-words.txt", "zh_morphological.txt"))
    assert (len(english), sum(len(asked) for _, asked in english)) == (14, 19544)
    assert (len(chinese), sum(len(asked) for _, asked in chinese)) == (4, 10177)
