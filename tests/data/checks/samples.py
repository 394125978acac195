"""Texts to look at, and how a report is asked what it says."""

import json
import random
from pathlib import Path

from clozeworks.data.checks.check import Report, check
from clozeworks.data.checks.finding import Aim
from clozeworks.data.text.reader import Reading

WORDS = [
    "the",
    "small",
    "river",
    "of",
    "stones",
    "runs",
    "near",
    "every",
    "old",
    "house",
    "while",
    "people",
    "sleep",
    "or",
    "talk",
    "about",
    "winter",
]


HAN = "中国人民在这个大地上生活工作学习他们喜欢书和音乐天气很好我今年去北京看朋友"


def prose(documents: int = 30, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    sentence = lambda: " ".join(draw.choices(WORDS, k=draw.randint(6, 12))).capitalize() + "."  # noqa: E731
    return [" ".join(sentence() for _ in range(draw.randint(14, 20))) for _ in range(documents)]


def chinese(documents: int = 30, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    sentence = lambda: "".join(draw.choices(HAN, k=draw.randint(8, 20))) + "。"  # noqa: E731
    return ["".join(sentence() for _ in range(40)) for _ in range(documents)]


def look(
    tmp_path: Path, content: list[str] | str | bytes, name: str = "a.txt", aim: Aim | None = None, **reading
) -> Report:
    if isinstance(content, list):
        content = "\n\n".join(content) + "\n"
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return check([file], Reading(**reading), aim=aim or Aim(vocab=256))


def rows(*several: dict) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in several)


def reports(report: Report, words: str, kind: str = "note") -> bool:
    """Is there a finding of this kind with these words in it or in what to do?"""
    return any(words in f"{finding.text}; {finding.todo}" and finding.kind == kind for finding in report.findings)
