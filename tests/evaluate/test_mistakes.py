"""What went wrong, for each task."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from clozeworks.data.tables.table import Table
from clozeworks.evaluate.examination import Examination
from clozeworks.evaluate.mistakes import mistakes
from clozeworks.evaluate.report import page
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.embed import SentenceEmbedding
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.qa import QuestionAnswering
from clozeworks.tasks.tag import Tag


def classes(right: list[str], predicted: list[tuple[str, float]]) -> tuple[Classify, list[dict], Table]:
    task = Classify(labels=("no", "yes"))
    answers = [
        {"label": name, "scores": {each: sure if each == name else 1 - sure for each in task.labels}}
        for name, sure in predicted
    ]
    return task, answers, Table("t.csv", [{"text": f"text {n}", "label": each} for n, each in enumerate(right)])


def test_the_surest_of_the_wrong_come_first():
    task, answers, table = classes(["yes", "no", "yes", "no"], [("yes", 0.9), ("yes", 0.6), ("no", 0.8), ("no", 0.7)])
    result = mistakes(task, answers, table)
    assert [each.where for each in result.worst] == ["t.csv, row 3", "t.csv, row 2"]
    assert (result.worst[0].right, result.worst[0].predicted) == ("yes", "no (80% sure)")
    assert result.worst[0].row == {"text": "text 2"}
    assert result.confusion is not None
    assert result.confusion.counts.tolist() == [[1, 1], [1, 1]]
    assert result.classes["yes"].support == 2
    assert len(mistakes(task, answers, table, worst=1).worst) == 1


def test_other_tasks():
    both = {"text_a": "a", "text_b": "b"}
    scored = Table("t", [{**both, "score": 5.0}, {**both, "score": 1.0}])
    result = mistakes(Pair(problem="regression"), [{"score": 4.5}, {"score": 3.0}], scored)
    assert [each.badness for each in result.worst] == [2.0, 0.5]
    assert result.classes == {}

    graded = Table("t", [{**both, "score": score} for score in (1.0, 2.0, 3.0, 5.0)])
    result = mistakes(SentenceEmbedding(), [{"cosine": value} for value in (0.5, 0.9, 0.6, 0.8)], graded)
    assert [(each.badness, each.right, each.predicted) for each in result.worst] == [
        (0.5, "2.0", "cosine 0.9"),
        (0.25, "3.0", "cosine 0.6"),
        (0.25, "5.0", "cosine 0.8"),
    ]
    together = Table("t", [both, both])
    result = mistakes(SentenceEmbedding(), [{"cosine": 0.5, "rank": 4}, {"cosine": 0.9, "rank": 1}], together)
    assert [(each.right, each.predicted) for each in result.worst] == [("rank 1", "cosine 0.5, rank 4")]

    several = Table("t", [{"text": "x", "label": ["a"]}, {"text": "y", "label": []}])
    answers = [{"label": ["a"], "scores": {"a": 0.9, "b": 0.2}}, {"label": ["b"], "scores": {"a": 0.1, "b": 0.7}}]
    result = mistakes(Classify(labels=("a", "b"), problem="multi_label"), answers, several)
    assert [each.where for each in result.worst] == ["t, row 2"]
    assert result.classes["a"].f1 == 1.0

    tagged = Table("t", [{"tokens": ["Ann", "sees", "Rome"], "tags": ["B-PER", "O", "B-LOC"]}])
    task = Tag(labels=("B-LOC", "B-PER", "O"), scheme="BIO")
    result = mistakes(task, [{"tags": ["B-PER", "O", "O"], "scores": [1.0] * 3}], tagged)
    assert result.classes["LOC"].recall == 0
    assert result.classes["PER"].f1 == 1
    assert result.worst[0].right == "B-PER O B-LOC"

    asked = {"question": "Who?", "context": "Ann sees Rome."}
    passages = Table("t", [{**asked, "answers": [{"text": "Ann", "start": 0}]}, {**asked, "answers": []}])
    result = mistakes(QuestionAnswering(), [{"answer": "Ann"}, {"answer": "Rome"}], passages)
    assert [(each.right, each.predicted) for each in result.worst] == [("no answer", "Rome")]

    options = Table("t", [{"context": "c", "question": "q", "choices": ["x", "y"], "answer": 1}])
    result = mistakes(Choice(), [{"answer": 0, "choice": "x", "scores": [0.7, 0.3]}], options)
    assert [(each.right, each.predicted, each.badness) for each in result.worst] == [("y", "x", 0.7)]


@pytest.mark.parametrize("many", [2, 40])
def test_the_page_is_complete_in_itself(many: int):
    labels = tuple(f"<{n}> 类 & $x_{n}$" for n in range(many))
    draw = np.random.default_rng(0)
    right = [labels[int(n)] for n in draw.integers(0, many, 200)]
    predicted = [labels[int(n)] for n in draw.integers(0, many, 200)]
    task = Classify(labels=labels)
    answers = [{"label": each, "scores": {each: 1.0}} for each in predicted]
    table = Table("t", [{"text": "<script>alert(1)</script>\x1b[2J\u202e\x00\ud800", "label": each} for each in right])
    metrics = task.score(answers, table)
    examination = Examination(answers, metrics, dict.fromkeys(metrics, (0.0, 1.0)), 0.5)
    text = page("run: <classify>", [("rows", "200")], examination, mistakes(task, answers, table))
    assert "<script>" not in text
    assert "run: &lt;classify&gt;" in text
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'; ' in text
    assert not set(text) & set("\x1b\x00\u202e\ud800")
    assert not re.findall(r'(?:src|href)="(?!#)', text)  # nothing is asked for from elsewhere
    assert {link.split("/")[2] for link in re.findall(r"https?://[^\s\"<]+", text)} <= {
        "www.w3.org"
    }  # names of formats
    assert text.count("<svg") == (2 if many == 2 else 1)
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)
