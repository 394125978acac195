"""What a forward pass keeps for the way back, by depth: `python -m studies.kept`.

A stack that autograd goes back through keeps activations of every layer. A reversible one (Kitaev et al. 2020, 3) keeps
its last pair of vectors and, of every layer that hashes, the order in which tokens stood, which are integers. Both are
counted in the same model with the same weights: bytes of the storages that autograd saves, each once, weights left out,
and bytes of the orders.
"""

import sys
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.batch import from_padded
from studies import figures
from studies.study import Study, read_numbers

DEPTHS = "2,4,8,16"
ROWS, LENGTH, WIDTH, VOCAB = 2, 512, 64, 100
KINDS = {  # kept by autograd, or computed back; positions of the feed-forward part at a time
    "ordinary": (False, None),
    "ordinary, feed-forward by 64": (False, 64),
    "reversible": (True, None),
}
EXAMPLE = "python -m studies.kept --plot kept.svg"


def run(depths: str = DEPTHS) -> dict[str, Any]:
    """{"bytes": {kind: {depth: saved}}, "orders": {depth: bytes}} with how it was measured."""
    layers = read_numbers("--depths", depths, 1)
    saved = {kind: {depth: count_saved(depth, *how)[0] for depth in layers} for kind, how in KINDS.items()}
    orders = {depth: count_saved(depth, True, None)[1] for depth in layers}
    return {"bytes": saved, "orders": orders, "rows": ROWS, "length": LENGTH, "width": WIDTH}


def count_saved(depth: int, inverts: bool, chunk: int | None) -> tuple[int, int]:
    """Bytes that autograd saves in the stack of such a model, and bytes of the choices that are kept beside them."""
    import clozeworks

    r: Any = clozeworks.recipe("reformer_mini")
    r.encoder.width, r.encoder.vocab, r.encoder.stack.depth = WIDTH, VOCAB, depth
    r.encoder.embed.positions.widths = (WIDTH // 4, WIDTH - WIDTH // 4)
    for block in r.encoder.stack.block:
        block.ffn.inner, block.ffn.chunk = 4 * WIDTH, chunk
    stack: Any = clozeworks.build(r).encoder.stack
    stack.inverts = inverts
    batch = from_padded(torch.zeros(ROWS, LENGTH, dtype=torch.long), kind="causal")
    own = {parameter.untyped_storage().data_ptr() for parameter in stack.parameters()}
    sizes: dict[int, int] = {}
    orders: dict[object, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        last = stack(torch.randn(ROWS, LENGTH, WIDTH, requires_grad=True), batch.context(replay=orders)).last
    assert last.requires_grad
    return sum(size for pointer, size in sizes.items() if pointer not in own), sum(
        order.nbytes for order in orders.values()
    )


def draw(results: dict[str, Any], path: str) -> None:
    lines = {
        kind: [(depth, size / 1e6, size / 1e6, size / 1e6) for depth, size in sizes.items()]
        for kind, sizes in results["bytes"].items()
    }
    figures.growths({"MB": lines}, path, "What is kept for the way back", "layers")


STUDY = Study(
    name="kept",
    about="What a forward pass keeps for the backward pass, by depth.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    seeds=False,
    options={
        "--depths": {"default": DEPTHS, "help": f"even numbers of layers, with commas ({DEPTHS})"},
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
