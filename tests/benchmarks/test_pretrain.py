"""The comparison itself: the same examples, the same loss, honest sums. Its figures are nobody's test."""

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest

import benchmarks
from benchmarks import peer, pretrain
from benchmarks.pretrain import summary
from benchmarks.workload import Blocks, OneSentence
from clozeworks.core.errors import InputError
from tests.toys import Text


def test_each_sentence_is_an_example_cut_at_the_length():
    text = Text([[3, 20], [5]])
    plan = OneSentence(length=12).plan(text, np.zeros((), np.uint64))
    assert plan.lengths.tolist() == [5, 12, 7]
    assert plan.starts.tolist() == [0, 3, 23]


def segment(tokens: int, seconds: float, cpu: float, computed: int, peak: float) -> dict:
    return {"steps": 10, "tokens": tokens, "computed": computed, "seconds": seconds, "cpu_seconds": cpu,
            "peak_mb": peak, "base_mb": 10.0}  # fmt: skip


def test_the_ratio_is_of_pairs_and_its_spread_is_reported():
    ours = [
        segment(1000, 1.0, 2.0, 1000, 50.0),
        segment(1000, 2.0, 2.0, 1000, 60.0),
        segment(1000, 1.0, 4.0, 1000, 60.0),
    ]
    theirs = [
        segment(500, 1.0, 2.0, 1000, 90.0),
        segment(500, 2.0, 1.0, 1000, 120.0),
        segment(500, 4.0, 4.0, 1000, 120.0),
    ]
    work = {"flops_a_token": {"useful": 100.0, "computed": 80.0}}
    results = summary({"ours": ours, "trainer": theirs}, [{"flops_per_second": 2e5}], work)
    assert results["sides"]["ours"]["useful_share_of_linear"] == 0.5
    assert results["sides"]["ours"]["computed_share_of_linear"] == 0.4
    assert results["sides"]["trainer"]["useful_share_of_linear"] == 0.125
    assert results["ratio"]["seconds"] == {"median": 2.0, "lowest": 2.0, "highest": 8.0}
    assert results["ratio"]["cpu_seconds"] == {"median": 2.0, "lowest": 1.0, "highest": 2.0}
    assert results["peak_memory_ratio"] == 0.5
    assert results["sides"]["trainer"]["share_of_padding"] == 0.5
    assert results["sides"]["ours"]["real_tokens_a_step"] == 100


def test_a_missing_peer_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'clozeworks\[hf\]'"):
        peer.library()


def test_an_unknown_benchmark_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean pretrain"):
        benchmarks.main("pretrian")


def test_without_a_name_the_benchmarks_are_listed(capsys):
    assert benchmarks.main(None) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[3] for line in lines] == list(benchmarks.NAMES)


def test_text_of_ones_own_is_for_prepare_alone():
    with pytest.raises(InputError, match="masking has a text of its own"):
        benchmarks.main("masking", data="corpus.jsonl")
    with pytest.raises(InputError, match="loader has no profile; leave it out, or choose pretrain"):
        benchmarks.main("loader", profile=True)


def test_an_unknown_cell_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean mini-8k"):
        benchmarks.main("pretrain", cells=("mini8k",))


def test_full_rows_are_the_text_as_it_comes():
    plan = Blocks(length=12).plan(Text([[3, 20], [9]]), np.zeros((), np.uint64))
    assert plan.lengths.tolist() == [12, 12, 12]
    assert plan.starts.tolist() == [0, 10, 20]


def test_every_benchmark_has_the_same_four_things():
    for name in benchmarks.NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        assert module.Setting.quick().repetitions < module.Setting().repetitions
        assert callable(module.run)
        assert callable(module.render)


def test_nothing_of_the_peer_is_imported_before_it_is_needed():
    code = "import sys, benchmarks; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


SMALL = {"recipe": "bert_tiny", "tokens": 512, "repetitions": 2, "warmup": 1, "steps": 2}


@pytest.mark.slow
def test_both_sides_run_in_turns_and_agree_at_step_0(monkeypatch):
    pytest.importorskip("transformers")
    cells = {"ragged": pretrain.Cell(**SMALL), "rows": pretrain.Cell(**SMALL, rows=1500, full=32)}
    monkeypatch.setattr(pretrain, "CELLS", cells)
    small = pretrain.Setting(cells=tuple(cells), vocab=1000, documents=40, threads=1)
    results = json.loads(json.dumps(pretrain.run(small), allow_nan=False))
    for cell in results["cells"].values():
        losses = cell["loss_at_step_0"]
        assert losses["ours"] == pytest.approx(losses["theirs"], abs=1e-5)
        assert cell["repetitions"] == 2
        assert [row["steps"] for row in cell["segments"]["trainer"]] == [2, 2]
        for side in cell["sides"].values():
            assert 0 < side["useful_share_of_linear"] < 1
    padding = [cell["sides"]["trainer"]["share_of_padding"] for cell in results["cells"].values()]
    assert results["cells"]["ragged"]["sides"]["ours"]["share_of_padding"] < 0.05 < padding[0]
    assert padding[1] == 0
    assert results["cells"]["rows"]["workload"]["vocabulary"] == 1500
    assert pretrain.render(results)


@pytest.mark.slow
def test_a_profile_accounts_for_the_whole_step(monkeypatch):
    monkeypatch.setattr(pretrain, "CELLS", {"ragged": pretrain.Cell(**SMALL)})
    results = pretrain.run(pretrain.Setting(cells=("ragged",), vocab=1000, documents=40, threads=1, profile=True))
    result = results["cells"]["ragged"]["profile"]
    parts = {"data", "embedding", "attention", "ffn", "head", "norms, residuals, dropout", "optimizer"}
    assert set(result["parts"]) == parts
    assert set(result["kinds"]) == {"matrix products", "other operators", "Python"}
    assert all(value >= 0 for kind in result.values() for value in kind.values())
    assert pretrain.render(results)


def test_a_side_finds_the_package_from_any_directory(tmp_path, monkeypatch):
    from benchmarks.harness import environment

    monkeypatch.setenv("PYTHONPATH", "src")
    command = [sys.executable, "-c", "import benchmarks.side, clozeworks"]
    subprocess.run(command, cwd=tmp_path, env=environment(1), check=True)


def test_the_command_is_one_that_can_be_typed_again(monkeypatch):
    from benchmarks.harness import describe_run

    monkeypatch.setattr("sys.argv", ["/somewhere/benchmarks/__main__.py", "pretrain", "--quick"])
    assert describe_run(1, (), 0.0)["command"] == "python -m benchmarks pretrain --quick"
