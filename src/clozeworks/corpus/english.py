"""English prose from the Python installation: the language reference of `pydoc`, and the docstrings of the library.

Sources are parsed, never imported. Code, tables and mark-up are left out, so that what remains reads as prose.
"""

import ast
import inspect
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

from clozeworks.data.text.documents import Document

SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "lib-dynload", "pydoc_data"}
SHORTEST = 200  # characters of prose that make a document

_MARKUP = [  # (what, by what), in this order
    (re.compile(r":[a-z]+(?::[a-z]+)?:`~?([^`<]+)(?: <[^`>]+>)?`"), r"\1"),  # :class:`dict`, :ref:`text <target>`
    (re.compile(r"`([^`<]+) <[^`>]+>`_+"), r"\1"),  # `text <url>`_
    (re.compile(r"``([^`]+)``"), r"\1"),
    (re.compile(r"`([^`']+)[`']_*"), r"\1"),
    (re.compile(r"\*\*?(\w[^*\n]*)\*\*?"), r"\1"),
    (re.compile(r"(?<!\w)_(\w[^_\n]*)_(?!\w)"), r"\1"),
    (re.compile(r"\s*\[\d+\]_?"), ""),  # footnotes
    (re.compile(r"::$"), ":"),
    (re.compile(r"^(?:[-*o•]|\(?\d+[.)]|\(?[a-z]\))\s+"), ""),  # list items become sentences
]
_BULLET = re.compile(r"(?:[-*o•]|\(?\d+[.)])\s+\S")
_UNDERLINE = re.compile(r"[=\-~*^#+\"'_.\s]{3,}")
_CODE = re.compile(
    r"^(?:>>>|\.\.\. |\.\. |\$ |[-+|].*[-+|]$|@\w+|(?:def|class|import|from \S+ import)\b)"  # how a line begins
    r"|[{}\\]|->|::=|==|\w\(\w*\)\s*="  # or what it holds
)
_DEFINITION = re.compile(r"(?:def|class) \w+\s*[(:]")
_FIELD = re.compile(r"^:(?:param|type|return|rtype|raise|raises)[^:]*:\s*|^@(?:param|return)\b")


def documents() -> Iterator[Document]:
    """The topics of the manual, then one document for each module or large class of the library."""
    yield from _topics()
    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        if not SKIPPED.intersection(path.parts) and not path.name.startswith(("test_", "_sysconfigdata")):
            yield from _module(file, path)


def _topics() -> Iterator[Document]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions package it apart
        return
    for name in sorted(topics):
        text = prose(topics[name])
        if len(text) >= SHORTEST:
            yield Document(text, source=f"pydoc_data/topics#{name}", label="topics")


def parse_source(file: Path) -> ast.Module | None:
    """The syntax tree of a Python file; None where it cannot be read."""
    try:
        with tokenize.open(file) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old sources hold escapes that Python warns about
            return ast.parse(stream.read())
    except (SyntaxError, ValueError, OSError):
        return None


def _module(file: Path, path: Path) -> Iterator[Document]:
    label = path.parts[0].removesuffix(".py")
    tree = parse_source(file)
    if tree is None:
        return
    gathered: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            text = "\n".join(_docstrings(node))
            if len(text) >= 5 * SHORTEST:
                yield Document(text, source=f"{path.as_posix()}#{node.name}", label=label)
            elif text:
                gathered.append(text)
        else:
            gathered += _docstrings(node)
    text = "\n".join([prose(ast.get_docstring(tree) or ""), *gathered]).strip()
    if len(text) >= SHORTEST:
        yield Document(text, source=path.as_posix(), label=label)


def _docstrings(node: ast.stmt) -> list[str]:
    """The prose of every docstring in a statement, in the order of the source."""
    texts = []
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = prose(ast.get_docstring(node) or "")
        if text:
            texts.append(text)
    for name in ("body", "orelse", "finalbody"):  # statements only: expressions, most of a tree, hold no docstring
        for child in getattr(node, name, ()):
            texts += _docstrings(child)
    return texts


def prose(text: str) -> str:
    """The paragraphs of a docstring or manual page that are sentences, each on one line, without mark-up."""
    paragraphs = []
    literal, example = -1, False  # the indentation before a literal block; whether only a colon announced it
    for block in re.split(r"\n[ \t]*\n", inspect.cleandoc(text).expandtabs()):
        lines = block.split("\n")
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        if literal >= 0 and indent > literal and not (example and _is_prose_block(block)):
            continue
        literal = indent if block.rstrip().endswith(":") else -1
        example = literal >= 0 and not block.rstrip().endswith("::")
        for item in _items(lines):
            plain = _plain(item)
            if plain:
                paragraphs.append(plain)
    return "\n".join(paragraphs)


def _is_prose_block(block: str) -> bool:
    """What follows a single colon may be a list or a quotation rather than code: it then ends as sentences do."""
    return bool(_BULLET.match(block.strip())) or (block.rstrip()[-1:] in ".;" and not _CODE.search(block))


def _items(lines: list[str]) -> Iterator[list[str]]:
    """The list items of a block, or the block itself."""
    item: list[str] = []
    for line in lines:
        bare = line.strip()
        if item and (_BULLET.match(bare) or _FIELD.match(bare)):
            yield item
            item = []
        item.append(line)
    yield item


def _plain(lines: list[str]) -> str:
    """One paragraph as one line, or nothing if it is code, a table or a heading."""
    indents = {len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()}
    kept = [line.strip() for line in lines if line.strip() and not _UNDERLINE.fullmatch(line.strip())]
    if any(_DEFINITION.match(line) for line in kept):
        return ""
    if not kept or sum(bool(_CODE.search(line)) for line in kept) * 3 > len(kept) or len(indents) > 3:
        return ""
    if sum("   " in line for line in kept) * 2 > len(kept):  # columns
        return ""
    text = _FIELD.sub("", " ".join(line for line in kept if not line.startswith((">>>", "... ", ".. "))))
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\s+", " ", text).strip()
    words = re.findall(r"(?<![\w.(])[A-Za-z][a-z']*(?![\w(=.]\w?)", text)
    if len(words) < 4 or len(" ".join(words)) < 0.55 * len(text):
        return ""
    return text
