"""The command line as its users meet it: quick help, suggestions, JSON, exit codes, and a road that goes on."""

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clozeworks.cli import COMMANDS, main, parser_of

WORDS = [
    "the",
    "a",
    "small",
    "large",
    "red",
    "blue",
    "fox",
    "dog",
    "hen",
    "cat",
    "runs",
    "sleeps",
    "sees",
    "eats",
    "near",
    "under",
    "over",
    "old",
    "tree",
    "stone",
    "house",
]
SMALL = ["--set", "train.batch_tokens=256", "--set", "objective.segments.length=32", "--set", "train.steps=4"]
OWN_PART = '''
from dataclasses import dataclass

from torch import Tensor, nn

from clozeworks.nn.mixer import Mixer, MixerLayer
from clozeworks.recipes.bert import bert_tiny


@dataclass(slots=True)
class Average(Mixer):
    """Each token sees the mean of its row."""

    honours = frozenset({"full"})

    def build(self, width):
        return AverageLayer(width)


class AverageLayer(MixerLayer):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, width)

    def extend(self, past, x):
        raise NotImplementedError

    def forward(self, query: Tensor, memory, context):
        return self.out(query.mean(1, keepdim=True).expand_as(query)), None


def averaged():
    r = bert_tiny()
    r.name = "averaged"
    r.encoder.stack.block.mixer = Average()
    return r
'''


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command chooses threads for its process; here that process is the test's."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GOMP_SPINCOUNT", "10000")


def text(documents: int, seed: int) -> str:
    draw = random.Random(seed)
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randint(4, 12))) + "."  # noqa: E731
    return "\n\n".join(" ".join(sentence() for _ in range(draw.randint(3, 9))) for _ in range(documents)) + "\n"


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with corpus.txt, data, a run of four steps and its Hugging Face directory."""
    folder = tmp_path_factory.mktemp("road")
    (folder / "corpus.txt").write_text(text(150, 1))
    (folder / "more.txt").write_text(text(60, 2).replace("stone", "gemstones"))
    os.environ["OMP_NUM_THREADS"] = "1"
    assert (
        main(["prepare", f"{folder}/corpus.txt", "--out", f"{folder}/data", "--vocab", "120", "--heldout", "0.1"]) == 0
    )
    assert main(["pretrain", "bert_tiny", "--data", f"{folder}/data", "--out", f"{folder}/run", *SMALL]) == 0
    assert main(["export", f"{folder}/run", "--to", "hf", "--out", f"{folder}/hf"]) == 0
    return folder


def size(data: Path) -> int:
    return json.loads((data / "manifest.json").read_text())["tokenizer"]["size"]


def facts(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    """The one JSON object a command prints."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The sentence with which a command refuses."""
    capsys.readouterr()
    assert main([*map(str, words)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def child(*words: object, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clozeworks", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **more)  # pyright: ignore[reportCallIssue, reportArgumentType]


# ---- help


def test_help_is_quick_and_imports_nothing_heavy():
    code = "import sys, clozeworks.cli as c; c.main(['--help']); print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    heavy = ["torch", "numpy", "tokenizers", "rich", "matplotlib", "safetensors"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        assert child("--help").returncode == 0
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.5


def test_overview_tells_every_command(capsys):
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", told, re.MULTILINE), name
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert re.search(rf"^  clozeworks {name}\b", told, re.MULTILINE), "no example"
    assert max(len(line) for line in told.splitlines() if not line.startswith("  clozeworks ")) <= 80
    for action in parser_of(name)._actions:
        assert action.help, f"{action.dest} has no help"


def test_options_are_the_frozen_ones():
    """Scripts depend on these. Adding is fine: write it to options.txt and the changelog. Removing breaks someone."""
    now = ""
    for name in COMMANDS:
        names = [" ".join(a.option_strings[:1]) or str(a.metavar) for a in parser_of(name)._actions]
        now += f"{name}: {' '.join(sorted(names))}\n"
    assert now == (Path(__file__).parent / "options.txt").read_text()


# ---- mistakes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pretrian"], "did you mean pretrain"),
        (["--hepl"], "there is no such option"),
        (["show", "bert_bse"], "did you mean bert_base"),
        (["show", "bert_tiny", "--set", "encoder.wdth=64"], "did you mean width"),
        (["show", "bert_tiny", "--set", "encoder.width=wide"], "a value of type int is needed"),
        (["show", "bert_tiny", "--set", "encoder.width"], "PATH=VALUE is needed"),
        (["show", "bert_tiny", "--set", "encoder.width=99"], "not divisible"),
        (["show", "bert_tiny", "--jsno"], "did you mean --json"),
        (["show"], "no RECIPE"),
        (["show", "a", "b"], "one argument too many"),
        (["show", "nowhere/recipe.json"], "nowhere does not exist either"),
        (["prepare", "corpus.txt", "--otu", "x"], "did you mean --out"),
        (["prepare", "corpus.txt"], "no --out"),
        (["prepare", "--out", "x"], "no text"),
        (["prepare", "x.txt", "--out", "x", "--lang", "fr"], "en, zh"),
        (["prepare", "x.txt", "--out", "x", "--lang"], "nothing after it"),
        (["prepare", "x.txt", "--out", "x", "--vocab", "many"], "a whole number"),
        (["prepare", "x.txt", "--out", "x", "--heldout", "2"], "a share"),
        (["prepare", "x.txt", "--out", "x", "--errors", "replac"], "did you mean replace"),
        (["pretrain", "bert_tiny", "--dat", "x"], "did you mean --data"),
        (["pretrain", "bert_tiny", "--data", "nowhere", "--device", "cuad"], "--device"),
        (["evaluate", "nowhere", "--data", "x"], "no such path"),
        (["bench", "pretrian"], "did you mean pretrain"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_with_a_way_out(words, told, capsys):
    assert told in refused(capsys, *words)


def test_misspelt_paths_get_the_near_name(road, capsys):
    assert f"did you mean {road}/corpus.txt?" in refused(capsys, "prepare", f"{road}/corpse.txt", "--out", road / "x")
    assert f"did you mean {road}/data?" in refused(capsys, "examples", "bert_tiny", "--data", f"{road}/dta")
    assert f"did you mean {road}/run?" in refused(capsys, "fill-mask", f"{road}/rnu", "a [MASK]")
    assert f"did you mean {road}/data?" in refused(capsys, "pretrain", "bert_tiny", "--data", f"{road}/dat:2")
    assert "a number is needed after the colon" in refused(capsys, "pretrain", "bert_tiny", "--data", f"{road}/data:x")


def test_bad_input_leaves_nothing_behind(road, tmp_path, capsys):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes("na\xefve text.\n".encode("latin-1"))
    (tmp_path / "rows.jsonl").write_text('{"body": "some text"}\n')
    assert "an empty file" in refused(capsys, "prepare", tmp_path / "empty.txt", "--out", tmp_path / "out")
    assert "--errors replace" in refused(capsys, "prepare", tmp_path / "latin.txt", "--out", tmp_path / "out")
    assert "the fields are body" in refused(capsys, "prepare", tmp_path / "rows.jsonl", "--out", tmp_path / "out")
    assert "it holds prepared text" in refused(capsys, "prepare", road / "corpus.txt", "--out", road / "data")
    assert not (tmp_path / "out").exists()


def test_a_bug_of_ours_is_a_traceback():
    code = "import clozeworks.cli as c, clozeworks.doctor as d; d.apply = None; c.main(['recipes'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m clozeworks recipes | head -n 1", shell=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("recipe")
    assert done.stderr == ""


def test_pipes_get_no_escape_codes_and_colour_can_be_refused():
    assert "\x1b" not in child("recipes").stdout
    forced = {**os.environ, "FORCE_COLOR": "1"}
    assert "\x1b[" in child("recipes", "--tree", env=forced).stdout
    assert "\x1b[3" not in child("recipes", "--tree", env={**forced, "NO_COLOR": "1"}).stdout


def test_waiting_threads_do_not_spin_unless_asked_to():
    code = "import os, clozeworks.cli as c; c.main(['recipes']); print(os.environ.get('GOMP_SPINCOUNT'))"
    plain = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    for more, told in ({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None"):
        done = subprocess.run([sys.executable, "-c", code], env={**plain, **more}, capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == told


# ---- models


def test_recipes_and_their_kin(capsys):
    found = {row["name"]: row for row in facts(capsys, "recipes")["recipes"]}
    assert found["bert_base"]["parameters"] == 110_106_428
    assert found["bert_base"]["parent"] is None
    assert found["roberta_mini"]["parent"] == "roberta_base"
    assert found["roberta_base"]["parent"] == "bert_base"
    assert main(["recipes", "--tree"]) == 0
    assert "encoder.vocab=50,265" in capsys.readouterr().out


def test_show_counts_every_parameter_and_allocates_nothing(capsys):
    found = facts(capsys, "show", "bert_base")
    assert found["parameters"] == 110_106_428
    assert found["parameters_without_heads"] == 109_482_240
    parts = found["parts"]
    whole = {name: part["parameters"] for name, part in parts.items() if "." not in name}
    assert sum(whole.values()) == found["parameters"]
    for name in ("embed", "stack"):
        inside = [part["parameters"] for path, part in parts.items() if path.startswith(f"{name}.")]
        assert sum(inside) == whole[name]
    # 12 layers: 4 D^2 + 8 D^2 products and 2 L D for scores and for values, twice each.
    assert parts["stack"]["flops_per_token"] == pytest.approx(12 * 2 * (12 * 768**2 + 2 * 512 * 768))
    assert found["memory_bytes"] > 16 * found["parameters"]
    assert facts(capsys, "show", "bert_base", "--set", "train.micro_tokens=512")["memory_bytes"] < found["memory_bytes"]


def test_diff_is_the_difference(capsys):
    found = facts(capsys, "diff", "bert_base", "bert_base_chinese")
    assert found == {"name": ["bert_base", "bert_base_chinese"], "encoder.vocab": [30522, 21128]}
    assert main(["diff", "bert_base", "bert_base"]) == 0
    assert "no difference" in capsys.readouterr().out


def test_a_recipe_may_be_a_file_or_a_function(road, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(OWN_PART)
    assert facts(capsys, "show", f"{own}:averaged")["name"] == "averaged"
    assert "did you mean averaged" in refused(capsys, "show", f"{own}:avreaged")
    assert facts(capsys, "show", road / "run" / "recipe.json")["name"] == "bert_tiny"
    assert facts(capsys, "diff", road / "run", "bert_tiny")["encoder.vocab"] == [size(road / "data"), 30522]


# ---- the road


def test_prepare_tells_what_it_counted(road, tmp_path, capsys):
    found = facts(capsys, "prepare", road / "corpus.txt", "--out", tmp_path / "data", "--vocab", "120")
    assert sum(split["documents"] for split in found["splits"].values()) == 150
    assert found["tokenizer"]["size"] == size(tmp_path / "data") <= 120
    assert main(["prepare", str(road / "corpus.txt"), "--out", str(tmp_path / "again"), "--vocab", "120"]) == 0
    told = capsys.readouterr().out
    assert "documents" in told
    assert f"clozeworks examples bert_mini --data {tmp_path}/again" in told


def test_examples_as_json(road, capsys):
    capsys.readouterr()
    words = ["examples", "bert_tiny", "--data", str(road / "data"), "--count", "5", "--epoch", "2", "--json"]
    assert main(words) == 0
    first = capsys.readouterr().out
    rows = [json.loads(line) for line in first.splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    for row in rows:
        assert set(row) == {
            "tokens", "input_ids", "labels", "segment_ids", "word_starts", "sentence_starts", "pair_label", "index",
            "epoch",
        }  # fmt: skip
        length = len(row["tokens"])
        for name in ("input_ids", "labels", "segment_ids", "word_starts", "sentence_starts"):
            assert len(row[name]) == length
        assert row["tokens"][0] == "[CLS]"
        assert row["tokens"][-1] == "[SEP]"
        assert all(isinstance(value, bool) for value in row["word_starts"] + row["sentence_starts"])
        hidden = [at for at, label in enumerate(row["labels"]) if label != -100]
        assert len(hidden) == max(1, round(0.15 * length))
        assert any(row["sentence_starts"])
    assert main(words) == 0
    assert capsys.readouterr().out == first
    assert main([*words, "--seed", "1"]) == 0
    assert capsys.readouterr().out != first


def test_examples_for_people(road, capsys):
    assert main(["examples", "bert_tiny", "--data", str(road / "data"), "--count", "2", "--split", "heldout"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"\[MASK\]\(\w+\)", told)
    assert "pair label" in told


def test_pretrain_goes_on_and_knows_when_it_is_done(road, tmp_path, capsys):
    words = ["pretrain", "bert_tiny", "--data", road / "data", "--out", tmp_path / "run", *SMALL]
    found = facts(capsys, *words)
    assert (found["step"], found["finished"], found["resumed"]) == (4, True, None)
    assert facts(capsys, *words)["resumed"] == 4
    assert "keeps its recipe" in refused(capsys, *words, "--set", "train.steps=5")
    assert main([*map(str, words)]) == 0
    assert "finished already" in capsys.readouterr().out


def test_dry_run_writes_nothing(road, tmp_path, capsys):
    found = facts(capsys, "pretrain", "bert_tiny", "--data", road / "data", "--dry-run", *SMALL)
    assert found["steps"] == 4
    assert found["tokens"] == pytest.approx(4 * 256, rel=0.2)
    assert found["epochs"] == pytest.approx(found["tokens"] / found["corpus_tokens"])
    assert found["seconds"] > 0
    assert found["memory_bytes"] > 16 * found["parameters"]
    assert "no --out" in refused(capsys, "pretrain", "bert_tiny", "--data", road / "data")


def test_corpora_are_mixed_by_weight(road, tmp_path, capsys):
    odd = tmp_path / "more:0.5"  # a colon that belongs to the name
    assert main(["prepare", str(road / "more.txt"), "--out", str(odd), "--tokenizer", str(road / "data")]) == 0
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data:0.7", f"{odd}:0.3", "--out", tmp_path / "run", *SMALL]
    assert facts(capsys, *words)["finished"]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [entry["weight"] for entry in record["data"]] == [0.7, 0.3]
    assert facts(capsys, "pretrain", "bert_tiny", "--data", odd, "--out", tmp_path / "one", *SMALL)["finished"]


def test_evaluate_beside_the_baseline(road, capsys):
    found = facts(capsys, "evaluate", road / "run", "--data", road / "data")
    assert {"loss", "masked_accuracy", "perplexity", "unigram_loss", "unigram_accuracy", "count"} <= set(found)
    assert found["loss"] == pytest.approx(found["masked_lm"] + found["sentence_pair"])
    assert facts(capsys, "evaluate", road / "hf", "--data", road / "data")["count"] > 0
    assert main(["evaluate", str(road / "run"), "--data", str(road / "data")]) == 0
    assert "word frequencies" in capsys.readouterr().out


def test_evaluate_refuses_another_tokenizer(road, tmp_path, capsys):
    assert main(["prepare", str(road / "more.txt"), "--out", str(tmp_path / "other"), "--vocab", "90"]) == 0
    assert "another tokenizer" in refused(capsys, "evaluate", road / "run", "--data", tmp_path / "other")
    words = ["pretrain", "bert_tiny", "--from", road / "run", "--data", tmp_path / "other", "--out", tmp_path / "run"]
    assert "must keep their ids" in refused(capsys, *words)


def test_fill_mask(road, capsys):
    found = facts(capsys, "fill-mask", road / "run", "the [MASK] fox [MASK].", "--top", "3")
    assert [len(guesses) for guesses in found["masks"]] == [3, 3]
    assert set(found["masks"][0][0]) == {"token", "score", "id", "text"}
    assert "at least one [MASK] is needed" in refused(capsys, "fill-mask", road / "run", "the fox")
    assert main(["fill-mask", str(road / "hf"), "the [MASK] fox"]) == 0
    assert "chance" in capsys.readouterr().out


def test_export_and_import_are_inverse(road, tmp_path, capsys):
    found = facts(capsys, "import", road / "hf", "--out", tmp_path / "model")
    assert found["heads"] == ["masked_lm", "sentence_pair"]
    assert facts(capsys, "export", tmp_path / "model", "--to", "hf", "--out", tmp_path / "hf")["files"]
    weights = "model.safetensors"
    assert (tmp_path / "hf" / weights).read_bytes() == (road / "hf" / weights).read_bytes()
    assert "exists already" in refused(capsys, "export", road / "run", "--out", road / "hf")


def test_continue_from_a_model_of_another_shape(road, tmp_path, capsys):
    """The directory's encoder wins over the recipe's, and the command says so."""
    words = ["pretrain", "bert_mini", "--from", road / "hf", "--data", road / "data", "--out", tmp_path / "run", *SMALL]
    found = facts(capsys, *words)
    assert any("width 128 (bert_mini has 256)" in note for note in found["notes"])
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["encoder"]["width"] == 128
    assert facts(capsys, *words)["resumed"] == 4
    # A head that the source lacks is fresh, and named.
    one = [
        "pretrain",
        "roberta_mini",
        "--from",
        road / "run",
        "--data",
        road / "data",
        "--out",
        tmp_path / "one",
        *SMALL,
    ]
    assert any("sentence_pair is left behind" in note for note in facts(capsys, *one)["notes"])
    two = [
        "pretrain",
        "bert_mini",
        "--from",
        tmp_path / "one",
        "--data",
        road / "data",
        "--out",
        tmp_path / "two",
        *SMALL,
    ]
    assert any("heads.sentence_pair" in note for note in facts(capsys, *two)["notes"])


def test_pairs_need_two_segment_types(road, tmp_path, capsys):
    single = [*SMALL, "--set", "encoder.embed.segments=1"]
    assert (
        main([*map(str, ["pretrain", "roberta_mini", "--data", road / "data", "--out", tmp_path / "one", *single])])
        == 0
    )
    words = ["pretrain", "bert_mini", "--from", tmp_path / "one", "--data", road / "data", "--out", tmp_path / "two"]
    assert "one segment type" in refused(capsys, *words)


def test_continue_with_new_words(road, tmp_path, capsys):
    (tmp_path / "words.txt").write_text("gemstones\nfox\n")
    capsys.readouterr()
    prepared = facts(
        capsys, "prepare", road / "more.txt", "--tokenizer", road / "hf", "--add-tokens", tmp_path / "words.txt",
        "--out", tmp_path / "data",
    )  # fmt: skip
    words = [
        "pretrain",
        "bert_tiny",
        "--from",
        road / "hf",
        "--data",
        tmp_path / "data",
        "--out",
        tmp_path / "run",
        *SMALL,
    ]
    found = facts(capsys, *words)
    assert prepared["tokenizer"]["size"] == size(road / "data") + 1  # it knew "fox" already
    assert any("1 new token:" in note for note in found["notes"])
    assert facts(capsys, "fill-mask", tmp_path / "run", "the [MASK] fox")["masks"]


def test_own_parts_come_back(road, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(OWN_PART)
    small = [*SMALL, "--set", "encoder.width=32"]
    run = tmp_path / "run"
    assert facts(capsys, "pretrain", f"{own}:averaged", "--data", road / "data", "--out", run, *small)["finished"]
    assert "Average" in refused(capsys, "fill-mask", run, "the [MASK] fox")
    assert facts(capsys, "fill-mask", run, "the [MASK] fox", "--parts", own)["masks"]


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(road, tmp_path):
    import signal

    words = [
        "pretrain",
        "bert_tiny",
        "--data",
        f"{road}/data",
        "--out",
        f"{tmp_path}/run",
        "--set",
        "train.steps=100000",
    ]
    words += ["--set", "train.batch_tokens=256"]
    running = subprocess.Popen(
        [sys.executable, "-m", "clozeworks", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.time() + 120
    while not (tmp_path / "run" / "metrics.jsonl").exists() or not (tmp_path / "run" / "metrics.jsonl").read_text():
        assert time.time() < deadline
        time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "run the same command again to go on" in out
    assert list((tmp_path / "run").glob("step-*"))
