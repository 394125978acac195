import gzip
import json
import pickle
import sys
import types

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.shards import units
from clozeworks.vectors.reading import read_words


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(3)
    lines = [" ".join(f"w{n}" for n in rng.geometric(0.05, 12)) + "." for _ in range(300)]
    (tmp_path / "a.txt").write_text("\n".join(lines[:150]))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        for line in lines[150:]:
            file.write(json.dumps({"text": line}) + "\n")
    return [tmp_path / "a.txt", tmp_path / "b.jsonl.gz"], lines


def test_files_and_lists_of_words_give_the_same(text):
    files, lines = text
    seen = []
    result = read_words(files, min_count=2, progress=lambda *progress: seen.append(progress))
    listed = read_words(([*line[:-1].split(), "."] for line in lines), min_count=2)
    assert result.words == listed.words
    assert np.array_equal(result.ids, listed.ids)
    assert np.array_equal(result.ends, listed.ends)
    assert seen[-1][0] == "words"
    assert seen[-1][1] == seen[-1][2] > 0


def test_rows_a_generator_of_texts_and_words_again(text):
    _, lines = text
    rows = read_words([{"text": line} for line in lines], marks=False)
    texts = read_words((line for line in lines), marks=False)
    assert rows.words == texts.words
    assert np.array_equal(rows.ids, texts.ids)
    assert read_words(rows, min_count=3).words == rows.kept(3).words


@pytest.mark.slow
def test_processes_change_nothing(text, monkeypatch):
    files, _ = text
    monkeypatch.setattr(units, "UNIT_CHARACTERS", 3000)
    one, two = read_words(files), read_words(files, processes=2)
    assert one.words == two.words
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.ends, two.ends)


class Cluster(types.ModuleType):
    """As much of Ray as the engine asks for: actors that work when they are asked for their results."""

    def __init__(self):
        super().__init__("ray")
        self.actors = []

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 3.0}

    def remote(self, **_):
        def actor(kind):
            def made(*given):
                result = kind(*pickle.loads(pickle.dumps(given)))
                self.actors.append(result)
                run = types.SimpleNamespace(remote=lambda unit: lambda: result.run(unit))
                return types.SimpleNamespace(run=run)

            return types.SimpleNamespace(remote=made)

        return actor

    def get(self, asked):
        return asked()


def test_a_cluster_changes_nothing(text, monkeypatch):
    files, _ = text
    monkeypatch.setattr(units, "UNIT_CHARACTERS", 3000)
    monkeypatch.setitem(sys.modules, "ray", cluster := Cluster())
    one, two = read_words(files), read_words(files, engine="ray")
    assert len(cluster.actors) == 3
    assert one.words == two.words
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.ends, two.ends)


def test_chinese_is_told_from_the_text(tmp_path):
    pytest.importorskip("jieba")
    (tmp_path / "zh.txt").write_text("我们喜欢自然语言处理。\n我们喜欢学习。")
    result = read_words(tmp_path / "zh.txt")
    assert result.words[:3] == ["。", "喜欢", "我们"]


def test_bad_text_is_reported(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match="an empty file"):
        read_words(tmp_path / "empty.txt")
    (tmp_path / "rare.txt").write_text("one two two")
    with pytest.raises(InputError, match="min_count of 2 or less"):
        read_words(tmp_path / "rare.txt", min_count=5)
    with pytest.raises(InputError, match="no such"):
        read_words(tmp_path / "absent.txt")
