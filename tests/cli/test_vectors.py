"""Word vectors on the command line: trained, evaluated, searched, converted, and mistakes reported."""

import json
from pathlib import Path

import numpy as np
import pytest

from clozeworks.cli.main import main
from clozeworks.vectors.table import Vectors, load_vectors
from tests.command_line import facts, refused, text

pytest.importorskip("numba")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text(text(60, 0))
    return file


@pytest.fixture(scope="module")
def words(corpus: Path) -> Path:
    """Vectors of it."""
    out = corpus.parent / "words.safetensors"
    asked = ["--dim", "8", "--epochs", "3", "--deterministic", "--window", "4", "--json"]
    assert main(["vectors", "glove", str(corpus), "--out", str(out), *asked]) == 0
    return out


@pytest.mark.parametrize(
    ("method", "name"),
    [("skipgram", "v.txt"), ("cbow", "v.bin"), ("fasttext", "v.safetensors"), ("glove", "v.txt")],
)
def test_training_writes_the_format_of_the_ending(corpus, tmp_path, capsys, method, name):
    asked = ("--dim", "6", "--epochs", "2", "--min-count", "3", "--deterministic")
    report = facts(capsys, "vectors", method, corpus, "--out", tmp_path / name, *asked)
    made = load_vectors(tmp_path / name)
    assert (report["vectors"], report["dim"]) == (len(made), 6) == (len(made), made.dim)
    assert len(report["losses"]) == 2
    assert "fox" in made
    assert ("<unk>" in made) == (method == "glove")
    again = facts(capsys, "vectors", method, corpus, "--out", tmp_path / f"again_{name}", *asked)
    assert again["losses"] == report["losses"]
    assert load_vectors(tmp_path / f"again_{name}").table.tobytes() == made.table.tobytes()


def test_settings_reach_the_method(corpus, tmp_path, capsys):
    report = facts(capsys, "vectors", "glove", corpus, "--out", tmp_path / "v.txt", "--no-header", "--max-words", "10",
                 "--window", 3, "--x-max", 7, "--learning-rate", 0.1, "--seed", 4, "--memory-mb", 2,
                 "--epochs", 1)  # fmt: skip
    assert (report["vectors"], report["window"], report["x_max"], report["rate"], report["seed"]) == (
        11,
        3,
        7.0,
        0.1,
        4,
    )
    assert len((tmp_path / "v.txt").read_text().splitlines()) == 11
    report = facts(capsys, "vectors", "skipgram", corpus, "--out", tmp_path / "v.txt", "--negative", 2, "--window", 3)
    assert (report["settings"]["negative"], report["settings"]["window"], report["settings"]["rate"]) == (2, 3, 0.025)


def test_the_screen_tells_what_was_done(corpus, tmp_path, capsys):
    assert main(["vectors", "glove", str(corpus), "--out", str(tmp_path / "v.txt"), "--epochs", "2"]) == 0
    out = capsys.readouterr().out
    for part in ("words, 100 numbers each", "pairs", "loss", "wrote", "clozeworks vectors similar"):
        assert part in out


def test_phrases_are_listed(tmp_path, capsys):
    sentences = ["he went to new york .", "the new house", "york is old"] * 4
    (tmp_path / "text.txt").write_text("\n".join(sentences))
    asked = ("--min-count", "2", "--threshold", "0.5", "--out", tmp_path / "phrases.tsv")
    report = facts(capsys, "vectors", "phrases", tmp_path / "text.txt", *asked)
    assert "new_york" in report["top"]
    lines = (tmp_path / "phrases.tsv").read_text().splitlines()
    assert len(lines) == report["phrases"]
    assert float(lines[0].split("\t")[1]) == max(report["top"].values())
    assert main(["vectors", "phrases", str(tmp_path / "text.txt"), "--min-count", "2", "--threshold", "0.5"]) == 0
    assert "new_york" in capsys.readouterr().out


def test_judging(words, tmp_path, capsys):
    (tmp_path / "pairs.txt").write_text("fox dog 5\nfox tree 1\ncat hen 4\nunheard of 1\n")
    (tmp_path / "questions.txt").write_text(": animals\nFox dog cat hen\n: other\na b c d\n")
    asked = ("--similarity", tmp_path / "pairs.txt", "--analogies", tmp_path / "questions.txt")
    report = facts(capsys, "vectors", "evaluate", words, *asked)["files"][0]
    assert (report["similarity"]["pairs.txt"]["covered"], report["similarity"]["pairs.txt"]["pairs"]) == (3, 4)
    assert -1 <= report["similarity"]["pairs.txt"]["spearman"] <= 1
    assert report["analogies"]["questions.txt"]["animals"]["covered"] == 1
    assert report["analogies"]["questions.txt"]["other"]["accuracy"] is None
    assert report["analogies"]["questions.txt"]["total"]["questions"] == 2
    load_vectors(words).save(tmp_path / "v.txt")
    paths = [str(words), str(tmp_path / "v.txt")]
    assert main(["vectors", "evaluate", *paths, *map(str, asked), "--method", "multiply"]) == 0
    out = capsys.readouterr().out
    assert "words.safetensors" in out
    assert "3 of 4" in out
    assert "1 of 2" in out


def test_similar_words(words, tmp_path, capsys):
    vectors = load_vectors(words)
    report = facts(capsys, "vectors", "similar", words, "Fox", "hen", "--minus", "dog", "--top", 3)
    assert report["words"] == ["fox", "hen"]
    assert report["similar"] == dict(vectors.most_similar(["fox", "hen"], ["dog"], 3))
    assert main(["vectors", "similar", str(words), "fox", "--top", "2"]) == 0
    assert vectors.most_similar("fox", top=1)[0][0] in capsys.readouterr().out
    assert "did you mean fox?" in refused(capsys, "vectors", "similar", words, "Fox", "--cased")


def test_words_that_were_never_met(corpus, words, tmp_path, capsys):
    out = tmp_path / "v.safetensors"
    report = facts(capsys, "vectors", "fasttext", corpus, "--out", out, "--dim", 6, "--epochs", 2, "--deterministic")
    assert report["settings"]["subwords"]["longest"] == 6
    report = facts(capsys, "vectors", "similar", out, "sleepsing", "--top", 3)
    assert len(report["similar"]) == 3
    assert "none of its n-grams was met" in refused(capsys, "vectors", "similar", out, "qqq")
    assert "sleepsing: no vector" in refused(capsys, "vectors", "similar", words, "sleepsing")


def test_converting(words, tmp_path, capsys):
    report = facts(capsys, "vectors", "convert", words, tmp_path / "v.bin", "--limit", 5)
    assert report == {"out": str(tmp_path / "v.bin"), "words": 5, "dim": 8, "skipped": 0}
    assert main(["vectors", "convert", str(tmp_path / "v.bin"), str(tmp_path / "v.txt"), "--no-header"]) == 0
    first, last = load_vectors(words, limit=5), load_vectors(tmp_path / "v.txt")
    assert first.words == last.words
    assert first.table.tobytes() == last.table.tobytes()
    (tmp_path / "v.txt").write_text("a 1 2\nnew york 1 2\nb 1 2\n")
    assert "new york" in refused(capsys, "vectors", "convert", tmp_path / "v.txt", tmp_path / "v.bin")
    report = facts(capsys, "vectors", "convert", tmp_path / "v.txt", tmp_path / "v.bin", "--errors", "skip")
    assert (report["words"], report["skipped"]) == (2, 1)
    assert main(["vectors", "convert", str(tmp_path / "v.txt"), str(tmp_path / "v.bin"), "--errors", "skip"]) == 0
    assert "1 rows that cannot be used" in capsys.readouterr().out


def test_mistakes_are_reported(corpus, words, tmp_path, capsys):
    for given, message in [
        (("glove", corpus), "no --out"),
        (("glove", "--out", "v.txt"), "no text"),
        (("glove", corpus, "--corpus", "en", "--out", "v.txt"), "both TEXT and --corpus"),
        (("glove", corpus, "--out", "v.npz"), "the ending .npz"),
        (("glove", corpus, "--out", "v.txt", "--negative", "5", "--hs"), "glove: --negative; there is no such option"),
        (("skipgram", corpus, "--out", "v.txt", "--x-max", "5"), "skipgram: --x-max; there is no such option"),
        (("gloove", corpus), "did you mean glove"),
        (("glove", corpus, "--out", "v.txt", "--min-count", "100000"), "none of"),
        (("evaluate", words), "nothing to evaluate on"),
        (("evaluate", "--similarity", corpus), "no file of vectors"),
        (("evaluate", words, "--similarity", corpus), "two words and a number are needed"),
        (("evaluate", words, "--similarity", "nowhere.txt"), "no such path"),
        (("similar", words), "no word"),
        (("similar", words, "unheard"), "unheard: no vector"),
        (("similar", words, "fox", "--errors", "replace"), "one of strict, skip is needed"),
        (("convert", words), "1 files"),
        (("convert", corpus, tmp_path / "v.txt"), "line 1"),
    ]:
        assert message in refused(capsys, "vectors", *given), given
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "empty" in refused(capsys, "vectors", "skipgram", empty, "--out", tmp_path / "v.txt")
    one = tmp_path / "one.txt"
    one.write_text("yes yes yes yes yes yes")
    assert "one word" in refused(capsys, "vectors", "glove", one, "--out", tmp_path / "v.txt")
    nan = tmp_path / "nan.txt"
    Vectors(["a", "b"], np.float32([[1, 2], [3, 4]])).save(nan)
    nan.write_text(nan.read_text().replace("4.0", "nan"))
    assert f"{nan} line 3: a number of b is not finite" in refused(capsys, "vectors", "similar", nan, "a")


def test_json_is_one_line(words, capsys):
    capsys.readouterr()
    assert main(["vectors", "similar", str(words), "fox", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["words", "minus", "similar"]


def test_words_are_shown_as_they_are_written(tmp_path, capsys):
    (tmp_path / "marks.txt").write_text("[/b] 1 0\nking .9 .1\n[red] 0 1\n")
    assert main(["vectors", "similar", str(tmp_path / "marks.txt"), "king"]) == 0
    shown = capsys.readouterr().out
    assert "[/b]" in shown
    assert "[red]" in shown
    (tmp_path / "asked.txt").write_text(": a[/b]\n[/b] king [red] king\n: total\nking [/b] king [red]\n")
    assert main(["vectors", "evaluate", str(tmp_path / "marks.txt"), "--analogies", str(tmp_path / "asked.txt")]) == 0
    assert "a[/b]" in capsys.readouterr().out


def test_files_of_one_name_and_sections_of_one_name_are_all_judged(words, tmp_path, capsys):
    for folder, pair in (("p", "fox\tdog\t3\nfox\tcat\t1\n"), ("q", "fox\tdog\t1\nfox\tcat\t3\ndog\tcat\t2\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.txt").write_text(pair)
    asked = tmp_path / "asked.txt"
    asked.write_text(": total\nfox dog cat fox\n: a\nfox dog cat fox\n: a\nfox dog cat dog\n")
    report = facts(capsys, "vectors", "evaluate", words, "--similarity", tmp_path / "p" / "s.txt",
                  tmp_path / "q" / "s.txt", "--analogies", asked)["files"][0]  # fmt: skip
    assert {name: each["pairs"] for name, each in report["similarity"].items()} == {"p/s.txt": 2, "q/s.txt": 3}
    sections = {name: each["questions"] for name, each in report["analogies"]["asked.txt"].items()}
    assert sections == {"total (section)": 1, "a": 2, "total": 3}


def test_what_cannot_be_done_is_reported_before_any_work(corpus, words, tmp_path, capsys):
    def refusal(*given: object) -> str:
        return refused(capsys, *map(str, given))

    assert "first line" in refusal("vectors", "skipgram", corpus, "--out", tmp_path / "v.bin", "--no-header")
    assert "a file and a word are needed" in refusal("vectors", "similar", "--minus", "fox")
    (tmp_path / "two.txt").write_text("king 1 0\nqueen 0 1\n")
    assert "another word is needed" in refusal("vectors", "similar", tmp_path / "two.txt", "king", "queen")
    hs = ("vectors", "skipgram", corpus, "--out", tmp_path / "v.txt", "--hs", "--negative", "5")
    assert "hierarchical softmax draws none" in refusal(*hs)
    many = ("vectors", "glove", corpus, "--out", tmp_path / "v.txt", "--deterministic", "--workers", "2")
    assert "one thread repeats itself exactly" in refusal(*many)
    assert not (tmp_path / "v.txt").exists()


def test_it_is_told_what_a_format_has_no_place_for(corpus, tmp_path, capsys):
    asked = ("--dim", "6", "--epochs", "1", "--min-count", "3", "--deterministic")
    for name, noted in (("v.txt", True), ("v.safetensors", False)):
        capsys.readouterr()
        assert main(["vectors", "fasttext", str(corpus), "--out", str(tmp_path / name), *asked]) == 0
        assert ("n-grams are kept in .safetensors alone" in " ".join(capsys.readouterr().out.split())) is noted
    assert "cancel each other" in refused(capsys, "vectors", "similar", tmp_path / "v.txt", "fox", "--minus", "fox")


def test_options_that_another_one_has_are_refused(tmp_path: Path, capsys):
    (file := tmp_path / "v.txt").write_text("a 1 2\nb 3 4\nc 4 3\n")
    (tmp_path / "pairs").write_text("a b 1\nb c 2\n")
    for words, message in (
        (["similar", file, "a", "--method", "multiply"], "--method"),
        (
            ["evaluate", file, "--similarity", tmp_path / "pairs", "--dim", "300", "--hs"],
            "--dim; there is no such option",
        ),
        (["skipgram", "--corpus", "en", "--out", tmp_path / "w.txt", "--limit", "3"], "--limit"),
        (["skipgram", "--corpus", "en", "--out", tmp_path / "w.txt", "--minn", "3"], "--minn"),
        (["phrases", "--corpus", "en", "--threshold", "nan"], "a number is needed"),
    ):
        assert message in refused(capsys, "vectors", *map(str, words))
    assert main(["vectors", "evaluate", str(file), "--similarity", str(tmp_path / "pairs"), "--cased"]) == 0


def test_n_grams_of_other_lengths_and_text_that_was_cut_before(tmp_path: Path, capsys):
    (text := tmp_path / "t.txt").write_text("New_York is n't small .\n" * 30)
    words = [
        "--out",
        tmp_path / "f.safetensors",
        "--segmenter",
        "spaces",
        "--no-punctuation",
        "--dim",
        "8",
        "--workers",
        "1",
    ]
    grams = ["--minn", "2", "--maxn", "3", "--bucket", "64", "--cbow"]
    assert main(["vectors", "fasttext", str(text), *map(str, words), *grams]) == 0
    made = load_vectors(tmp_path / "f.safetensors")
    assert sorted(made.words) == ["is", "n't", "new_york", "small"]
    assert made.more["gram_buckets"].max() < 64
