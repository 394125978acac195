"""The arithmetic of a training step, and how fast this machine does the same arithmetic when it does nothing else."""

import statistics
import time

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.workload import Workload
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention

BACKWARD = 2  # products with the weights and with the inputs, for each one forward


def flops_a_token(work: Workload) -> dict[str, float]:
    """Floating-point operations of a step for each real token, forward and backward.

    `useful` is what the model's definition asks for: every token through every block, attention within its own example,
    the head where something is predicted. `computed` leaves out what we need not do: the last block beyond the mixing,
    where nothing is predicted.
    """
    encoder, lengths = work.recipe.encoder, work.examples().lengths.astype(np.float64)
    width, depth = encoder.width, encoder.stack.depth
    block = encoder.stack.block_at(0)
    assert isinstance(block.mixer, Attention)
    assert isinstance(block.ffn, FeedForward)
    projections, inner = 2 * width * width, 2 * 2 * width * block.ffn.inner
    pairs = 2 * 2 * width * float((lengths**2).sum() / lengths.sum())  # q k^T and the weighted sum of v
    predicted = float(getattr(work.recipe.objective.corruption, "rate", 0.15))
    head = predicted * 2 * (width * width + width * encoder.vocab)
    useful = depth * (4 * projections + inner + pairs) + head
    saved = (1 - predicted) * (projections + inner)
    return {"useful": (1 + BACKWARD) * useful, "computed": (1 + BACKWARD) * (useful - saved)}


class Rates:
    """The rate of `F.linear` at the model's own shapes: what a step would reach if it were products alone."""

    def __init__(self, work: Workload):
        encoder, tokens = work.recipe.encoder, work.recipe.train.batch_tokens
        block = encoder.stack.block_at(0)
        assert isinstance(block.ffn, FeedForward)
        width, inner, depth = encoder.width, block.ffn.inner, encoder.stack.depth
        predicted = max(1, round(0.15 * tokens))
        self.shapes = [  # rows, in, out, how often in a forward pass
            (tokens, width, width, 4 * depth),
            (tokens, width, inner, depth),
            (tokens, inner, width, depth),
            (predicted, width, encoder.vocab, 1),
        ]

    def measure(self, times: int) -> dict[str, float]:
        """Operations a second of all of them together, each taking the median of its times."""
        work = seconds = cpu_seconds = 0.0
        for rows, inside, outside, count in self.shapes:
            x, weight, bias = torch.randn(rows, inside), torch.randn(outside, inside), torch.randn(outside)
            wall, cpu = [], []
            for _ in range(times + 1):
                begin, cpu_begin = time.perf_counter(), time.process_time()
                F.linear(x, weight, bias)
                wall.append(time.perf_counter() - begin)
                cpu.append(time.process_time() - cpu_begin)
            work += count * 2 * rows * inside * outside
            seconds += count * statistics.median(wall[1:])
            cpu_seconds += count * statistics.median(cpu[1:])
        return {"flops_per_second": work / seconds, "flops_per_cpu_second": work / cpu_seconds}
