"""Attention that begins by looking at neighbours.

A masked position knows nothing of its word, so that nothing but frequencies can be learned until attention has found
out where to look, which takes a small model hundreds of steps. What it finds first are neighbours. These can be given.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from clozeworks.core.bounds import Count, Positive, Share
from clozeworks.core.errors import RecipeError
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.bias.relative import Relative, RelativeLayer
from clozeworks.nn.block import BlockLayer
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.mixer import Mixer
from clozeworks.nn.mixers.attention import Attention, AttentionLayer
from clozeworks.nn.mixers.global_window import GlobalWindow, GlobalWindowLayer
from clozeworks.nn.positions import LearnedPositions, LearnedPositionsLayer, Rotary
from clozeworks.objectives.objective import Objective
from clozeworks.starts.initializer import Fresh, Initializer

GOLDEN = (math.sqrt(5) - 1) / 2
SLOW = 1.6  # times the peak where waves cannot tell a neighbour from the next
REACH = 16.0  # positions: waves that take longer for a radian do not tell neighbours apart


@dataclass(slots=True)
class NeighbourInit(Initializer):
    """Each head of the first `layers` begins with a preference for one neighbour: -1, +1, -2, +2 and so on, or -1, -2,
    -3 where later tokens are hidden.

    score_ij = (what was drawn) `keep` + `peak` sum_f a_f cos(w_f (j - i - offset)),  sum_f a_f = 1

    The waves w_f are those that positions have. Learned positions begin as such waves, of frequencies that never repeat
    (w_f = pi frac(f golden)), in a random plane U of the width and as long as the vectors of words; then W_q gets
    g R(offset) U^T and W_k gets g U^T. Rotary positions have waves of their own, and the biases of q and k say at which
    offset they agree; relative ones (Dai et al. 2019) say it by v and W_r. It is initialization alone: the class of the
    model and what it can learn stay as they are. `peak` None is 1.5 + the log of the examples' length for learned
    positions, so that the neighbour outweighs all others at any length, and 1.6 times that where waves are slow.
    `keep` is what remains of the drawn W_q and W_k: words say nothing yet.

    No shape changes. O(width^2) once.
    """

    option: ClassVar[str] = "neighbours"
    layers: Count = 1
    peak: Positive | None = None
    keep: Share = 0.3

    def check_model(self, where: str, model: Architecture, objective: Objective) -> None:
        """Raise `RecipeError` if a layer has no q and k, or nothing that tells them where a token stands."""
        for layer in range(min(self.layers, model.stack.depth)):
            reason = _reason(model.stack.block_at(layer).mixer, model)
            if reason is not None:
                needed = f"layer {layer} {reason}"
                raise RecipeError(where, "NeighbourInit", needed, "leave it out, or use Attention with such positions")

    def begin(self, fresh: Fresh) -> list[str]:
        """Shrink what was drawn of W_q and W_k in the first layers, and add the preferences by the waves they have."""
        generator = torch.Generator().manual_seed(fresh.seed ^ 0x6E65696768)
        corruption = fresh.objective.corruption
        one_way = corruption is not None and corruption.kind == "causal"
        peak = self.peak or 1.5 + math.log(fresh.objective.segments.length)
        stack, embed = fresh.model.encoder.stack, fresh.model.encoder.embed
        plane = None
        with torch.no_grad():
            for block in list(stack.blocks)[: self.layers]:
                mixer = cast(BlockLayer, block).mixer
                heads = cast(int, mixer.heads)
                offsets = torch.tensor([_offset(head, one_way) for head in range(heads)])
                if isinstance(mixer, AttentionLayer) and mixer.rotary is not None:
                    _shrink(mixer, self.keep)
                    _agree(mixer, mixer.rotary, offsets, self.peak or SLOW * peak)
                elif isinstance(mixer, AttentionLayer) and isinstance(mixer.bias, RelativeLayer):
                    _shrink(mixer, self.keep)
                    _prefer(mixer.bias, offsets, self.peak or SLOW * peak)
                else:
                    assert isinstance(mixer, AttentionLayer | GlobalWindowLayer)
                    _shrink(mixer, self.keep)
                    if plane is None:
                        plane = _make_waves(embed, _head_width(mixer), fresh.deviation, generator)
                    _look(mixer, plane, offsets, peak, embed)
        return []


def _offset(head: int, one_way: bool) -> int:
    """-1, +1, -2, +2 ... or -1, -2, -3 ..."""
    return -1 - head if one_way else (head // 2 + 1) * (1 if head % 2 else -1)


def _reason(mixer: Mixer, model: Architecture) -> str | None:
    """Why a mixer cannot begin so, or None."""
    if not isinstance(mixer, Attention | GlobalWindow):
        return f"is {type(mixer).__name__}, which has no queries and keys of its own"
    if isinstance(mixer, Attention) and mixer.rotary is not None:
        return None if mixer.affine else "has affine=false, and the biases of q and k are what begins"
    if isinstance(mixer, Attention) and mixer.bias is not None:
        return (
            None if isinstance(mixer.bias, Relative) else f"has {type(mixer.bias).__name__}, which is not made of waves"
        )
    if not isinstance(model.embed.positions, LearnedPositions):
        return "has neither learned, rotary nor relative positions"
    return None


def _head_width(mixer: AttentionLayer | GlobalWindowLayer) -> int:
    return mixer.query.out_features // mixer.heads


def _shrink(mixer: AttentionLayer | GlobalWindowLayer, keep: float) -> None:
    mixer.query.weight.mul_(keep)
    mixer.key.weight.mul_(keep)


# ---- learned positions


def _make_waves(embed: EmbedLayer, head_width: int, deviation: float, generator: torch.Generator) -> Tensor:
    """Let the table of positions begin as waves in a random plane, which is returned: [width of the table, d].

    Fewer waves than half a head's units where the table is narrower than a head.
    """
    positions = embed.positions
    assert isinstance(positions, LearnedPositionsLayer)
    table = positions.table.weight
    width = table.shape[1]
    pairs = min(head_width, width) // 2
    plane = torch.linalg.qr(torch.randn(width, 2 * pairs, generator=generator))[0]
    frequency = math.pi * (torch.arange(1, pairs + 1) * GOLDEN % 1.0)
    angles = (torch.arange(len(table)) - positions.offset)[:, None] * frequency
    waves = torch.stack([angles.cos(), angles.sin()], -1).flatten(1)  # [positions, 2 pairs]
    table.copy_(waves @ plane.t() * deviation * math.sqrt(width / pairs))
    return plane


def _look(
    mixer: AttentionLayer | GlobalWindowLayer, plane: Tensor, offsets: Tensor, peak: float, embed: EmbedLayer
) -> None:
    """Add to W_q and W_k of each head what turns waves by its offset and lets them meet.

    After the norm a vector is sqrt(width) long, and half of its square is the position's.
    """
    width, units = plane.shape
    d = _head_width(mixer)
    # R(offset): from the waves at a position to those at its neighbour.
    frequency = math.pi * (torch.arange(1, units // 2 + 1) * GOLDEN % 1.0)
    back = plane if embed.project is None or embed.words_first else torch.linalg.pinv(embed.project.weight).t() @ plane
    gain = math.sqrt(2 * peak * math.sqrt(d) / width)
    for head, offset in enumerate(offsets.tolist()):
        cos, sin = (offset * frequency).cos(), (offset * frequency).sin()
        turned = torch.zeros(units, units)
        even, odd = torch.arange(0, units, 2), torch.arange(1, units, 2)
        turned[even, even], turned[even, odd] = cos, -sin
        turned[odd, even], turned[odd, odd] = sin, cos
        rows = slice(head * d, head * d + units)
        mixer.query.weight[rows] += gain * turned @ back.t()
        mixer.key.weight[rows] += gain * back.t()


# ---- rotary and relative positions


def _amplitudes(frequency: Tensor, peak: float) -> Tensor:
    """How much each wave adds: those that tell neighbours apart, equally."""
    fast = (frequency * REACH >= 1.0).to(frequency.dtype)
    return peak * fast / fast.sum()


def _agree(mixer: AttentionLayer, rotary: Rotary, offsets: Tensor, peak: float) -> None:
    """The bias of k is the same for all heads; that of q is ahead of it by the offset of each."""
    d = _head_width(mixer)
    frequency = rotary.frequencies(d)
    long = (_amplitudes(frequency, peak) * math.sqrt(d)).sqrt()
    ahead = offsets[:, None] * frequency
    q = torch.stack([long * ahead.cos(), long * ahead.sin()], -1)
    k = torch.stack([long, torch.zeros_like(long)], -1)
    for linear, bias in ((mixer.query, q), (mixer.key, k.expand_as(q))):
        assert isinstance(linear.bias, nn.Parameter)
        linear.bias.copy_(bias.reshape(-1))


def _prefer(bias: RelativeLayer, offsets: Tensor, peak: float) -> None:
    """One unit of v in each head, and the row of W_r that it is multiplied with; past keys have positive distances."""
    width, heads = bias.position.in_features, bias.heads
    d = bias.position.out_features // heads
    frequency = 10_000.0 ** -(torch.arange(0, width, 2) / width)
    share = _amplitudes(frequency, peak)
    size = math.sqrt(math.sqrt(d))
    for head, offset in enumerate(offsets.tolist()):
        ahead = -offset * frequency
        bias.v[head, 0] = size
        bias.position.weight[head * d] = torch.cat([share * ahead.sin(), share * ahead.cos()]) * math.sqrt(d) / size
