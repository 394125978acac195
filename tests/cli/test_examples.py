"""clozeworks examples: every mask and every format, for people and as JSON; what a step of a run was trained on."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from clozeworks.cli.main import main
from clozeworks.core import checksummed_json
from clozeworks.core.examples import ENTITY_START
from clozeworks.data.shards.prepare import prepare
from clozeworks.optim.settings import Phase
from clozeworks.recipe import Recipe
from clozeworks.train.pretrain import fit_to_data, open_data, pretrain
from clozeworks.train.pretraining_batches import PretrainingBatches
from tests.command_line import refused, text
from tests.train.conftest import documents, tiny_recipe

CHINESE = [
    "我 喜欢 吃 西瓜 ， 还 喜欢 跑步 。",
    "使用 语言 模型 来 预测 下 一个 词 。",
    "他 在 哈尔滨 吃 正宗 的 烤冷面 。",
]
MASKS = ["MaskTokens", "MaskWholeWords", "MaskNgrams", "MaskSpans"]
FORMATS = [
    "SegmentPair",
    "SentencePair",
    "FullSentences",
    "DocSentences",
    "SentenceOrder",
    "Stream(length=64,streams=4)",
]


@pytest.fixture(autouse=True)
def _screen(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared directories: en, zh with known words, units with phrases and entities, pairs."""
    folder = tmp_path_factory.mktemp("examples")

    def made(name: str, rows: list[dict], *more: str) -> None:
        file = folder / f"{name}.jsonl"
        file.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n")
        assert main(["prepare", str(file), "--out", str(folder / name), "--vocab", "200", *more]) == 0

    made("en", [{"text": document} for document in text(80, 1).strip().split("\n\n")])
    sentences = [CHINESE[n % 3] for n in range(120)]
    texts = [" ".join(sentences[at : at + 4]) for at in range(0, 120, 4)]
    made("zh", [{"words": document} for document in texts], "--field", "words", "--lang", "zh")
    row = {"text": "我喜欢吃哈尔滨正宗烤冷面。", "phrases": [[4, 12]], "entities": [[4, 7]]}
    made("units", [row] * 40, "--lang", "zh", "--segmenter", "none")
    made("pairs", [{"en": "the red fox sees a dog", "de": "der rote fuchs sieht einen hund"}] * 40, "--pairs", "en,de")
    return folder


def rows(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict]:
    capsys.readouterr()
    assert main(["examples", *map(str, words), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [json.loads(line) for line in out.splitlines()]


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main(["examples", *map(str, words)]) == 0
    return capsys.readouterr().out


def put(field: str, value: str) -> list[str]:
    return ["--set", f"objective.{field}={value}"]


# ---- JSON


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("segments", FORMATS)
def test_every_mask_and_format_as_json(mask, segments, data, capsys):
    result = rows(
        capsys, "roberta_mini", "--data", data / "en", *put("corruption", mask), *put("segments", segments),
        "--count", "6",
    )  # fmt: skip
    assert len(result) == 6
    for row in result:
        length = len(row["tokens"])
        columns = ("input_ids", "labels", "segment_ids", "word_starts", "sentence_starts")
        assert {len(row[name]) for name in columns} == {length}
        hidden = [at for at, label in enumerate(row["labels"]) if label != -100]
        assert hidden
        assert ("pair_label" in row) == (segments in ("SegmentPair", "SentencePair", "SentenceOrder"))
        assert ("stream" in row) == ("continues" in row) == segments.startswith("Stream")
        assert ("spans" in row) == (mask == "MaskSpans")
        if mask == "MaskSpans":
            assert [at for begin, end in row["spans"] for at in range(begin, end)] == hidden
            ends = [end for _, end in row["spans"]]
            starts = [begin for begin, _ in row["spans"][1:]]
            assert all(
                end < begin or row["segment_ids"][end - 1] != row["segment_ids"][begin]
                for end, begin in zip(ends, starts, strict=False)
            )


def test_lanes_as_json(data, capsys):
    result = rows(
        capsys, "roberta_mini", "--data", data / "en", *put("segments", "Stream(length=16,streams=4)"), "--count", "8"
    )
    assert [row["stream"] for row in result] == [0, 1, 2, 3] * 2
    assert [row["continues"] for row in result] == [False] * 4 + [True] * 4


def test_units_as_json(data, capsys):
    result = rows(capsys, "roberta_mini", "--data", data / "units", *put("corruption", "MaskPhrases(stage='entity')"))
    for row in result:
        assert len(row["units"]) == len(row["tokens"])
        for at, unit in enumerate(row["units"]):
            if unit & ENTITY_START:
                hidden = [label != -100 for label in row["labels"][at : at + 3]]
                assert all(hidden) or not any(hidden)
    assert any(unit & ENTITY_START for row in result for unit in row["units"])


def test_a_certain_example(data, capsys):
    base = ["bert_tiny", "--data", data / "en"]
    first = rows(capsys, *base, "--count", "7")
    assert rows(capsys, *base, "--index", "5") == first[5:6]
    assert rows(capsys, *base, "--index", "5", "--count", "2") == first[5:]
    assert len(rows(capsys, *base)) == 3
    assert "99999; this epoch has" in refused(capsys, "examples", *base, "--index", "99999").replace(",", "", 1)


# ---- for people


def test_the_header_says_what_is_in_force(data, capsys):
    out = printed(capsys, "bert_tiny", "--data", data / "en", *put("corruption", "MaskWholeWords(rate=0.3)"))
    assert re.search(r"^segments +SegmentPair\(length=128\)", out, re.MULTILINE)
    assert re.search(r"^corruption +MaskWholeWords\(rate=0.3\)", out, re.MULTILINE)
    assert "pretrain bert_tiny --set 'objective.corruption=MaskWholeWords(rate=0.3)' --data" in out


@pytest.mark.parametrize(
    ("segments", "meanings"),
    [
        ("SegmentPair(length=32)", {0: "B follows A", 1: "B is from another document"}),
        ("SentencePair", {0: "B follows A", 1: "B is from another document"}),
        ("SentenceOrder(length=32)", {0: "in order", 1: "swapped"}),
        ("DocSentences", {}),
        ("Stream(length=16,streams=2)", {}),
        ("PairStream(length=64,streams=2,reuse=16)", {0: "B follows A", 1: "B is from elsewhere"}),
    ],
)
def test_pair_labels_are_said_rightly(segments, meanings, data, capsys):
    words = ["roberta_mini", "--data", data / "en", *put("segments", segments), "--count", "12"]
    labels = [row.get("pair_label") for row in rows(capsys, *words)]
    explained = re.findall(r"^pair label (\d): (.*)$", printed(capsys, *words), re.MULTILINE)
    assert explained == [(str(label), meanings[label]) for label in labels if label is not None]
    assert not meanings or set(labels) == {0, 1}


def test_streams_are_reported(data, capsys):
    out = printed(
        capsys, "roberta_mini", "--data", data / "en", *put("segments", "Stream(length=16,streams=2)"), "--count", "4"
    )
    streams = re.findall(r"^stream .*$", out, re.MULTILINE)
    assert streams == [f"stream {stream}, begins: nothing is remembered" for stream in (0, 1)] + [
        "stream 0, continues",
        "stream 1, continues",
    ]


def test_source_and_target(data, capsys):
    words = ["roberta_mini", "--data", data / "pairs", *put("segments", "Pairs(length=20,target_length=6)")]
    out = printed(capsys, *words, *put("corruption", "none"), "--count", "1")
    assert "source  the red fox sees a dog [SEP]" in out
    assert re.search(r"^target  \[CLS\] der", out, re.MULTILINE)
    cut = rows(capsys, *words, "--count", "1")[0]["cut"]
    assert f"{cut} tokens too long for its room, cut away" in out
    assert "[MASK](hidden word)" not in out, "nothing is hidden, so there is no legend"


def test_spans_are_bracketed(data, capsys):
    words = ["roberta_mini", "--data", data / "en", *put("corruption", "MaskSpans"), "--count", "2"]
    out = printed(capsys, *words)
    assert "{span}" in out
    body = out.partition("{span}")[2]
    assert body.count("{") == body.count("}") == sum(len(row["spans"]) for row in rows(capsys, *words))


def test_an_order_is_reported(data, capsys):
    words = ["roberta_mini", "--data", data / "en", *put("corruption", "Permute"), "--count", "2"]
    result, out = rows(capsys, *words), printed(capsys, *words)
    assert "word(n) is predicted from what has no number, and from numbers below n" in out
    assert "(the same)" not in out
    for row in result:
        ranked = [at for at, number in enumerate(row["order"]) if number]
        assert sorted(row["order"][at] for at in ranked) == list(range(1, len(ranked) + 1))
        assert {at for at, label in enumerate(row["labels"]) if label != -100} <= set(ranked)
        assert all(label in (-100, token) for label, token in zip(row["labels"], row["input_ids"], strict=True))
    shown = [int(number) for number in re.findall(r"\S\((\d+)\)", out)]
    assert shown == [number for row in result for number in row["order"] if number]
    assert re.search(r"to look at, not to train: .*Permute: its rows hold the answers", " ".join(out.split()))


def test_a_row_of_two_ways_is_reported(data, capsys):
    segments = "PairStream(length=24,streams=2,reuse=8)"
    words = ["roberta_mini", "--data", data / "en", *put("corruption", "Permute"), *put("segments", segments)]
    result, out = rows(capsys, *words, "--count", "4"), printed(capsys, *words, "--count", "4")
    assert [(row["stream"], row["backward"], row["reused"]) for row in result] == [(0, False, 8), (1, True, 8)] * 2
    assert {len(row["order"]) for row in result} == {24}
    assert all(max(row["order"][:8]) < min(row["order"][8:]) for row in result)
    assert re.findall(r"^stream .*$", out, re.MULTILINE) == [
        "stream 0, begins: nothing is remembered",
        "stream 1, backward, begins: nothing is remembered",
        "stream 0, continues",
        "stream 1, backward, continues",
    ]
    assert out.count("the next row continues behind the first 8 tokens; these do not see the rest") == 4


def test_chinese_has_no_spaces_and_words_can_be_seen(data, capsys):
    words = ["roberta_mini", "--data", data / "zh", *put("corruption", "MaskWholeWords"), "--count", "4"]
    plain = "".join(printed(capsys, *words).split("(the same)")[1].splitlines())
    marked = "".join(printed(capsys, *words, "--mark-words").split("word|word")[1].splitlines())
    shown = lambda out: re.sub(r"(\[MASK\]|[^\s|{}])\((.)\)", r"\2", out)  # noqa: E731
    assert "我喜欢吃西瓜，还喜欢跑步。" in shown(plain)
    assert "我|喜欢|吃|西瓜|，|还|喜欢|跑步|。" in shown(marked)
    assert re.search(r"\|\[MASK\]\(.\)\[MASK\]\(.\)\|", marked), "no word is hidden whole"


def test_annotated_units_are_marked(data, capsys):
    out = printed(capsys, "roberta_mini", "--data", data / "units", *put("corruption", "MaskPhrases(stage='entity')"))
    assert "‹phrase›" in out
    assert "«entity»" in out
    shown = re.sub(r"(\[MASK\]|[^\s‹›«»])\((.)\)", r"\2", "".join(out.splitlines()))
    assert "我喜欢吃‹«哈尔滨»正宗烤冷面›。" in shown


def test_what_cannot_be_trained_can_be_looked_at(data, capsys):
    out = printed(capsys, "bert_tiny", "--data", data / "en", *put("segments", "DocSentences"))
    assert re.search(r"to look at, not to train: .*it\s+reads pair_label, which nothing writes", out)
    assert "clozeworks pretrain" not in out
    assert "segments=SegmentPair" in out


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("losses", "[MaskedLM, SentenceRelation]"),
        ("losses", "[]"),
        ("segments", "Stream(length=128, streams=7)"),
        ("segments", "DocSentences(length=4096)"),
    ],
)
def test_the_note_is_what_pretrain_says(field, value, data, tmp_path, capsys):
    shown = printed(capsys, "roberta_mini", "--data", data / "en", *put(field, value))
    words = ["pretrain", "roberta_mini", "--data", data / "en", *put(field, value), "--out", tmp_path / "run"]
    sentence = refused(capsys, *words).removeprefix("error: ")
    assert " ".join(sentence.split()) in " ".join(shown.partition("to look at, not to train: ")[2].split())
    assert "clozeworks pretrain" not in shown


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("corruption", "MaskSpan", "objective.corruption = MaskSpan: .*did you mean MaskSpans"),
        ("corruption", "MaskSpans(rat=0.2)", "objective.corruption.rat = 0.2: .*did you mean rate"),
        ("corruption", "MaskSpans(rate=2.0)", "corruption.rate = 2.0: a number in .0, 1."),
        ("corruption", "DocSentences", "Corruption or None is needed"),
        ("segments", "DocSentences(length=2)", "segments.length = 2: 8 or more is needed"),
        ("segments", "Pairs", "two-sided text is documents of two sentences"),
        ("corruption", "MaskPhrases", "text with annotated units is needed"),
    ],
)
def test_mistakes_are_one_sentence(field, value, message, data, capsys):
    sentence = refused(capsys, "examples", "bert_tiny", "--data", data / "en", *put(field, value))
    assert re.search(message, sentence), sentence


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
    output = capsys.readouterr().out
    assert re.search(r"\[MASK\]\(\w+\)", output)
    assert "pair label" in output


# ---- --run and --step: what a step was trained on, through phases and mixtures

STEPS = 14
PAIR = (0.7, 0.3)


def recipe_of_phases() -> Recipe:
    """Two lengths; a step holds eight rows or four."""
    return tiny_recipe(STEPS, phases=(Phase(0.5, 32), Phase(0.5, 64)), log_every=1, save_every=5)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora under one tokenizer and a run on both."""
    folder = tmp_path_factory.mktemp("steps")
    prepare(documents(60, 1), folder / "a", vocab=400, heldout=0.1)
    prepare(documents(60, 2), folder / "b", tokenizer=folder / "a", heldout=0.1)
    pretrain(recipe_of_phases(), [(folder / "a", PAIR[0]), (folder / "b", PAIR[1])], folder / "run", progress=False)
    return folder


def trained_on(place: Path) -> list[list[dict]]:
    """What each step is given by the feed itself: the tokens and labels of each example, in order."""
    corpora, tokenizer = open_data([(place / "a", PAIR[0]), (place / "b", PAIR[1])])
    steps = []
    for micro in PretrainingBatches(fit_to_data(recipe_of_phases(), tokenizer), corpora, tokenizer.vocabulary()):
        examples = []
        for batch in micro:
            assert batch.targets is not None
            assert batch.labels is not None
            tokens = batch.tokens.flatten().numpy()
            labels = np.full(len(tokens), -100)
            labels[batch.targets.numpy()] = batch.labels.numpy()
            ends = zip(batch.layout.starts, batch.layout.lengths, strict=True)
            cuts = [slice(start, start + length) for start, length in list(ends)[: len(batch.index)]]
            examples += [
                {"index": index, "input_ids": tokens[cut].tolist(), "labels": labels[cut].tolist()}
                for index, cut in zip(batch.index, cuts, strict=True)
            ]
        steps.append(examples)
    return steps


def test_every_step_shows_what_it_was_trained_on(place: Path, capsys):
    expected, directories = trained_on(place), set()
    assert len(expected) == STEPS
    for step in (1, 2, 5, 6, 7, 8, 9, 11, STEPS):
        shown = rows(capsys, "--run", place / "run", "--step", step)
        assert [{name: row[name] for name in ("index", "input_ids", "labels")} for row in shown] == expected[step - 1]
        assert {row["step"] for row in shown} == {step}
        directories |= {row["data"] for row in shown}
    assert directories == {str((place / name).resolve()) for name in "ab"}


def test_a_step_for_people(place: Path, capsys):
    assert main(["examples", "--run", str(place / "run"), "--step", "9", "--count", "2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "9 of 14 of" in out
    assert re.search(r"outcome loss \d\.\d+, grad norm \d", out)
    assert len(re.findall(r"\d+ in epoch \d of ", out)) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run", "RUN"], "a run and one of its steps are needed"),
        (["--step", "3"], "a run and one of its steps are needed"),
        (["bert_tiny", "--run", "RUN", "--step", "3"], "also a recipe"),
        (["--run", "RUN", "--step", "3", "--set", "train.seed=1"], "also --set"),
        (["--run", "RUN", "--step", "15"], "this run has 14 steps"),
        (["--run", "RUNx", "--step", "3"], "did you mean"),
        (["bert_tiny"], "no --data"),
        ([], "no RECIPE"),
    ],
)
def test_what_cannot_be_shown_is_said(place: Path, capsys, words: list[str], message: str):
    run = str(place / "run")
    assert message in refused(capsys, "examples", *[word.replace("RUN", run) for word in words])


def test_other_text_is_refused(place: Path, capsys, tmp_path: Path):
    pretrain(tiny_recipe(2), [(place / "a", 1.0)], tmp_path / "run", progress=False)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["data"][0]["directory"] = str(place / "b")
    (tmp_path / "run" / "run.json").write_text(json.dumps(checksummed_json.add_checksum(record)))
    assert "other shards than this run" in refused(capsys, "examples", "--run", tmp_path / "run", "--step", 1)
