"""The experiment about numbers of labels, in miniature."""

import json
from pathlib import Path

import pytest

from studies import labels
from tests.labelled import rows, write


def read(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_every_arm_learns_from_the_same_rows_and_a_second_call_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, out, picture = tmp_path / "data", tmp_path / "out", tmp_path / "labels.svg"
    (folder / "kinds").mkdir(parents=True)
    write(folder / "kinds" / "train.jsonl", rows(60))
    write(folder / "kinds" / "dev.jsonl", rows(20, 1))
    words = ["--folder", str(folder), "--out", str(out), "--sets", "kinds", "--recipe", "cloze_tiny", "--vocab", "90",
             "--encoder-steps", "4", "--seeds", "0,1"]  # fmt: skip
    assert labels.main([*words, "--sizes", "8", "--arms", "tfidf_words,own"]) == 0
    first = read(capsys)
    assert {arm: len(each) for arm, each in first["scores"]["kinds"]["8"].items()} == {"tfidf_words": 2, "own": 2}
    assert set(first["own_above"]["kinds"]["8"]) == {"tfidf_words"}
    kept = (out / "results.jsonl").read_text()
    assert (
        labels.main([*words, "--sizes", "8,16", "--arms", "tfidf_words,own,counted,fresh", "--plot", str(picture)]) == 0
    )
    assert (out / "results.jsonl").read_text().startswith(kept)
    second = read(capsys)
    assert second["scores"]["kinds"]["8"]["own"] == first["scores"]["kinds"]["8"]["own"]
    assert set(second["scores"]["kinds"]["16"]) == {"tfidf_words", "own", "counted", "fresh"}
    assert picture.is_file()
    teacher = ["--existing", str(out / "kinds" / "own")]
    assert labels.main([*words, *teacher, "--sizes", "8", "--arms", "distilled"]) == 0
    assert len(read(capsys)["scores"]["kinds"]["8"]["distilled"]) == 2
    assert json.loads((out / "kinds" / "distilled" / "run.json").read_text())["teacher"]["name"] == "cloze_tiny"


def test_drawn_rows_are_stratified_and_never_those_that_measure(tmp_path: Path):
    (tmp_path / "kinds").mkdir()
    train, dev = rows(90), rows(20, 1)
    write(tmp_path / "kinds" / "train.jsonl", [*train, *dev[:5], *train[:5]])
    write(tmp_path / "kinds" / "dev.jsonl", dev)
    read = labels.read_set("kinds", tmp_path)
    measured = {row["text"] for row in read.test}
    assert not measured & {row["text"] for row in read.train}
    assert len({row["text"] for row in read.train}) == len(read.train)
    drawn = read.drawn(20, 0)
    assert drawn == read.drawn(20, 0) != read.drawn(20, 1)
    for label in {row["label"] for row in drawn}:
        share = sum(row["label"] == label for row in read.train) / len(read.train)
        assert sum(row["label"] == label for row in drawn) == round(20 * share)


def test_what_is_missing_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for words, message in (
        (["--sets", "nothing"], "a folder nothing with train.jsonl and dev.jsonl is needed"),
        (["--arms", "existing"], "the last three need --existing"),
    ):
        assert labels.main(["--out", str(tmp_path / "out"), *words]) == 2
        assert message in capsys.readouterr().err
