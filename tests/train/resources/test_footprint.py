"""The peak of a step, counted without a byte of it: against sums by hand and against a measured process."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from clozeworks.objectives.losses.cross_entropy import BUDGET
from clozeworks.optim.optimizers.optimizer import Group
from clozeworks.optim.settings import Adagrad, AdamW, Lamb, LayerRates
from clozeworks.recipes import recipe
from clozeworks.train.resources.cost import measure_cost
from clozeworks.train.resources.footprint import Fused, Meter

MB = 1 << 20


def floats(megabytes: int) -> torch.Tensor:
    return torch.empty(megabytes * MB // 4, device="meta")


def test_only_what_lives_at_once_counts():
    with Meter() as meter:
        a = floats(3) + 1  # 3 for the left side, which dies, and 3 for the sum
        assert meter.peak == 6 * MB
        b = a * 2
        del a
        assert meter.alive == 3 * MB
        c = b.view(-1, 2).t()  # the same storage
        assert meter.alive == 3 * MB
        del b, c
    assert meter.alive == 0
    assert meter.peak == 6 * MB


def test_the_backward_pass_and_its_gradients_count():
    with torch.device("meta"):
        first, second = nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False)
    x = torch.empty(256, 1024, device="meta")
    meter = Meter()
    meter.ignore([*first.parameters(), *second.parameters(), x])
    with meter:
        second(torch.relu(first(x))).sum().backward()
    # Last: both gradients of 4 MB, and that of the first output, 1 MB; scalars besides.
    assert 9 * MB < meter.peak < 9 * MB + 100
    assert meter.alive == 8 * MB


def test_attention_keeps_its_weights_under_dropout_only():
    r = recipe("bert_tiny")
    r.objective.segments.length = 512
    with_weights = measure_cost(r).passes
    r.encoder.stack.block_at(0).mixer.dropout = 0.0
    assert with_weights - measure_cost(r).passes > 2 * 8 * 2 * 512 * 512 * 4  # depth, rows, heads


def test_attention_with_a_learnt_mask_keeps_its_weights():
    """As a processor does: its fused kernel has no gradient for a mask."""
    q = torch.empty(1, 1, 1024, 8, device="meta", requires_grad=True)
    peaks = []
    for learnt in (False, True):
        mask = torch.empty(1, 1, 1024, 1024, device="meta", requires_grad=learnt)
        meter = Meter()
        meter.ignore([q, mask])
        with meter, Fused():
            nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
        peaks.append(meter.peak)
    assert peaks[0] < MB < 8 * MB < peaks[1]


def test_of_a_larger_vocabulary_one_piece_of_logits_is_there_at_a_time():
    r = recipe("bert_tiny")
    r.encoder.vocab = 1000
    small = measure_cost(r)
    r.encoder.vocab = 31_000
    more, table = measure_cost(r).passes - small.passes, 4 * 30_000 * r.encoder.width
    assert table < more < BUDGET + 3 * table < 2 * 4 * round(0.15 * 4096) * 30_000


def test_pieces_of_a_step_cost_less_though_gradients_stay():
    r = recipe("bert_tiny")
    whole = measure_cost(r)
    r.train.micro_tokens = 512
    pieces = measure_cost(r)
    assert pieces.rows == 4
    assert 4 * pieces.parameters < pieces.passes < whole.passes


@pytest.mark.parametrize(
    ("optimizer", "kept", "spare"),
    [(AdamW(), 2, 0), (Lamb(), 2, 1), (Adagrad(), 1, 1), (LayerRates(Adagrad()), 1, 1)],
    ids=lambda value: type(value).__name__,
)
def test_an_optimizer_says_what_it_keeps(optimizer, kept, spare):
    r = recipe("bert_tiny")
    r.train.optimizer = optimizer
    cost = measure_cost(r)
    assert (optimizer.kept, optimizer.spare) == (kept, spare)
    assert cost.fixed == 4 * (2 + kept) * cost.parameters
    assert cost.saving == 4 * (1 + kept) * cost.parameters
    weight = nn.Parameter(torch.ones(3, 5))
    weight.grad = torch.ones_like(weight)
    made = optimizer.build([Group([weight], decays=True)], 0.1)
    made.step()
    assert sum(value.numel() for value in made.state[weight].values() if value.ndim) == kept * weight.numel()


MEASURED = """
import sys
import torch
from clozeworks.core.batch import from_padded
from benchmarks.side import memory_mb
from clozeworks.objectives.losses.cross_entropy import BUDGET
from clozeworks.recipe import build
from clozeworks.optim import parameter_groups as optim
from clozeworks.train.loop import Policy, fit
from tests.train.resources.test_footprint import shaped

torch.set_num_threads(1)
r = shaped(*sys.argv[1:])
rows, length = r.train.batch_tokens // r.longest(), r.longest()

def batches():
    while True:
        batch = from_padded(torch.randint(5, r.encoder.vocab, (rows, length)))
        batch.targets = torch.randperm(rows * length)[: round(0.15 * rows * length)]
        batch.labels = batch.tokens.flatten()[batch.targets]
        batch.example["pair_label"] = torch.zeros(rows, dtype=torch.long)
        yield [batch]

model = build(r)
adam = optim.build_optimizer(model, r.train.optimizer, 1e-3)
for step in fit(model, batches(), adam, lambda _: 1e-3, steps=3, policy=Policy(clip=1.0)):
    pass
print(memory_mb("VmHWM"))
"""


def shaped(vocab: str, length: str, tokens: str, dropout: str):
    r = recipe("bert_mini")
    r.encoder.vocab, r.objective.segments.length, r.train.batch_tokens = int(vocab), int(length), int(tokens)
    r.encoder.stack.block_at(0).mixer.dropout = float(dropout)
    return r


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
@pytest.mark.parametrize(
    "shape",
    [("8192", "128", "4096", "0.1"), ("30522", "128", "4096", "0.1"), ("8192", "512", "4096", "0.1"),
     ("8192", "512", "4096", "0.0"), ("8192", "128", "16384", "0.1")],
    ids="-".join,
)  # fmt: skip
def test_the_estimate_is_near_the_measured_peak(shape):
    done = subprocess.run([sys.executable, "-c", MEASURED, *shape], capture_output=True, text=True, check=True)
    cost, peak = measure_cost(shaped(*shape)), float(done.stdout) * MB
    # Nothing is saved here. What the allocator leaves unused differs from run to run by a tenth and more.
    assert 0.85 * peak < cost.memory - cost.saving < 1.2 * peak
