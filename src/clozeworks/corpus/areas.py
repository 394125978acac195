"""A labelled set that is already on the machine: texts of the embedded corpus with what they are about.

English: the docstrings of the library, each with its area. Chinese: reviews with their verdict.
"""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from clozeworks.core import counter_rng
from clozeworks.corpus import chinese, english

SHORTEST, LONGEST = 60, 1200  # characters of a text
ROWS = 6000  # at most
AREAS = {
    "data": "collections datetime calendar decimal fractions statistics random heapq bisect enum dataclasses typing "
    "functools itertools operator copy numbers array weakref abc types graphlib contextlib zoneinfo",
    "files": "os pathlib posixpath ntpath shutil tempfile zipfile tarfile gzip bz2 lzma glob fnmatch io _pyio csv "
    "fileinput filecmp pickle shelve dbm sqlite3 plistlib configparser mailbox json zipimport",
    "markup": "email html xml string re sre_parse textwrap difflib gettext locale codecs encodings _markupbase pprint",
    "network": "asyncio http urllib socket socketserver ftplib smtplib smtpd imaplib poplib nntplib telnetlib ssl "
    "xmlrpc wsgiref selectors webbrowser cgi cgitb asyncore asynchat ipaddress netrc uuid",
    "processes": "multiprocessing concurrent threading subprocess queue sched signal logging _threading_local",
    "tools": "unittest doctest pdb bdb trace profile cProfile pstats timeit lib2to3 distutils ensurepip venv pydoc ast "
    "dis inspect tokenize compileall zipapp importlib pkgutil argparse optparse getopt cmd code codeop symtable",
    "windows": "tkinter turtle idlelib curses turtledemo",
}


def rows(lang: str = "en") -> list[dict[str, str]]:
    """text and label of each, every text once, in an order without a pattern that is always the same."""
    texts = list(_english() if lang == "en" else _reviews())
    order = counter_rng.permutation(len(texts), counter_rng.fold(0, "areas"))[:ROWS]
    return [{"text": texts[at][0], "label": texts[at][1]} for at in order.tolist()]


def _english() -> Iterator[tuple[str, str]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    seen: set[str] = set()
    for area, names in AREAS.items():
        for name in names.split():
            package = root / name
            files = sorted(package.rglob("*.py")) if package.is_dir() else [root / f"{name}.py"]
            for file in files:
                for text in _texts(file, root):
                    if text not in seen:
                        seen.add(text)
                        yield text, area


def _texts(file: Path, root: Path) -> Iterator[str]:
    """The docstrings of a source that are prose, each on one line."""
    if not file.is_file() or english.SKIPPED.intersection(file.relative_to(root).parts):
        return
    tree = english.parse_source(file)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            text = english.prose(ast.get_docstring(node) or "").replace("\n", " ")
            if len(text) >= SHORTEST:
                yield text[:LONGEST]


def _reviews() -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for document in chinese.reviews():
        text = document.text[:LONGEST]
        if text not in seen and len(text) >= SHORTEST // 6:
            seen.add(text)
            yield text, document.label or ""
