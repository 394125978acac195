"""What `TransfoXLLMHeadModel` of transformers 4.35, the last version where it works, makes of weights by a formula.

Run by hand where that version is installed; the numbers are kept in transfo_xl.json:

    python tests/exchange/frozen/transfo_xl.py            # write them
    python tests/exchange/frozen/transfo_xl.py DIRECTORY  # hold an exported directory to the first case
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

FILE = Path(__file__).with_suffix(".json")
SHAPE = {
    "vocab_size": 40,
    "d_model": 12,
    "d_embed": 12,
    "n_head": 3,
    "d_head": 4,
    "d_inner": 20,
    "n_layer": 2,
    "mem_len": 10,
    "clamp_len": 7,
    "cutoffs": [8, 20],
    "div_val": 2,
    "tie_projs": [False, True, True],
    "same_length": False,
    "dropout": 0.0,
}
CASES: dict[str, dict[str, Any]] = {
    "narrower": {},
    "one table": {"div_val": 1, "untie_r": False},
    "projected": {"div_val": 1, "d_embed": 6, "tie_projs": [True, False, True], "pre_lnorm": True, "clamp_len": -1},
    "same length": {"same_length": True, "cutoffs": [], "div_val": 1, "tie_projs": [False], "layer_norm_epsilon": 1e-3},
}
SEGMENTS, LENGTH = 4, 6


def weight(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The same everywhere: no generator is asked."""
    start = sum(name.encode()) * 0.37
    values = torch.sin(torch.arange(torch.Size(shape).numel(), dtype=torch.float64) * 1.7 + start).view(shape)
    return (1 + 0.2 * values if "layer_norm.weight" in name else 0.3 * values).float()


def tokens() -> torch.Tensor:
    """[2, SEGMENTS * LENGTH]: every word of the vocabulary."""
    return (torch.arange(2 * SEGMENTS * LENGTH) * 7 % 40).view(2, -1)


def theirs(config: dict[str, Any]):
    from transformers import TransfoXLConfig, TransfoXLLMHeadModel  # pyright: ignore[reportAttributeAccessIssue]

    model = TransfoXLLMHeadModel(TransfoXLConfig(**config)).eval()
    tied = [name for name, _ in model.named_parameters()]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weight(name, tuple(parameter.shape)))
    return model, tied


@torch.no_grad()
def outputs(model: Any) -> dict[str, Any]:
    mems, hidden, chances = None, [], []
    for segment in tokens().split(LENGTH, 1):
        out = model(segment, mems=mems, output_hidden_states=True)
        mems = out.mems
        hidden.append(out.hidden_states[-1])
        chances.append(out.prediction_scores)
    labels = tokens().roll(-1, 1)
    own = torch.cat(chances, 1).gather(-1, labels[..., None])[..., 0]
    rounded = lambda x: [[float(f"{v:.7g}") for v in row] for row in x.flatten(0, -2).tolist()]  # noqa: E731
    return {"hidden": rounded(torch.cat(hidden, 1)[0]), "nll": rounded(-own)}


def main() -> None:
    if sys.argv[1:]:
        from transformers import TransfoXLLMHeadModel  # pyright: ignore[reportAttributeAccessIssue]

        model, loading = TransfoXLLMHeadModel.from_pretrained(sys.argv[1], output_loading_info=True)
        actual, expected = outputs(model.eval()), json.loads(FILE.read_text())["narrower"]
        error = max(
            (torch.tensor(actual[key]) - torch.tensor(expected[key])).abs().max().item() for key in ("hidden", "nll")
        )
        print({key: value for key, value in loading.items() if value}, error)
        return
    frozen = {}
    for name, changes in CASES.items():
        model, own = theirs(SHAPE | changes)
        shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
        frozen[name] = {"own": own, "shapes": shapes, **outputs(model)}
    FILE.write_text(json.dumps(frozen) + "\n")


if __name__ == "__main__":
    main()
