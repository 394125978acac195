"""Load model directories in a process of its own, and print the outputs of each as a digest: `python -m ... DIR...`."""

import hashlib
import json
import sys
from pathlib import Path

import clozeworks as cw
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.read_back import compute, draw_batch
from clozeworks.inference.text_encoder import TextEncoder

TEXTS = ["the old fox sees rain", "a stone.", "small tree near the red river road"]


def digest(bundle: Bundle) -> str:
    """Of all vectors and scores that a model gives for random ids, and of its answers to texts, to the bit."""
    outputs = compute(bundle.model, draw_batch(bundle.recipe))
    assert outputs
    joined = b"".join(name.encode() + value.numpy().tobytes() for name, value in sorted(outputs.items()))
    task = bundle.recipe.task
    if isinstance(bundle, TextEncoder) and task is not None and task.columns == ("text",):
        joined += json.dumps(bundle.predict(TEXTS)).encode()
    return hashlib.sha256(joined).hexdigest()


if __name__ == "__main__":
    print(json.dumps({path.name: digest(cw.load(path)) for path in map(Path, sys.argv[1:])}))
