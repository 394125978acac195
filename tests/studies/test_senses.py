"""One word with two meanings: what is planted, what is counted, and the whole experiment in miniature."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from studies import senses

TEXT = [f"{a} {b} {c}".split() for a in ("red", "green", "old") for b in ("cat", "dog") for c in ("runs", "sits")]


def test_every_place_of_a_homonym_tells_what_it_was():
    which = {"cat": ("catdog", 0), "dog": ("catdog", 1)}
    learned, places = senses.planted(TEXT * 60, which)
    words = Counter(word for sentence in learned for word in sentence)
    assert {"cat", "dog"}.isdisjoint(words)
    assert words["catdog"] == len(learned)
    result = places["catdog"]
    assert Counter(place.meaning for place in result) == {0: senses.PLACES, 1: senses.PLACES}
    assert all(place.sentence[place.at] == "catdog" for place in result)
    held = [sentence for number, sentence in enumerate(TEXT * 60) if number // senses.TOGETHER % senses.HELD == 0]
    assert len(learned) + len(held) == len(TEXT) * 60
    first = next(place for place in result if place.meaning == 1)
    assert [word if word != "catdog" else "dog" for word in first.sentence] in held


def test_homonyms_are_as_frequent_as_each_other_and_drawn_by_seed():
    letters = "abcdefgh"
    names = ["w" + a + b + c for a in letters for b in letters for c in letters[:3]]  # 192
    text = [[name] * (20 + n) for n, name in enumerate(names)] * 5
    counts = Counter(word for sentence in text for word in sentence)
    which = senses.homonyms(text, 0)
    assert len(which) == 2 * senses.PAIRS
    pairs: dict[str, dict[int, str]] = {}
    for word, (written, meaning) in which.items():
        pairs.setdefault(written, {})[meaning] = word
    assert all(written == both[0] + both[1] for written, both in pairs.items())
    assert max(abs(counts[both[0]] - counts[both[1]]) for both in pairs.values()) == 5
    assert senses.homonyms(text, 0) == which != senses.homonyms(text, 1)
    with pytest.raises(InputError, match="give more text"):
        senses.homonyms(text[:40], 0)


def test_a_table_says_nothing_of_the_meaning_and_a_direction_all():
    meanings = np.repeat([0, 1], 10)
    same = np.ones((20, 4), np.float32)
    assert senses.same_meaning(same, meanings) == pytest.approx(9 / 19)
    apart = same + np.outer(meanings, [0, 0, 0, 5])
    assert senses.same_meaning(apart, meanings) == 1
    crossed = np.stack([np.eye(10)[n % 10] for n in range(20)])  # each as its partner of the other meaning
    assert senses.same_meaning(crossed, meanings) == 0


def test_cues_tell_the_meaning_of_a_real_word():
    text = [s.split() for s in ("the river bank", "money in the bank", "a bank", "bank by the river of money")] * 3
    places = senses.by_cues(text, "bank", ("river,shore", "money"))
    assert [(place.at, place.meaning) for place in places] == [(2, 0)] * 3 + [(3, 1)] * 3
    with pytest.raises(InputError, match="0 and 6 places"):
        senses.by_cues(text, "bank", ("shore", "money"))
    with pytest.raises(InputError, match="WORD:CUES:CUES is needed"):
        senses.cues_of("bank:river")


@pytest.mark.slow
def test_the_experiment_in_miniature(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    picture = tmp_path / "senses.svg"
    words = ["--steps", "3", "--seeds", "0", "--word", "file:path,open:class,object", "--plot", str(picture)]
    assert senses.main(words) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(report["same"]) == ["word2vec", "words around", *(f"elmo {n}" for n in range(3)),
                                   *(f"bert {n}" for n in range(5))]  # fmt: skip
    assert report["same"]["word2vec"]["planted"][0] < 0.5
    assert report["same"]["words around"]["planted"][0] > 0.55
    assert set(report["places"]) == {"planted", "file"}
    assert picture.is_file()
    assert senses.main(["--text", str(tmp_path / "none.txt")]) == 2
    assert "a text file is needed" in capsys.readouterr().err
