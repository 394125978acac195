import json
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tokens import segmenters
from clozeworks.data.tokens.alignment import word_begins
from clozeworks.data.tokens.segmenters import Segmentation, portable, segmenter, words_between_spaces
from tests.conftest import SHARED

MELON = "我喜欢吃西瓜，还喜欢跑步"
NOODLES = "我喜欢吃哈尔滨正宗烤冷面"


def segment(given, sentences):
    return Segmentation(given)(sentences)


@pytest.fixture(scope="module")
def jieba():
    pytest.importorskip("jieba")
    return segmenter("jieba")


# ---- jieba


def test_jieba_agrees_with_the_examples(jieba):
    assert jieba(MELON) == ["我", "喜欢", "吃", "西瓜", "，", "还", "喜欢", "跑步"]
    assert "哈尔滨" in jieba(NOODLES)
    assert segment(jieba, [MELON])[0] == [jieba(MELON)]


texts = st.lists(
    st.one_of(st.text(max_size=5), st.sampled_from(list("我喜欢吃西瓜在了的大学生前来３，。ab1.%-# \n")))
).map("".join)


@given(text=texts)
@settings(max_examples=300, deadline=None)
def test_the_words_are_those_of_jieba_itself(jieba, text):
    narrow = text.translate(segmenters._WIDE)
    assert list(map(len, jieba(text))) == list(map(len, _original().lcut(narrow)))
    assert "".join(jieba(text)) == text


def test_the_words_are_those_of_jieba_itself_on_real_text(jieba):
    file = SHARED / "zh_wiki" / "train.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    original = _original()
    with file.open(encoding="utf-8") as stream:
        for _, line in zip(range(60), stream, strict=False):
            text = json.loads(line)["text"]
            if text == text.translate(segmenters._WIDE):
                assert jieba(text) == original.lcut(text)


def test_wide_digits_are_one_number(jieba):
    assert jieba("在１９９８年，３．５％") == ["在", "１９９８", "年", "，", "３．５％"]


def _original():
    """jieba's own way, its dictionary read without its cache file."""
    module = segmenters._import_jieba()
    own = module.dt
    if not own.initialized:
        own.FREQ, own.total = own.gen_pfdict(own.get_dict_file())
        own.initialized = True
    return own


def test_jieba_is_silent_and_writes_nothing(tmp_path):
    pytest.importorskip("jieba")
    script = f"from clozeworks.data.tokens.segmenters import segmenter; print(segmenter('jieba')({MELON!r}))"
    environment = {"TMPDIR": str(tmp_path), "PYTHONHASHSEED": "7", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=True, env=environment, cwd=tmp_path
    )
    assert done.stderr == ""
    assert "'西瓜'" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_jieba_in_several_processes(jieba):
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        assert list(pool.map(jieba, [MELON, NOODLES])) == [jieba(MELON), jieba(NOODLES)]


def test_jieba_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(InputError, match=r"pip install 'clozeworks\[zh\]'"):
        segmenter("jieba")


# ---- names


def test_names(tmp_path):
    assert segmenter("none") is None
    assert segmenter("spaces") is words_between_spaces
    with pytest.raises(InputError, match="did you mean jieba"):
        segmenter("jeiba")
    with pytest.raises(InputError, match="no such file"):
        segmenter(str(tmp_path / "mine.py:cut"))


def test_a_function_of_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def cut(text):\n    return [text[:2], text[2:]]\nnumber = 3\n")
    own = segmenter(f"{file}:cut")
    assert segment(own, ["我喜欢吃"])[0] == [["我喜", "欢吃"]]
    assert portable(own)
    again = pickle.loads(pickle.dumps(own))
    assert again("我喜欢") == ["我喜", "欢"]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(own, "我喜欢").result() == ["我喜", "欢"]
    for wrong in ("cot", "number"):
        with pytest.raises(InputError, match=r"no such function; (did you mean|choose one of) cut"):
            segmenter(f"{file}:{wrong}")
    for body, message in (("def f(:\n", "SyntaxError"), ("import nowhere_to_be_found\n", "nowhere_to_be_found")):
        other = tmp_path / "other.py"
        other.write_text(body)
        with pytest.raises(InputError, match=message):
            segmenter(f"{other}:f")


def test_what_can_be_handed_to_another_process(jieba):
    assert portable(jieba)
    assert portable(words_between_spaces)
    assert not portable(lambda text: [text])


# ---- applying one


def test_only_chinese_is_segmented():
    asked = []

    def one_word(text):
        asked.append(text)
        return [text]

    sentences = ["plain English", "a 我 b", "我a们", "", "３０，。"]
    assert segment(one_word, sentences)[0] == [None, None, ["我a们"], None, None]
    assert asked == ["我a们"]


def test_what_goes_wrong_is_counted_and_costs_one_sentence():
    def odd(text):
        if "坏" in text:
            raise KeyError("坏")
        return {"无": None, "串": text, "数": [1, 2], "丢": ["丢"], "好": list(text), "流": iter(text)}[text[0]]

    sentences = ["坏了", "无的", "串的", "数的", "丢了", "好的", "流的", "坏了"]
    words, problems = segment(odd, sentences)
    assert words == [None] * 5 + [["好", "的"], ["流", "的"], None]
    assert problems.counts == {"raised": 2, "not a list": 3, "does not join": 1}
    assert len(problems.messages) == 3
    assert problems.messages[0] == "KeyError: '坏' (at 坏了)"
    assert "NoneType instead of a list" in problems.messages[1]


def broken(text):
    raise ZeroDivisionError("no words today")


def test_a_broken_segmenter_is_refused():
    with pytest.raises(InputError, match="ZeroDivisionError: no words today on each of the first 100 sentences"):
        segment(broken, [MELON] * 100)
    assert segment(broken, [MELON] * 99)[1].counts == {"raised": 99}
    piecewise = Segmentation(broken)
    for _ in range(99):
        piecewise([MELON])
    with pytest.raises(InputError, match="ZeroDivisionError"):
        piecewise(["plain English", MELON])


def test_a_segmenter_that_once_answered_is_not_broken():
    work = Segmentation(lambda text: [text] if text == MELON else broken(text))
    assert work([MELON, *[NOODLES] * 300])[1].counts == {"raised": 300}


# ---- segmented text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("我 喜欢 吃", "我喜欢吃"),
        ("我 喜欢 deep  learning 模型", "我喜欢deep learning模型"),
        ("使用 语言 模型 来 预测 下 一个 词 的 probability 。", "使用语言模型来预测下一个词的probability。"),
        ("１９９８年 ， ３ 月", "１９９８年，３月"),
        ("他 说 ： “ hello , world ” 。", "他说：“hello , world”。"),
        ("한국 사람 和 中文", "한국 사람和中文"),
        ("  ", ""),
    ],
)
def test_spaces_go_where_chinese_has_none(given, text):
    words = words_between_spaces(given)
    assert "".join(words) == text
    assert [word.strip() for word in words] == given.split()
    assert word_begins(given, words) is not None
    assert words_between_spaces(" ".join(given.split())) == words


def test_segmented_text_passes_as_it_is():
    sentences = ["我 喜欢 吃", "deep learning"]
    words, problems = segment(words_between_spaces, sentences)
    assert words == [["我", "喜欢", "吃"], None]
    assert not problems.counts


# ---- functions that do what they should not


def _exits(sentence: str) -> list[str]:
    if "西瓜" in sentence:
        sys.exit("no melon")
    print("a word to the world")
    return list(sentence)


def test_a_segmenter_that_exits_costs_its_sentence_only(capsys):
    words, problems = segment(_exits, [MELON, NOODLES])
    assert words == [None, list(NOODLES)]
    assert problems.counts == {"raised": 1}
    assert "SystemExit: no melon" in problems.messages[0]
    assert capsys.readouterr().out == ""
    with pytest.raises(InputError, match="SystemExit"):
        segment(_exits, [MELON] * segmenters.TRIAL)
    with pytest.raises(KeyboardInterrupt):
        segment(_interrupts, [MELON])


def _interrupts(sentence: str) -> list[str]:
    raise KeyboardInterrupt


def test_a_file_that_exits_or_prints(tmp_path, capsys):
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\ndef cut(text): return [text]\n")
    with pytest.raises(InputError, match="SystemExit: 3; it must run without an error"):
        segmenter(f"{tmp_path / 'exits.py'}:cut")
    (tmp_path / "prints.py").write_text("print('loaded')\ndef cut(text):\n    print(text)\n    return [text]\n")
    words, _ = segment(segmenter(f"{tmp_path / 'prints.py'}:cut"), [MELON])
    assert words == [[MELON]]
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"loaded\n{MELON}\n")
