"""Ways to break a file, each drawn from a seeded generator."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

DEEP = "[" * 50_000 + "]" * 50_000
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 0.5, -0.0, 2**31, 2**63, 2**64, -(2**63), 10**30, 1e308, float("nan"), float("inf"),
    "", "x", "nan", "中" * 20, "\x00", "\x1b[2J", "../../../etc/passwd", "/dev/zero", "9" * 400, [], {}, [[]], [None],
    {"a": {"b": []}}, [1, "x"], {"kind": "Attention"}, {"type": "BPE"},
)  # fmt: skip


def mutate_bytes(draw: random.Random, content: bytes) -> tuple[bytes, str]:
    """Flip, cut, repeat, insert or empty."""
    at = draw.randrange(len(content) + 1)
    some = draw.randbytes(draw.choice((1, 4, 64)))
    ways = {
        "flipped": lambda: content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)] if at < len(content) else [])
        + content[at + 1 :],
        "truncated": lambda: content[:at],
        "without a piece": lambda: content[:at] + content[at + draw.randrange(1, 200) :],
        "with bytes put in": lambda: content[:at] + some + content[at:],
        "with a piece twice": lambda: content[:at] + content[max(0, at - 100) :],
        "empty": lambda: b"",
        "noise": lambda: draw.randbytes(300),
        "zeros": lambda: bytes(5000),
        "with a byte order mark": lambda: b"\xff\xfe" + content,
    }  # fmt: skip
    name = draw.choice(list(ways))
    return ways[name](), name


def mutate_json(draw: random.Random, content: bytes) -> tuple[bytes, str]:
    """A value replaced, left out or nested too deeply, a key doubled; or its bytes broken."""
    if draw.random() < 0.25:
        return mutate_bytes(draw, content)
    tree = json.loads(content)
    places = list(_places(tree, ()))
    if not places or draw.random() < 0.05:
        top = draw.choice([*map(json.dumps, VALUES), DEEP])
        return top.encode("utf-8", "surrogatepass"), "another value at its top"
    path = draw.choice(places)
    above = tree
    for key in path[:-1]:
        above = above[key]
    name = ".".join(map(str, path))
    way = draw.choice(("value", "value", "value", "gone", "deep", "twice"))
    if way == "gone":
        del above[path[-1]]
        return json.dumps(tree).encode(), f"without {name}"
    value = draw.choice(VALUES)
    above[path[-1]] = "<HERE>" if way != "value" else value
    written = json.dumps(tree)
    if way == "deep":
        written = written.replace('"<HERE>"', DEEP)
    elif way == "twice":
        key = json.dumps(str(path[-1]))
        put = f"{json.dumps(value)}, {key}: {json.dumps(draw.choice(VALUES))}" if isinstance(above, dict) else "1, 2"
        written = written.replace('"<HERE>"', put)
    return written.encode(), f"{name} = {value!r:.60} ({way})"


def _places(tree: Any, above: tuple[Any, ...]) -> Any:
    children = tree.items() if isinstance(tree, dict) else enumerate(tree[:50]) if isinstance(tree, list) else ()
    for key, value in children:
        yield (*above, key)
        yield from _places(value, (*above, key))


def mutate_safetensors(draw: random.Random, content: bytes) -> tuple[bytes, str]:
    """The length of the header, the header, or the numbers."""
    (length,) = struct.unpack("<Q", content[:8])
    header, numbers = content[8 : 8 + length], content[8 + length :]
    way = draw.choice(("length", "header", "header", "numbers", "bytes"))
    if way == "length":
        wrong = draw.choice((0, 1, length - 1, length + 1, len(content), 2**31, 2**63, 2**64 - 1))
        return struct.pack("<Q", wrong) + content[8:], f"a header of {wrong} bytes"
    if way == "header":
        header, what = mutate_json(draw, header)
        return struct.pack("<Q", len(header)) + header + numbers, f"header: {what}"
    if way == "numbers":
        at = draw.randrange(0, len(numbers) - 4, 4)
        wrong = struct.pack("<f", draw.choice((float("nan"), float("inf"), 3e38, -3e38)))
        return content[: 8 + length] + numbers[:at] + wrong + numbers[at + 4 :], "a number that is not finite or huge"
    return mutate_bytes(draw, content)


def mutate_lines(draw: random.Random, content: bytes) -> tuple[bytes, str]:
    """Lines broken as tables and texts are: quotes, separators, encodings, NULs, surrogates, length."""
    lines = content.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    line = lines[at].decode("utf-8", "replace")
    ways: dict[str, Callable[[], bytes]] = {
        "a quote": lambda: line.replace(line[:1], '"', 1).encode(),
        "no line end": lambda: line.strip().encode(),
        "separators": lambda: draw.choice((",", "\t", " ")).join(line).encode(),
        "NULs": lambda: b"\0" * draw.choice((1, 40)) + line.encode(),
        "a surrogate": lambda: ("\ud800" + line).encode("utf-8", "surrogatepass"),
        "a long line": lambda: (line.strip() * 20_000 + "\n").encode(),
        "UTF-16": lambda: line.encode("utf-16"),
        "GB18030": lambda: ("中文" + line).encode("gb18030"),
        "latin-1": lambda: ("é" + line).encode("latin-1"),
        "carriage returns": lambda: line.replace(" ", "\r").encode(),
        "escapes": lambda: ("\x1b[2J\u202e" + line).encode(),
        "a JSON value": lambda: (json.dumps(draw.choice(VALUES)) + "\n").encode(),
        "deep JSON": lambda: ('{"text": ' + DEEP + "}\n").encode(),
        "a blank": lambda: b"  \n",
    }
    if draw.random() < 0.3:
        return mutate_bytes(draw, content)
    name = draw.choice(list(ways))
    lines[at] = ways[name]()
    return b"".join(lines), f"line {at + 1}: {name}"


def mutate_records(draw: random.Random, content: bytes) -> tuple[bytes, str]:
    """One record of JSON lines with a value that nobody meant."""
    if draw.random() < 0.4:
        return mutate_lines(draw, content)
    lines = content.splitlines()
    at = draw.randrange(len(lines))
    lines[at], what = mutate_json(draw, lines[at])
    return b"\n".join(lines) + b"\n", f"line {at + 1}: {what}"
