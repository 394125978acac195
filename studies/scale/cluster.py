"""What is assumed of the machines and of the text: every figure that `scale` cannot count, each one a parameter."""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from clozeworks.core.errors import InputError, suggest


def _is(value: Any, about: str) -> Any:
    """A default, with what the page says of it."""
    return field(default=value, metadata={"about": about})


@dataclass(frozen=True, slots=True)
class Gpu:
    memory: float = _is(80e9, "bytes of a GPU")
    reserve: float = _is(0.1, "share of the memory for the driver, workspaces and gaps")
    peak: float = _is(989e12, "dense bf16 FLOPs a second")
    achieved: float = _is(0.4, "share of the peak that a whole forward and backward pass reaches")
    bandwidth: float = _is(2.7e12, "bytes a second of its own memory, which bounds the optimizer's update")


@dataclass(frozen=True, slots=True)
class Node:
    gpus: int = _is(8, "GPUs of a node")
    inside: float = _is(450e9, "bytes a second of each GPU to the others of its node, one way")
    between: float = _is(50e9, "bytes a second of each GPU to other nodes, one way")
    reached: float = _is(0.8, "share of both that a collective reaches")
    latency: float = _is(5e-6, "seconds of each hop of a ring")
    bucket: float = _is(25e6, "bytes of gradients sent together")


@dataclass(frozen=True, slots=True)
class Store:
    disk: float = _is(3e9, "bytes a second of a node's own disk")
    network: float = _is(1e9, "bytes a second of one process to shared storage")
    total: float = _is(20e9, "bytes a second of all processes together to shared storage")
    hash: float = _is(1.5e9, "bytes a second of SHA-256 on one core")
    page: int = _is(4096, "bytes that a mapped file is read in")


@dataclass(frozen=True, slots=True)
class Failure:
    rate: float = _is(2e-5, "failures a GPU hour; Llama 3 had 419 unexpected ones in 54 days of 16,384 GPUs")
    notice: float = _is(60.0, "seconds until the others know")
    relaunch: float = _is(120.0, "seconds until every process is there again")


@dataclass(frozen=True, slots=True)
class Text:
    """Measured with `prepare` and the published 30,522 WordPieces, on 14.1 MB of encyclopedia and books."""

    size: float = _is(160e9, "bytes of UTF-8 text")
    token: float = _is(4.53, "bytes of text a token")
    sentence: float = _is(26.7, "tokens a sentence")
    document: float = _is(2500.0, "tokens a document")
    shard: int = _is(50_000_000, "tokens a shard: the default of `prepare`")
    plan: float = _is(65.0, "bytes a sentence that planning an epoch of segment pairs takes at its peak")


@dataclass(frozen=True, slots=True)
class Work:
    micro: int = _is(16, "rows at once, at most")
    recompute: int = _is(0, "1: only the input of each layer is kept, the rest is computed again")


@dataclass(frozen=True, slots=True)
class Cluster:
    gpu: Gpu = field(default_factory=Gpu)
    node: Node = field(default_factory=Node)
    store: Store = field(default_factory=Store)
    failure: Failure = field(default_factory=Failure)
    text: Text = field(default_factory=Text)
    work: Work = field(default_factory=Work)

    def assumptions(self) -> dict[str, float]:
        """Every parameter by its path."""
        return {
            f"{part.name}.{each.name}": getattr(getattr(self, part.name), each.name)
            for part in dataclasses.fields(self)
            for each in dataclasses.fields(getattr(self, part.name))
        }

    def about(self, path: str) -> str:
        part, _, name = path.partition(".")
        known = {each.name: each.metadata["about"] for each in dataclasses.fields(getattr(self, part))}
        return known[name]


LEAST, MOST = 1e-12, 1e24  # of any assumption: beyond them a time is no finite number
_SHARES = {"gpu.achieved", "node.reached"}  # above 0, at most 1
_NOUGHTS = {"node.latency", "failure.notice", "failure.relaunch", "failure.rate", "text.plan"}  # 0 is possible


def assume(settings: Iterable[str], cluster: Cluster | None = None) -> Cluster:
    """Change assumptions by `path=value`, such as `gpu.memory=80e9`."""
    cluster = Cluster() if cluster is None else cluster
    known = cluster.assumptions()
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise InputError("--set", setting, "PATH=VALUE is needed", "for example --set gpu.memory=40e9")
        if path not in known:
            raise InputError("--set", path, "there is no such assumption", suggest(path, known))
        part, _, name = path.partition(".")
        value = _number(path, text, whole=isinstance(known[path], int))
        cluster = dataclasses.replace(
            cluster, **{part: dataclasses.replace(getattr(cluster, part), **{name: value})}
        )  # fmt: skip
    return cluster


def _number(path: str, text: str, whole: bool) -> float:
    try:
        value = float(text.replace("_", "").replace(",", ""))
    except ValueError:
        value = math.nan
    if not (value == 0 or LEAST <= abs(value) <= MOST):
        raise InputError(
            path, text or "nothing", f"a number from {LEAST:g} to {MOST:g} is needed", "write it as 80e9 or 0.4"
        )
    if whole and value != int(value):
        raise InputError(path, text, "a whole number is needed", "leave out the fraction")
    if path == "work.recompute":
        possible, needed = value in (0, 1), "0 or 1 is needed"
    elif path == "gpu.reserve":
        possible, needed = 0 <= value < 1, "a share from 0 up to 1 is needed"
    elif path in _SHARES:
        possible, needed = 0 < value <= 1, "a share above 0, at most 1, is needed"
    elif path in _NOUGHTS:
        possible, needed = value >= 0, "0 or more is needed"
    else:
        possible, needed = value > 0, "more than 0 is needed"
    if not possible:
        raise InputError(path, text, needed, "change it")
    return int(value) if whole else value
