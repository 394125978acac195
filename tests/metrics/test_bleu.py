"""Our score is sacrebleu's own, with the tokenization that the target language wants."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.metrics.bleu import bleu, is_chinese, resampled

FOUND = ["Ein Mann schläft in einem Zimmer.", "Zwei Hunde laufen", "Eine Frau kocht das Essen, sagt er!"]
WANTED = ["Ein Mann schläft in einem grünen Zimmer.", "zwei Hunde laufen schnell", "Eine Frau kocht Essen, sagt er."]


def by_command(tmp_path: Path, texts: list[str], wanted: list[str], *more: str) -> float:
    """What the command `sacrebleu` says of the same files."""
    for name, lines in (("found", texts), ("wanted", wanted)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    words = [str(tmp_path / "wanted"), "-i", str(tmp_path / "found"), "-b", "-w", "6", *more]
    done = subprocess.run([sys.executable, "-m", "sacrebleu", *words], capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_the_score_is_that_of_the_command(tmp_path: Path):
    score = bleu(FOUND, WANTED)
    assert score["bleu"] == pytest.approx(by_command(tmp_path, FOUND, WANTED), abs=1e-6)
    assert 20 < score["bleu"] < 80
    assert score["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_capitals_do_not_count_where_a_model_has_none(tmp_path: Path):
    score = bleu(FOUND, WANTED, lowercase=True)
    assert score["bleu"] == pytest.approx(by_command(tmp_path, FOUND, WANTED, "-lc"), abs=1e-6)
    assert score["bleu"] > bleu(FOUND, WANTED)["bleu"]
    assert "case:lc" in score["bleu_signature"]


def test_chinese_is_counted_by_characters(tmp_path: Path):
    texts, wanted = ["我爱北京天安门", "他在1929年来到巴黎。"], ["我爱北京的天安门", "他1929年来到巴黎。"]
    score = bleu(texts, wanted)
    assert score["bleu"] == pytest.approx(by_command(tmp_path, texts, wanted, "-tok", "zh"), abs=1e-6)
    assert "tok:zh" in score["bleu_signature"]
    assert score["bleu"] > 30  # as words without spaces they would share nothing


def test_the_language_is_seen_from_the_references():
    assert is_chinese(["我爱 BERT", "北京天安门"])
    assert not is_chinese(["I love 北京", "and Paris"])
    assert not is_chinese(["123", ""])


def test_pairs_that_are_counted_once_give_the_same():
    draw = np.random.default_rng(0)
    for lowercase in (False, True):
        for _ in range(20):
            rows = draw.integers(0, 3, 5)
            texts, wanted = [FOUND[row] for row in rows], [WANTED[row] for row in draw.permutation(rows)]
            assert resampled(texts, wanted, lowercase) == pytest.approx(bleu(texts, wanted, lowercase)["bleu"])
    assert resampled(["我爱北京天安门"], ["我爱北京的天安门"]) > 30
    assert resampled([""], ["a"]) == 0


def test_perfect_is_a_hundred():
    assert bleu(WANTED, WANTED)["bleu"] == pytest.approx(100)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(InputError, match=r"sacrebleu is not installed; .*; pip install clozeworks\[bleu\]"):
        bleu(FOUND, WANTED)
