"""Both sides get the same blocks and hide as much of them; the figures are nobody's test."""

import json

import numpy as np
import pytest

from benchmarks import maskers, masking
from benchmarks.maskers import Blocks, Phrased
from clozeworks.core.batch import Batch
from clozeworks.core.examples import NOTHING, PHRASE_INSIDE, PHRASE_START
from tests.toys import Text

SMALL = masking.Setting(lengths=(64,), sizes=(8,), vocab=1000, documents=40, repetitions=2, seconds=0.005)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("masking")
    SMALL.write(folder)
    maskers.make(folder)
    return folder


@pytest.fixture(scope="module")
def bench(folder):
    return maskers.Bench(folder, 64, 8)


def test_blocks_are_full_and_cover_the_text_without_its_tail():
    plan = Blocks(length=12).plan(Text([[3, 20], [15]]), np.zeros((), np.uint64))
    assert plan.lengths.tolist() == [12, 12, 12]
    assert plan.starts.tolist() == [0, 10, 20]


def test_words_are_taken_by_threes_as_phrases():
    text = Text([[40]])
    units = Phrased(text).take(np.array([0]), np.array([40])).units
    starts = np.flatnonzero(units == PHRASE_START)
    words = np.cumsum(text.word_starts)
    assert len(starts) > 2
    assert text.word_starts[starts].all()
    for at in starts[:-1]:
        inside = at + 1
        while units[inside] == PHRASE_INSIDE:
            inside += 1
        assert words[inside - 1] - words[at] == 2


def test_the_peer_gets_the_tokens_that_we_get(bench):
    mine = bench.ours("tokens")["corrupt"]()
    before = np.where(mine.labels == NOTHING, mine.tokens, mine.labels)
    theirs = [row["input_ids"] for row in bench.rows_of(bench.batches[0])]
    assert before.reshape(8, 64).tolist() == theirs


def test_the_peer_finds_our_words_in_the_offsets(bench):
    collator = bench.collator
    epoch = bench.epochs["tokens"]
    ragged = epoch.examples(bench.batches[0])
    rows = bench.rows_of(bench.batches[0])
    offsets, special = (np.array([row[name] for row in rows]) for name in ("offset_mapping", "special_tokens_mask"))
    numbers, inside = collator._calc_word_ids_and_prob_mask(offsets, special)
    begins = ragged.word_starts.reshape(8, 64).copy()
    begins[:, 1] = True  # a block may begin within a word
    assert np.array_equal(~inside, begins)
    assert np.array_equal(numbers[:, 1:-1], np.cumsum(begins, axis=1)[:, 1:-1])


@pytest.mark.parametrize("name", maskers.MASKS)
def test_every_side_hides_about_fifteen_percent(bench, name):
    shares = bench.masked_share(name)
    assert set(shares) == ({"ours", "theirs"} if name in ("tokens", "whole words") else {"ours"})
    assert all(0.12 < share < 0.18 for share in shares.values()), shares


@pytest.mark.parametrize("name", maskers.MASKS)
def test_a_batch_of_ours_is_what_a_model_takes(bench, name):
    batch = bench.ours(name)["batch"]()
    assert isinstance(batch, Batch)
    assert batch.tokens.shape == (8, 64)
    assert batch.real == 8 * 64
    assert len(batch.targets) > 0


def test_each_call_takes_the_next_batch(bench):
    work = bench.ours("tokens")["batch"]
    seen = [work().index for _ in bench.batches]
    assert len(set(seen)) == len(bench.batches) > 1
    assert work().index == seen[0]


def test_sides_work_in_turns_and_the_first_one_changes():
    order = []
    works = {name: lambda name=name: order.append(name) for name in "abc"}
    rows = masking.in_turns(works, repetitions=3, seconds=0.0)
    assert {name: len(each) for name, each in rows.items()} == {"a": 3, "b": 3, "c": 3}
    last = [name for name, after in zip(order, [*order[1:], None], strict=True) if name != after]
    assert "".join(last).endswith("abcbcacab")


def test_ratios_are_of_pairs():
    rates = {"ours, batch": [10.0, 20.0, 30.0], "ours, corrupt": [40.0, 40.0, 60.0], "theirs, batch": [2.0, 5.0, 5.0]}
    result = masking.compare_rates(rates)
    assert result["batch / batch"] == {"median": 5.0, "lowest": 4.0, "highest": 6.0}
    assert result["corrupt / batch"] == {"median": 12.0, "lowest": 8.0, "highest": 20.0}
    assert set(result) == {"batch / batch", "corrupt / batch"}


def test_the_whole_of_it(folder, bench, capsys):
    cell = json.loads(json.dumps(masking.measure_cell(bench, SMALL), allow_nan=False))
    tokens = cell["masks"]["tokens"]
    assert set(tokens["examples_per_cpu_second"]) == {
        *("ours, corrupt", "ours, batch", "theirs, batch", "theirs, batch, ids alone", "theirs, corrupt")
    }
    assert set(tokens["ratio"]) == {f"{ours} / {theirs}" for ours, theirs in masking.PAIRS}
    assert cell["masks"]["spans"]["ratio"] == {}
    assert all(len(rows) == 2 for rows in tokens["segments"].values())
    machine = {"processor": "p", "cores": 2, "load_average": [0.0]}
    results = {"cells": [cell | {"length": 64, "batch": 8}], "repetitions": 2, "machine": machine, "versions": {}}
    assert masking.render(results)
