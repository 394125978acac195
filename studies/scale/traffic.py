"""What ranks send, how long a step takes, what storage reads and writes, what failures cost: formulas on `Cluster`."""

import math
from dataclasses import dataclass

from clozeworks.core.errors import InputError
from studies.scale.cluster import Cluster, Failure, Node, Store, Text
from studies.scale.estimate import LENGTH, Estimate

HOUR, DAY = 3600.0, 86400.0


def levels(ranks: int, node: Node) -> tuple[int, int]:
    """GPUs of a node that take part, and nodes; nodes are full or there is one."""
    if ranks < 1 or (ranks > node.gpus and ranks % node.gpus):
        raise InputError(
            "--gpus", ranks, f"a multiple of {node.gpus}, or fewer, is needed", "fill the nodes or set node.gpus"
        )
    inside = min(ranks, node.gpus)
    return inside, ranks // inside


def sent(size: float, ranks: int) -> float:
    """Bytes that each rank sends to gather or to reduce and scatter `size` bytes; an all-reduce is both."""
    return (ranks - 1) / ranks * size


def seconds(size: float, ranks: int, node: Node, calls: int = 1) -> float:
    """Of one gather or reduce-scatter in two rings, in the node and between GPUs of one number in all nodes.

    (g-1)/g of the bytes travel inside and (m-1)/m of one g-th between, together (n-1)/n; every call pays its hops.
    """
    inside, nodes = levels(ranks, node)
    near = sent(size, inside) / node.inside
    far = sent(size / inside, nodes) / node.between
    return (near + far) / node.reached + calls * (inside - 1 + nodes - 1) * node.latency


@dataclass(frozen=True, slots=True)
class Step:
    """One update of all ranks."""

    rows: int  # of the busiest rank
    pieces: int  # micro-batches of it
    busy: float  # share of the ranks' row places that hold a row
    sent: float  # bytes a rank
    compute: float  # seconds, the optimizer's update included
    talk: float  # seconds of communication
    exposed: float  # of them those that no arithmetic hides
    tokens: int

    @property
    def apart(self) -> float:
        """Seconds if nothing overlaps."""
        return self.compute + self.talk

    @property
    def together(self) -> float:
        return self.compute + self.exposed

    @property
    def tokens_a_second(self) -> float:
        return self.tokens / self.together


def step(model: Estimate, cluster: Cluster, ranks: int, rows: int, sharded: bool) -> Step:
    """A step of `rows` rows.

    Whole on each rank: one all-reduce of fp32 gradients a step, in buckets, hidden behind the last backward pass but
    for the last bucket. Sharded: for every micro-batch the bf16 weights are gathered in the forward pass, those of the
    layers again in the backward pass, and fp32 gradients are scattered; the first unit waits for its weights.
    """
    gpu, node, work = cluster.gpu, cluster.node, cluster.work
    mine = -(-rows // ranks)
    at_once = min(mine, work.micro)
    pieces = -(-mine // at_once)
    rate = gpu.peak * gpu.achieved
    last = mine - (pieces - 1) * at_once

    def forward_of(rows: int) -> float:
        return model.forward * rows * LENGTH / rate

    def backward_of(rows: int) -> float:
        again = model.layers * rows * LENGTH / rate if work.recompute else 0.0
        return 2 * forward_of(rows) + again

    count = model.parameters
    # weights, gradient and two moments are read, all but the gradient written
    update = 28 * (-(-count // ranks) if sharded else count) / gpu.bandwidth
    each = [at_once] * (pieces - 1) + [last]
    compute = sum(forward_of(rows) + backward_of(rows) for rows in each) + update
    if sharded:
        units = model.depth + 1
        ahead = seconds(2 * count, ranks, node, units)
        back = seconds(2 * model.blocks, ranks, node, model.depth) + seconds(4 * count, ranks, node, units)
        first = seconds(2 * model.tables, ranks, node)
        talk = pieces * (ahead + back)
        exposed = 0.0
        for rows_now in each:
            exposed += max(first, ahead - forward_of(rows_now)) + max(0.0, back - backward_of(rows_now))
        traffic = pieces * sent(2 * count + 2 * model.blocks + 4 * count, ranks)
    else:
        buckets = math.ceil(4 * count / node.bucket)
        talk = 2 * seconds(4 * count, ranks, node, buckets)
        tail = 2 * seconds(min(node.bucket, 4 * count), ranks, node)
        exposed = max(tail, talk - backward_of(last))
        traffic = 2 * sent(4 * count, ranks)
    return Step(mine, pieces, rows / (mine * ranks), traffic, compute, talk, exposed, rows * LENGTH)


@dataclass(frozen=True, slots=True)
class Shards:
    """Text as `prepare` writes it."""

    tokens: int
    files: int
    file: int  # bytes of a full one
    size: int  # bytes of all
    borders: int  # bytes of host memory that every process holds for sentence and document borders
    plan: int  # bytes of host memory that planning an epoch takes for a while, in every process


def shard_bytes(tokens: int, sentences: int, documents: int, vocab: int) -> int:
    """Of one shard without its header: ids, word starts, borders, counts."""
    wide = 2 if vocab < 1 << 16 else 4
    return tokens * (wide + 1) + 8 * (sentences + 1) + 8 * (documents + 1) + 8 * vocab


def shards(text: Text, vocab: int) -> Shards:
    tokens = round(text.size / text.token)
    files = -(-tokens // text.shard)
    sentences, documents = round(tokens / text.sentence), round(tokens / text.document)
    full = min(text.shard, tokens)
    one = shard_bytes(full, round(full / text.sentence), round(full / text.document), vocab)
    size = shard_bytes(tokens, sentences, documents, vocab) + (files - 1) * 8 * (vocab + 2)
    return Shards(tokens, files, one, size, 8 * (sentences + documents + 2), round(text.plan * sentences))


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes a second that training asks of storage."""

    useful: float
    node: float  # of one node, in whole pages
    disk: float  # share of what a node's own disk gives
    copy: float  # seconds until every node has all shards on that disk


def reading(step: Step, cluster: Cluster, ranks: int, vocab: int, size: int) -> Reading:
    """A row is one run of tokens at a random place: its ids and word starts touch 1 + (bytes - 1) / page pages each.

    Rows of several short examples touch more; the kernel reads ahead unless advised that access is random. `size` bytes
    of shards are copied first, by one process a GPU.
    """
    wide = 2 if vocab < 1 << 16 else 4
    pages = sum(1 + (LENGTH * width - 1) / cluster.store.page for width in (wide, 1))
    rows = step.tokens_a_second / LENGTH
    inside, nodes = levels(ranks, cluster.node)
    node, store = rows * pages * cluster.store.page / nodes, cluster.store
    copy = size / min(store.disk, store.network * inside, store.total / nodes)
    return Reading(rows * LENGTH * (wide + 1), node, node / store.disk, copy)


@dataclass(frozen=True, slots=True)
class Saving:
    """Checkpoints and failures of one run; times in seconds."""

    size: int
    pause: float  # a save: write, then hash
    restart: float
    between: float  # mean time between failures
    young: float  # best interval
    daly: float  # the same, to a higher order
    wasted: float  # share of the time that saves, lost work and restarts take at that interval
    failures: float  # expected in the run
    lost: float  # of them all, work that is done twice


def saving(model: Estimate, cluster: Cluster, ranks: int, run: float, sharded: bool) -> Saving:
    """Whole on each rank: one process writes, all read all of it. Sharded: every rank its part, both times.

    A failure of one GPU stops all. Young (1974): sqrt(2 pause between); Daly (2006) adds two terms of the series. Work
    since the last save is lost, half an interval in the mean.
    """
    size = 4 * (1 + model.moments) * model.parameters + 4 * model.tensors
    mine = size / ranks if sharded else size
    store, failure = cluster.store, cluster.failure
    writers, readers = (ranks if sharded else 1), ranks
    pause = mine / store.hash + _moved(mine, writers, store)
    restart = failure.notice + failure.relaunch + _moved(mine, readers, store) + mine / store.hash
    mean = _between(failure, ranks)
    young, daly = young_daly(pause, mean)
    if math.isinf(mean):
        return Saving(size, pause, restart, mean, young, daly, 0.0, 0.0, 0.0)
    wasted = pause / daly + (daly / 2 + restart) / mean
    total = run * (1 + wasted)
    return Saving(size, pause, restart, mean, young, daly, wasted, total / mean, total / mean * daly / 2)


def young_daly(pause: float, between: float) -> tuple[float, float]:
    if math.isinf(between):
        return between, between
    young = math.sqrt(2 * pause * between)
    ratio = pause / (2 * between)
    daly = between if ratio >= 1 else young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - pause
    return young, daly


def _between(failure: Failure, ranks: int) -> float:
    return HOUR / (failure.rate * ranks) if failure.rate else math.inf


def _moved(mine: float, processes: int, store: Store) -> float:
    """Seconds until so many processes have each moved their bytes to or from shared storage."""
    return mine / min(store.network, store.total / processes)
