"""The step of training that machines are measured by."""

import time
from collections.abc import Callable

import torch
from torch import nn


def make_step(device: str) -> Callable[[bool], float]:
    """A step of a small encoder with a word-sized output, forward, backward and AdamW: autocast or not -> seconds."""
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, activation="gelu", batch_first=True)
    body = nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    model = nn.Sequential(body, nn.Linear(256, 4096)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.randn(4, 128, 256, device=device)
    goal = torch.randint(4096, (4 * 128,), device=device)

    def step(autocast: bool) -> float:
        begin = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            logits = model(rows)
        nn.functional.cross_entropy(logits.float().flatten(0, 1), goal).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device != "cpu":
            getattr(torch, device).synchronize()
        return time.perf_counter() - begin

    return step
