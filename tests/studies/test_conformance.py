"""The page is what the code measures, and the measurements notice a part that departs from its paper."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, PHRASE_INSIDE, PHRASE_START, ExamplePlan
from clozeworks.data.batches.rows import Epoch, Source
from clozeworks.data.shards.prepare import prepare
from clozeworks.objectives.mask import MaskNgrams, MaskSpans, MaskWholeWords, Replace
from clozeworks.objectives.mask.masking import Masking
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import DocSentences, PairStream, SegmentPair, SentenceOrder, Stream
from studies.conformance import formats
from studies.conformance import report as conformance
from studies.conformance.__main__ import main
from studies.conformance.formats import shown
from studies.conformance.masks import runs
from studies.conformance.material import Head, Material
from studies.conformance.results import LIMIT, Result, exact, mean, share
from studies.conformance.synthetic import Synthetic, vocabulary
from tests.conftest import SHARED
from tests.objectives.layouts import corrupt, lay

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"


@pytest.fixture(scope="module")
def report():
    return conformance.measure(conformance.synthetic())


def small() -> Material:
    return Material(Synthetic.make(300, 3), vocabulary(), Synthetic.make(300, 4, sides=True), 5)


def test_the_page_is_what_is_measured(report):
    wanted = PAGE.read_text(encoding="utf-8")
    assert conformance.page(report) == wanted, "run `python -m studies.conformance --out docs/conformance.md`"


def test_everything_agrees(report):
    assert not report.outside
    verdicts = [result.verdict for result in report.results]
    assert verdicts.count("exact") > 30
    assert verdicts.count("agrees") > 40
    assert {each.format for each in report.formats} == {
        "SegmentPair", "SentencePair", "FullSentences", "DocSentences", "SentenceOrder", "Stream", "Pairs"
    }  # fmt: skip


# ---- the measurements can fail


def clipped(mask, random):
    """Lengths beyond the longest become the longest, which gives 4.463 words in the mean."""
    endless = np.cumsum(0.2 * 0.8 ** np.arange(60))
    return np.minimum(np.searchsorted(endless, random * 2.0**-32, side="right") + 1, mask.longest)


def uniform(mask, random):
    return 1 + (random * mask.longest).astype(np.int64)


def lengths_alike(corruption, random):
    return 1 + (random % np.uint64(corruption.longest)).astype(np.int64)


def any_token(replace, bits, known):
    return bits % np.uint64(known.size)


def fewer_masks(method):
    return lambda self, **more: method(self, 0.7, 0.2, **more)


def one_more(method):
    return lambda *given: method(*given) + 1


def half_words(method):
    """The first token of each example is left out of what was chosen."""

    def choose(mask, examples, keys):
        chosen = method(mask, examples, keys)
        kept = np.append(False, chosen.rows[1:] == chosen.rows[:-1])
        return type(chosen)(chosen.tokens[kept], chosen.rows[kept])

    return choose


def relabelled(method):
    def plan(segments, text, key):
        made = method(segments, text, key)
        made.fields["pair_label"] = 1 - made.fields["pair_label"]
        return made

    return plan


def shifted(method):
    """Every piece loses its first token."""

    def plan(segments, text, key):
        made = method(segments, text, key)
        return dataclasses.replace(made, starts=np.minimum(made.starts + 1, made.ends))

    return plan


def forgetful(method):
    """Rows say that they reuse a token less."""

    def plan(segments, text, key):
        made = method(segments, text, key)
        made.fields["reused"] = made.fields["reused"] - 1
        return made

    return plan


BREAKS = {
    "clipped spans": (MaskSpans, "lengths", lambda method: clipped, "drawn: mean words"),
    "uniform runs": (MaskNgrams, "lengths", lambda method: uniform, "drawn: 1 word"),
    "a larger budget": (Masking, "budget", one_more, "MaskTokens: predictions of 128 tokens"),
    "halves of words": (MaskWholeWords, "choose", half_words, "MaskWholeWords: words masked in part"),
    "other shares": (Replace, "__init__", fewer_masks, "MaskTokens: tokens [MASK]"),
    "special random tokens": (Replace, "_random", lambda method: any_token, "source ordinary: random tokens special"),
    "wrong way round": (SentenceOrder, "plan", relabelled, "SentenceOrder at 128: labels that the places contradict"),
    "wrong neighbours": (SegmentPair, "plan", relabelled, "SegmentPair at 128: following B that does not follow A"),
    "lost tokens": (DocSentences, "plan", shifted, "DocSentences: tokens that an epoch leaves out"),
    "a uniform law": (Permute, "sizes", lambda method: lengths_alike, "Permute, drawn: mean words"),
    "a target more": (Permute, "budget", one_more, "Permute: predictions of 512 tokens (a share of .166)"),
    "a shorter head": (PairStream, "plan", forgetful, "PairStream: tokens not reused once, backward"),
    "a torn stream": (Stream, "plan", shifted, "Stream: rows that do not continue where their stream stood"),
}  # fmt: skip


@pytest.mark.parametrize("broken", BREAKS)
def test_a_departure_is_seen(broken, monkeypatch):
    part, name, change, seen = BREAKS[broken]
    monkeypatch.setattr(part, name, change(getattr(part, name)))
    outside = {result.what for result in conformance.measure(small()).outside}
    assert seen in outside


def test_nothing_is_seen_where_nothing_is_broken():
    assert not conformance.measure(small()).outside


def test_static_masks_that_change_are_seen(monkeypatch):
    def anew(source, number):
        key = counter_rng.fold(source.seed, "epoch", number)
        return Epoch(source, number, key, source.segments.plan(source.text, counter_rng.fold(key, "segments")))

    monkeypatch.setattr(Source, "epoch", anew)
    outside = [result.what for result in conformance.measure(small()).outside]
    name = "10 static copies"
    assert outside == [f"{name}: different masks of an example", f"{name}: times that each is seen"]


# ---- results


@given(st.floats(-3 * LIMIT, 3 * LIMIT), st.floats(1e-6, 1e3))
def test_the_verdict_is_about_standard_errors(distance, error):
    result = Result("", "", "", 0.5 + distance * error, 10, 0.5, error)
    assert result.distance == pytest.approx(distance, abs=1e-4)
    if abs(abs(distance) - LIMIT) > 1e-3:
        assert result.verdict == ("agrees" if abs(distance) < LIMIT else "outside")


def test_figures_of_draws_and_counts():
    hits = np.arange(400) < 100
    result = share("", "", "", hits, 0.3)
    assert (result.ours, result.n) == (0.25, 400)
    assert result.error == pytest.approx(np.sqrt(0.3 * 0.7 / 400))
    assert mean("", "", "", np.array([1.0, 3.0]), None).error == pytest.approx(1.0)
    assert exact("", "", "", np.array([4, 4, 5, 4]), 4, 4).verdict == "outside", "one of many differs"
    assert exact("", "", "", np.array([4, 4]), 4, 2).verdict == "exact"
    assert Result("", "", "", 0.80312, 9, 0.8, 0.0011).measured == "0.8031 ± 0.0011"
    assert Result("", "", "", 4.0, 9, 4).measured == "4"
    assert Result("", "", "", 4.0, 9).verdict == "the text decides"


def test_runs_are_counted_in_words():
    """Three words of 1, 2 and 3 tokens, all masked: one run."""
    masked = corrupt(MaskWholeWords(0.99), lay([[[1, 2, 3]]]))
    assert runs(masked).tolist() == [3]


# ---- the synthetic text


def test_the_text_never_changes():
    """The page depends on every token: another machine, library or year must give these."""
    text = conformance.synthetic().text
    assert isinstance(text, Synthetic)
    columns = (text.tokens, text.word_starts, text.units, text.sentences, text.documents)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in columns)).hexdigest()
    assert digest[:16] == "0edd86a72fc1c50f"


@given(st.integers(1, 40), st.integers(0, 2**32), st.booleans())
def test_borders_are_within_borders(documents, seed, sides):
    text = Synthetic.make(documents, seed, sides)
    assert text.documents[-1] == len(text.sentences) - 1
    assert text.sentences[-1] == len(text.tokens)
    assert text.word_starts[text.sentences[:-1]].all()
    assert text.tokens.min() >= 5
    assert text.tokens.max() < vocabulary().size
    if sides:
        assert (np.diff(text.documents) == 2).all()
    for start, inside in ((PHRASE_START, PHRASE_INSIDE), (ENTITY_START, ENTITY_INSIDE)):
        begins, goes_on = (text.units & start) != 0, (text.units & inside) != 0
        assert not (begins & goes_on).any()
        assert text.word_starts[begins].all()
        assert (begins | goes_on)[np.flatnonzero(goes_on) - 1].all(), "continues from nothing"
        assert not goes_on[text.sentences[:-1]].any(), "over a sentence border"


def test_the_head_of_a_text():
    whole = Synthetic.make(50, 1)
    head = Head.of(whole, 3000)
    count = len(head.documents) - 1
    assert int(head.sentences[-1]) <= 3000 < whole.sentences[whole.documents[count + 1]]
    assert Head.of(whole, 10**9) is whole
    assert len(Head.of(whole, 1).documents) == 3


def test_tokens_shown():
    text = Synthetic.make(2, 1, sides=True)
    a, b, c, end = (int(offset) for offset in (*text.sentences[:3], text.sentences[4]))
    plan = ExamplePlan(np.array([a, b]), np.array([b - 1, c]), np.zeros(2, np.int8), np.array([0, 1, 2]))
    assert shown(plan, text) == c - 1
    other = ExamplePlan(
        np.array([a, c]), np.array([b, end]), np.array([0, 1], np.int8), np.array([0, 2]), {"pair_label": np.array([1])}
    )
    assert shown(other, text) == b, "a side from elsewhere is not its own turn"


def test_chunks_of_several_sentences():
    """The walk over the chunks is the plan's own: in a document of one sentence there is no other chunk."""
    material, segments = small(), SegmentPair(128)
    epoch = material.source(segments, None).epoch(0)
    several = formats._several(epoch, segments, material.text)
    assert len(several) == len(epoch.plan)
    short = np.diff(material.text.sentences)[material.text.documents[:-1]] <= 60
    alone = np.flatnonzero((np.diff(material.text.documents) == 1) & short)
    document = formats.documents_of(epoch.plan, material.text)[::2]
    assert len(alone)
    assert not several[np.isin(document, alone)].any()


# ---- the command


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Nonsense of about 20,000 tokens."""
    folder = tmp_path_factory.mktemp("prepared")
    numbers = counter_rng.below(60, counter_rng.fold(1, "words"), np.arange(20_000))
    words = ["".join("bdfgklmnprst"[n % 12] + "aeiou"[n // 12] for n in (number, number // 2)) for number in numbers]
    sentences = [" ".join(words[at : at + 11]) + "." for at in range(0, len(words), 11)]
    documents = [" ".join(sentences[at : at + 9]) for at in range(0, len(sentences), 9)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    prepare([folder / "text.txt"], folder / "data", vocab=200)
    return folder


def test_on_real_text(prepared, capsys, tmp_path):
    page = tmp_path / "page.md"
    assert main(["--real", str(prepared / "data"), "--json", "--out", str(page)]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    loaded = json.loads(out)
    assert loaded["outside"] == 0
    assert not [each for each in loaded["results"] if "MaskPhrases" in each["what"] or "Pairs" in each["what"]]
    assert {each["format"] for each in loaded["formats"]} >= {"Stream", "SegmentPair"}
    assert page.read_text().startswith("# Conformance")


def test_for_people(prepared, capsys):
    assert main(["--real", str(prepared / "data")]) == 0
    output = capsys.readouterr().out
    assert "results agree with the papers" in output
    assert max(len(line) for line in output.splitlines()) <= 80


def test_a_departure_is_a_bug_of_ours(prepared, capsys, monkeypatch):
    monkeypatch.setattr(Masking, "budget", one_more(Masking.budget))
    assert main(["--real", str(prepared / "data"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["outside"] > 0


def test_bad_input_is_one_sentence(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("A dog. A cat.\n\nA hen. A fox.\n")
    prepare([tmp_path / "text.txt"], tmp_path / "data", vocab=70, heldout=0)
    assert main(["--real", str(tmp_path / "data")]) == 2
    assert "10,000 are needed" in capsys.readouterr().err
    assert main(["--real", str(tmp_path / "dat")]) == 2
    assert "did you mean" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "zh_wiki" / "train.jsonl").is_file(), reason="the shared text is not here")
def test_on_chinese_articles(tmp_path):
    prepare([SHARED / "zh_wiki" / "train.jsonl"], tmp_path / "data", vocab=6000, lang="zh")
    assert not conformance.measure(conformance.real(tmp_path / "data")).outside
