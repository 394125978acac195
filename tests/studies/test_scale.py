"""The page is what the script prints; its counts are those of real models, files and rings."""

import dataclasses
import json
import math
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clozeworks as cw
from clozeworks.core import counter_rng
from clozeworks.data.shards.corpus import read_manifest
from clozeworks.data.shards.prepare import prepare
from studies.conformance.synthetic import Synthetic
from studies.scale import __main__
from studies.scale.cluster import Node, Text, assume
from studies.scale.estimate import LENGTH, Estimate, Passes, estimate_memory, most_rows
from studies.scale.growth import as_json
from studies.scale.page import page
from studies.scale.traffic import reading, saving, seconds, sent, shard_bytes, shards, step, young_daly
from tests.command_line import text

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
LARGE = Estimate(  # bert_large, as it was measured
    depth=24, width=1024, vocab=30522, parameters=336_226_108, tensors=398, blocks=302_309_376, moments=2,
    forward=664_008_036.5, layers=654_311_424.0, passes=Passes(16, 22_234_261_264, 44_343_504_376),
    recomputed=Passes(16, 2_551_582_328, 4_978_146_504),
)  # fmt: skip


def test_the_page_is_what_is_printed():
    wanted = PAGE.read_text(encoding="utf-8")
    assert page(__main__.plan_for()) == wanted, "run `python -m studies.scale > docs/scale.md`"


def test_the_estimate_is_that_of_the_library():
    """Parameters, blocks and passes of the recipe, and a line through two peaks."""
    result = __main__.plan_for().model
    assert result == LARGE
    assert result.parameters == cw.count_parameters("bert_large")
    assert result.recomputed.at(16) < result.passes.at(16) / 5
    assert result.passes.at(32) == result.passes.twice
    assert result.layers < result.forward


def test_memory_by_hand():
    model = dataclasses.replace(
        LARGE, depth=2, parameters=1000, blocks=600, passes=Passes(4, 500, 900), recomputed=Passes(4, 300, 400)
    )
    whole = estimate_memory(model, 8, ranks=4, sharded=False, again=False)
    assert (whole.weights, whole.gradients, whole.moments, whole.gathered) == (4000, 4000, 8000, 0)
    assert whole.passes == 900
    parts = estimate_memory(model, 4, ranks=4, sharded=True, again=True)
    assert (parts.weights, parts.moments, parts.gathered, parts.passes) == (1000, 2000, 6 * (400 + 600), 300)


@given(st.floats(1.0, 1e6), st.booleans(), st.booleans())
def test_the_rows_that_fit_are_the_most(room, sharded, again):
    model = dataclasses.replace(
        LARGE, parameters=1000, blocks=600, passes=Passes(4, 500, 900), recomputed=Passes(4, 300, 400)
    )
    rows = most_rows(room, model, ranks=2, sharded=sharded, again=again)
    held = [estimate_memory(model, each, ranks=2, sharded=sharded, again=again).total for each in (rows, rows + 1)]
    assert held[1] > room
    assert rows == 0 or held[0] <= room


# ---- what ranks send


def ring(ranks: int, chunk: int = 3) -> tuple[int, np.ndarray]:
    """An all-reduce of `ranks` chunks in a ring, done: numbers each rank sent, and what the ranks end with."""
    held = np.arange(ranks * ranks * chunk).reshape(ranks, ranks, chunk) ** 2
    wanted, count = held.sum(0), 0
    for turn in range(2 * (ranks - 1)):
        before = held.copy()
        count += chunk
        for rank in range(ranks):
            piece, to = (rank - turn) % ranks, (rank + 1) % ranks
            held[to, piece] = before[rank, piece] + (before[to, piece] if turn < ranks - 1 else 0)
        if turn == ranks - 2:  # every piece is now whole in one place: the one that sends it next
            assert all((held[(piece - 1) % ranks, piece] == wanted[piece]).all() for piece in range(ranks))
    assert (held == wanted).all()
    return count, held


@given(st.integers(2, 12))
def test_a_ring_sends_what_the_formula_says(ranks):
    count, _ = ring(ranks)
    assert count == pytest.approx(2 * sent(3 * ranks, ranks))


@given(st.sampled_from([2, 4, 8]), st.integers(1, 64), st.floats(1.0, 1e12))
def test_two_rings_send_as_much_as_one(gpus, nodes, size):
    inside, between = sent(size, gpus), sent(size / gpus, nodes)
    assert inside + between == pytest.approx(sent(size, gpus * nodes))
    node = Node(gpus=gpus, inside=1.0, between=1.0, reached=1.0, latency=0.0)
    assert seconds(size, gpus * nodes, node) == pytest.approx(sent(size, gpus * nodes))


def test_time_of_a_collective_by_hand():
    node = Node(gpus=8, inside=100.0, between=10.0, reached=0.5, latency=0.25)
    # 7/8 of 800 at 100, and 3/4 of 100 at 10, each at half speed; (7 + 3) hops twice
    assert seconds(800.0, 32, node, calls=2) == pytest.approx((7.0 + 7.5) / 0.5 + 2 * 10 * 0.25)
    assert seconds(800.0, 1, node) == 0


@given(
    st.sampled_from([1, 2, 8, 16, 64, 512]),
    st.integers(1, 9000),
    st.booleans(),
    st.sampled_from([0, 1]),
    st.floats(1e8, 1e13),
)
def test_a_step(ranks, rows, sharded, recompute, between):
    cluster = assume([f"work.recompute={recompute}", f"node.between={between}"])
    one = step(LARGE, cluster, ranks, rows, sharded)
    assert 0 <= one.exposed <= one.talk * (1 + 1e-12)
    assert one.together <= one.apart * (1 + 1e-12)
    assert 0 < one.busy <= 1
    assert (one.rows - 1) * ranks < rows <= one.rows * ranks
    assert (one.pieces - 1) * cluster.work.micro < one.rows <= one.pieces * cluster.work.micro
    work = (3 * LARGE.forward + recompute * LARGE.layers) * rows * LENGTH
    assert one.compute >= work / ranks / (989e12 * 0.4) * 0.999
    faster = step(LARGE, assume([f"node.between={2 * between}"], cluster), ranks, rows, sharded)
    assert faster.together <= one.together
    assert (one.sent == 0) == (ranks == 1)


def test_a_step_by_hand():
    cluster = assume(["gpu.peak=1e15", "gpu.achieved=0.5", "gpu.bandwidth=1e12", "node.latency=0", "node.reached=1"])
    whole = step(LARGE, cluster, 8, 256, sharded=False)
    assert whole.sent == 2 * 7 / 8 * 4 * 336_226_108
    assert whole.talk == pytest.approx(whole.sent / 450e9)
    assert whole.compute == pytest.approx(6 * LARGE.forward * 16 * LENGTH / 5e14 + 28 * 336_226_108 / 1e12)
    sharded = step(LARGE, cluster, 8, 256, sharded=True)
    assert sharded.sent == pytest.approx(2 * 7 / 8 * (2 * 336_226_108 + 2 * 302_309_376 + 4 * 336_226_108))
    assert sharded.talk == pytest.approx(sharded.sent / 450e9)


def test_every_bucket_pays_its_hops():
    cluster = assume(["node.latency=1", "node.inside=1e24", "node.bucket=1e8"])
    assert step(LARGE, cluster, 8, 256, sharded=False).talk == pytest.approx(2 * 14 * 7)


def test_reading_by_hand():
    cluster = assume(["store.disk=3e9", "store.network=1e8", "store.total=1e9"])
    one = step(LARGE, cluster, 16, 256, sharded=False)
    result = reading(one, cluster, 16, 30522, size=10**9)
    rows = one.tokens_a_second / LENGTH
    assert result.useful == pytest.approx(rows * LENGTH * 3)
    assert result.node == pytest.approx(rows / 2 * (2 * 4096 + 1023 + 511))  # two nodes; ids of 2 bytes, starts of 1
    assert result.disk == pytest.approx(result.node / 3e9)
    assert result.copy == pytest.approx(10**9 / 5e8)


# ---- text, checkpoints, failures


def test_shards_have_the_bytes_that_prepare_writes(tmp_path):
    (tmp_path / "corpus.txt").write_text(text(120, 3))
    prepare(tmp_path / "corpus.txt", tmp_path / "data", vocab=150, heldout=0.0)
    manifest = read_manifest(tmp_path / "data")
    for entry in manifest["shards"]:
        raw = (tmp_path / "data" / entry["file"]).read_bytes()
        header = 8 + int.from_bytes(raw[:8], "little")
        counts = (entry["tokens"], entry["sentences"], entry["documents"])
        assert entry["bytes"] == header + shard_bytes(*counts, manifest["tokenizer"]["size"])


def test_shards_of_the_whole_text():
    result = shards(Text(size=1e9, token=4.0, sentence=25.0, document=500.0, shard=50_000_000), 30522)
    assert (result.tokens, result.files) == (250_000_000, 5)
    assert result.file == 150_000_000 + 8 * 2_000_001 + 8 * 100_001 + 8 * 30522
    assert result.size == 5 * result.file
    assert result.borders == 8 * (10_000_001 + 500_001)


def test_planning_takes_the_memory_that_is_stated():
    corpus, segments = Synthetic.make(2000, 1), cw.recipe("bert_large").objective.segments
    tracemalloc.start()
    try:
        segments.plan(corpus, counter_rng.fold(1, "segments"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / (len(corpus.sentences) - 1) == pytest.approx(Text().plan, rel=0.25)


def wasted(interval: float, pause: float, restart: float, between: float) -> float:
    """Daly's exact expectation under exponential failures, as a share of the work (2006, equation 20)."""
    return between * math.exp(restart / between) * math.expm1((interval + pause) / between) / interval - 1


@given(st.floats(0.1, 60.0), st.floats(0.0, 600.0), st.floats(1e5, 1e7))
def test_the_interval_is_the_best_and_its_cost_the_expected_one(pause, restart, between):
    young, daly = young_daly(pause, between)
    assert daly == pytest.approx(young, rel=0.05)
    best = min(np.geomspace(daly / 10, daly * 10, 400), key=lambda each: wasted(each, pause, restart, between))
    assert daly == pytest.approx(best, rel=0.05)
    assert wasted(daly, pause, restart, between) == pytest.approx(
        pause / daly + (daly / 2 + restart) / between, rel=0.1
    )


def test_failures_by_hand():
    cluster = assume(["failure.rate=1e-3", "store.network=1e9", "store.total=2e9", "store.hash=1e9"])
    model = dataclasses.replace(LARGE, parameters=10**9, tensors=0)
    result = saving(model, cluster, 8, 360_000.0, sharded=False)
    assert result.size == 12e9
    assert result.pause == pytest.approx(12 + 12)  # one writer, then the hash
    assert result.restart == pytest.approx(60 + 120 + 48 + 12)  # eight readers share 2 GB a second
    assert result.between == pytest.approx(3600 / 8e-3)
    assert result.wasted == pytest.approx(wasted(result.daly, result.pause, result.restart, result.between), rel=0.05)
    assert result.failures == pytest.approx(360_000 * (1 + result.wasted) / result.between)
    assert result.lost == pytest.approx(result.failures * result.daly / 2)
    parts = saving(model, cluster, 8, 360_000.0, sharded=True)
    assert parts.pause == pytest.approx(1.5 / 0.25 + 1.5)


def test_without_failures_nothing_is_lost():
    result = as_json(__main__.plan_for(settings=["failure.rate=0"]))
    facts = result["layouts"][0]["runs"][0]["saving"]
    assert facts["daly"] is None
    assert facts["wasted"] == 0
    assert "never" in page(__main__.plan_for(settings=["failure.rate=0"]))


# ---- the command


def test_json_holds_the_figures_of_the_page(capsys):
    assert __main__.main(["--json", "--gpus", "16", "--recipe", "distilbert_base", "--set", "gpu.memory=16e9"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["assumptions"]["gpu.memory"] == 16e9
    assert report["model"]["parameters"] == cw.count_parameters("distilbert_base")
    assert [each["gpus"] for each in report["layouts"]] == [16, 16]
    run = report["layouts"][0]["runs"][1]
    assert run["seconds"] == pytest.approx(500_000 * run["step"]["together"])


def test_what_follows_follows_from_what_is_set():
    assert "16 rows at once fit in every layout" in page(__main__.plan_for())
    printed = page(__main__.plan_for(settings=["gpu.memory=28e9"]))
    assert "16 rows at once do not fit: 8 GPUs whole, 64 GPUs whole and 512 GPUs whole." in printed.replace("\n  ", " ")
    assert "none" in page(__main__.plan_for(settings=["gpu.memory=1e9"]))
    assert "wait for the network" not in page(__main__.plan_for(gpus=(8,)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "8,x"], "--gpus: 8,x; whole numbers"),
        (["--gpus", ""], "--gpus: nothing"),
        (["--gpus", "12"], "--gpus: 12; a multiple of 8"),
        (["--recipe", "bert_larg"], "did you mean bert_large"),
        (["--set", "gpu.memry=1"], "did you mean gpu.memory"),
        (["--set", "gpu.memory"], "PATH=VALUE is needed"),
        (["--set", "gpu.memory=many"], "gpu.memory: many; a number"),
        (["--set", "gpu.memory=nan"], "gpu.memory: nan; a number"),
        (["--set", "gpu.peak=1e-300"], "gpu.peak: 1e-300; a number from 1e-12"),
        (["--set", "gpu.memory=-1"], "more than 0"),
        (["--set", "gpu.achieved=1.1"], "a share above 0"),
        (["--set", "gpu.reserve=1"], "a share from 0"),
        (["--set", "node.gpus=7.5"], "a whole number"),
        (["--set", "work.recompute=2"], "0 or 1"),
        (["--set", "failure.rate=-1"], "0 or more"),
        (["--gups", "8"], "unrecognized arguments"),
    ],
)
def test_a_mistake_is_one_sentence(words, message, capsys):
    assert __main__.main(words) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_the_module_runs():
    command = [sys.executable, "-W", "error", "-m", "studies.scale.__main__", "--set", "gpu.peak=0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: gpu.peak: 0; more than 0 is needed; change it\n"
