import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records import encodings
from clozeworks.data.records.counts import Counts
from clozeworks.data.records.encodings import detect, detect_file
from clozeworks.data.text.reader import Reader, Reading
from tests.conftest import SHARED

SIMPLIFIED = "这是一个简单的中文句子，用来测试编码。我们今天去北京大学，他们都说很好！"
SAYINGS = [
    (SIMPLIFIED, ["gb18030", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8"]),
    ("這是一個簡單的中文句子，用來測試編碼。我們說的話，他們都沒有聽見。", ["big5", "gb18030", "utf-16-le"]),
    ("これは日本語の文章です。文字コードを判定するために書きました。", ["shift_jis", "euc_jp", "utf-16-be"]),
    ("이것은 한국어 문장입니다. 문자 인코딩을 확인하기 위해 썼습니다.", ["euc_kr"]),
    ("Это простой русский текст, который был написан для проверки.", ["cp1251", "koi8_r"]),
    ("Où êtes-vous allé cet été ? À la plage, près de Nîmes, il faisait très chaud.", ["cp1252", "utf-16-le"]),
    ("Der Hund läuft über die Straße und hört große Vögel.", ["cp1252"]),
    ("“It’s late,” he said – and left the café…", ["cp1252"]),
    ("Zażółć gęślą jaźń. Dziękuję bardzo. Książka leży na półce.", ["cp1250"]),
    ("Bugün hava çok güzel, dışarıda çocuklar oynuyor. Şimdi gidiyoruz, değil mi?", ["cp1254"]),
    ("Αυτό είναι ένα απλό ελληνικό κείμενο για δοκιμή.", ["cp1253"]),
    ("זה טקסט פשוט בעברית לבדיקה של הקידוד.", ["cp1255"]),
    ("هذا نص عربي بسيط لاختبار الترميز في البرنامج.", ["cp1256"]),
    ("Plain English, nothing else.", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]),
]


@pytest.mark.parametrize(("text", "encoding"), [(text, name) for text, names in SAYINGS for name in names])
def test_encodings_are_recognised_and_read(tmp_path, text, encoding):
    assert detect(text.encode(encoding)) == encoding
    file = tmp_path / "a.txt"
    file.write_bytes(f"{text}\n\n{text}\n".encode(encoding))
    reader = Reader(file, Reading(encoding="auto"), None)
    assert [document.text for document in reader.documents(Counts())] == [text, text]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_marks_are_believed_and_removed(tmp_path, encoding):
    file = tmp_path / "a.txt"
    file.write_bytes("x中\n".encode(encoding))
    assert [document.text for document in Reader(file, Reading(encoding="auto"), None).documents(Counts())] == ["x中"]


def test_noise_is_no_encoding(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(random.Random(0).randbytes(5000).replace(b"\0", b""))
    assert detect_file(file) is None
    with pytest.raises(InputError, match="name it by --encoding NAME"):
        list(Reader(file, Reading(encoding="auto"), None).documents(Counts()))


def test_a_few_bad_bytes_leave_it_what_it_is():
    assert detect((SIMPLIFIED * 9).encode() + b"\xff") == "utf-8"
    assert detect((SIMPLIFIED * 9).encode("gb18030") + b"\xff\n") == "gb18030"


def test_what_stands_far_behind_the_beginning_counts(tmp_path):
    file = tmp_path / "a.txt"
    plain, chinese = b"Plain English here.\n" * 100_000, (SIMPLIFIED + "\n").encode("gb18030")
    for content in (plain + chinese * 20_000, plain + chinese + plain):  # met by a sample, and by none
        file.write_bytes(content)
        assert detect_file(file) == "gb18030"
    file.write_bytes((SIMPLIFIED * 20_000).encode())  # samples begin inside characters, and there is no newline
    assert detect_file(file) == "utf-8"


@pytest.mark.parametrize("raw", [b"\xff" * 300_000, "国家的主席".encode("gb18030") * 30_000, b"a\xe9" * 150_000])
def test_detection_is_linear(raw):
    start = time.process_time()
    detect(raw)
    assert time.process_time() - start < 5


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_get_an_answer(raw):
    name = detect(raw)
    assert name is None or "".encode(name) == b""


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16-le", "shift_jis"])
def test_bytes_that_do_not_decode_are_placed_replaced_or_skipped(tmp_path, encoding, monkeypatch):
    monkeypatch.setattr(encodings, "CHUNK", 5)
    bad = {"gb18030": b"\xff", "utf-16-le": b"\x00\xdc", "shift_jis": b"\xfd"}[encoding]
    file = tmp_path / "a.txt"
    head = "日本\n中".encode(encoding)
    file.write_bytes(head + bad + "文\n\n人\n".encode(encoding))
    with pytest.raises(InputError) as caught:
        list(Reader(file, Reading(encoding=encoding), None).documents(Counts()))
    assert f"line 2, byte {len(head)}" in str(caught.value)
    assert "--errors replace or skip" in str(caught.value)
    for errors, expected in (("replace", ["日本\n中\ufffd文", "人"]), ("skip", ["日本", "人"])):
        counts = Counts()
        reader = Reader(file, Reading(encoding=encoding, errors=errors), None)
        assert [document.text for document in reader.documents(counts)] == expected
        assert (counts.replaced, counts.skipped) == ((1, 0) if errors == "replace" else (0, 1))


@pytest.mark.skipif(not SHARED.is_dir(), reason="real text is not here")
@pytest.mark.parametrize(
    ("folder", "encoding", "length", "right"),
    [
        ("zh_wiki", "gb18030", 30, 1.0),
        ("zh_law", "gb18030", 30, 1.0),
        ("en_wiki", "cp1252", 2000, 0.9),
        ("zh_wiki", "utf-16-le", 500, 0.97),
    ],
)
def test_real_text_is_recognised(folder, encoding, length, right):
    draw = random.Random(0)
    lines = Path(SHARED, folder, "train.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    texts = [json.loads(line)["text"] for line in lines]
    raws = []
    while len(raws) < 200:
        text = draw.choice(texts)
        begin = draw.randrange(max(1, len(text) - length))
        raw = text[begin : begin + length].encode(encoding, "ignore")
        if not raw.isascii():
            raws.append(raw)
    assert sum(detect(raw) == encoding for raw in raws) >= right * len(raws)
