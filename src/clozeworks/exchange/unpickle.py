"""Run as a program: turn a pickled state dict into a safetensors file, with torch's tensors-only unpickler."""

import sys

import torch
from safetensors.torch import save_file

if __name__ == "__main__":
    source, target = sys.argv[1:]
    loaded = torch.load(source, map_location="cpu", weights_only=True)
    loaded = loaded.get("state_dict", loaded)
    save_file(
        {name: value.clone().contiguous() for name, value in loaded.items() if isinstance(value, torch.Tensor)}, target
    )
