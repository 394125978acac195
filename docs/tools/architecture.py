"""The rooms of the library and what may import what: the table that tests/test_architecture.py enforces.

`python -m docs.tools.architecture` writes docs/architecture.md from it.
"""

import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[1] / "architecture.md"
PACKAGE = "src/clozeworks"

# A room may import those above it, never one below. Modules at the root of the package stand between the rooms.
ROOMS = {
    "core": "specs, errors, batches, caches, counter-based random numbers, files written whole or not at all",
    "metrics": "plain functions on arrays: accuracy, F1, BLEU, ROUGE, bootstrap intervals",
    "plots": "pictures, in one style",
    "nn": "the parts of an encoder, one idea a file, spec and module together; kernels/ has their fast paths",
    "data": "text -> documents -> tokens -> shards -> batches; labelled tables",
    "corpus": "the embedded text of a first run",
    "vectors": "static word vectors: word2vec, fastText, GloVe, phrases",
    "machine": "doctor: what this processor can do, found by trying",
    "objectives": "how text becomes examples (segments), what is masked, what is predicted (losses)",
    "tasks": "what labelled records teach: classify, pair, tag, qa, choice, seq2seq, embed",
    "model": "Encoder and Model: embed -> stack -> losses or task",
    "optim": "what train.* of a recipe says: optimizers, schedules, spike guard, kept checkpoints, distillation",
    "starts": "how weights begin: word frequencies, word vectors, weights of another model",
    "recipe": "Recipe: encoder, objective, train",
    "recipes": "named models as functions",
    "exchange": "read and write models in every format: our own, Hugging Face, sentence-transformers, ONNX, ELMo",
    "inference": "TextEncoder: encode, predict, fill masks, generate, translate",
    "evaluate": "held-out metrics, reports of tasks, sliding windows",
    "screen": "how results are shown on a terminal",
    "train": "the loop, the run directory, checkpoints, resources, fine-tuning",
    "compress": "steps to a smaller model: prune, drop, factorize, trim, share; each gives an ordinary model",
    "api": "what `import clozeworks as cw` offers",
    "quickstart": "the first two minutes",
    "cli": "one file a command",
}

READING_ORDER = {
    "recipes/bert.py": "what a named model is: a function that returns a recipe",
    "recipe.py": "Recipe: encoder, objective, train; how a model is built from it",
    "core/spec.py": "how a dataclass becomes JSON, a diff and a `--set` path",
    "core/batch.py": "what a batch holds, and who may attend to whom",
    "nn/mixer.py": "the one signature of everything that mixes tokens",
    "nn/mixers/attention.py": "self-attention, the mixer that most recipes use",
    "model.py": "embed -> stack -> losses: a forward pass",
    "objectives/objective.py": "input format, masking, losses: how text becomes a training signal",
    "train/loop.py": "one optimizer step: gradient accumulation, clipping, update",
    "cli/main.py": "from the command line to the function that does the work",
}

# Where a change goes: what somebody wants to do, and the files to read for it, two at most.
CHANGES = {
    "add a positional encoding that is added to words": ("nn/positions.py",),
    "add a positional encoding that is added to attention scores": ("nn/mixer.py", "nn/bias/distance_table.py"),
    "add an attention variant": ("nn/mixer.py", "nn/mixers/attention.py"),
    "add a masking strategy": ("objectives/mask/masking.py", "objectives/mask/whole_words.py"),
    "add a pretraining loss": ("objectives/objective.py", "objectives/losses/masked_lm.py"),
    "add a fine-tuning task": ("tasks/task.py", "tasks/choice.py"),
    "add a file format of text": ("data/records/listing.py", "data/text/files.py"),
    "add a file format of labelled data": ("data/tables/files.py",),
    "add a file format of word vectors": ("vectors/formats/files.py",),
    "read another Hugging Face family": ("exchange/names/bert.py", "exchange/huggingface.py"),
    "change the name of checkpoints": ("exchange/checkpoint_names.py",),
    "fix a metric": ("metrics/entities.py", "metrics/bleu.py"),
    "add an optimizer": ("optim/optimizers/optimizer.py", "optim/optimizers/adamw.py"),
    "add a learning rate schedule": ("optim/schedules.py", "optim/learning_rate.py"),
    "bound a number of a field": ("core/bounds.py",),
    "add a command": ("cli/main.py", "cli/fill_mask.py"),
}

# Printed by `python -m docs.tools.trace`; put in what it says after a change of the path.
TRACE = {"frames_to_attention": 15, "files_of_prepare": 43, "files_of_pretrain": 110}
TRACE_BEFORE = {"frames_to_attention": 17, "files_of_prepare": 39, "files_of_pretrain": 104}  # in the layout before

IDEAS = """\
## Five ideas

1. **A spec is a small dataclass that builds its module.** `Attention(heads=12)` is data: it can be compared, printed
   and stored as JSON; `.build(width)` gives the `nn.Module`. Both live in the same file. What several parts share, such
   as the width, comes from the parent and is never repeated.
2. **A recipe is a function.** It calls the recipe it differs from, changes the lines that the paper changes, and
   returns it. There is no registry, no configuration language and no model that inherits from a model.
3. **Visibility belongs to the objective, sparsity to the mixer, layout to the batch.** Each token carries two integers,
   and token *i* sees token *j* if they are of the same document and `appears[j] <= sees[i]`. Bidirectional, causal,
   prefix and permuted order, padding and packing are values of these integers.
4. **One signature for everything that mixes tokens:** `mixer(query, memory, context) -> (mixed, carry)`.
   Self-attention, attention over cached hidden states, a key/value cache and cross-attention are the same call.
5. **An objective is three choices:** how documents become examples, what is masked, what is predicted. A corruption
   says what it writes into the batch and a loss what it reads; a recipe whose losses read what nothing writes is an
   error before any tensor exists.
"""

DRAWING = """\
## The way of the data

```text
 text files ──► documents ──► tokens ──► shards ──► examples ──► batches
   data/text                data/tokens  data/shards  objectives/   data/batches
                                                      segments/         │
                                                                        ▼
 recipe ──► Model ─── embed ──► stack of blocks ──► hidden states ◄── masked
 recipes/   model.py  nn/embed  nn/stack, nn/block       │            objectives/mask/
                                  │                      ▼
                                  ▼               losses or a task ──► loss ──► optimizer step
                             nn/mixers/attention  objectives/losses/            train/loop.py, optim/
                             nn/kernels/          tasks/                             │
                                                                                     ▼
 predictions ◄── TextEncoder ◄── model directory ◄── checkpoints ◄────────────── run directory
                 inference/      exchange/            train/checkpoint/            train/run_dir.py
```
"""


def page() -> str:
    """docs/architecture.md."""
    rooms = [f"| {number} | `{name}` | {text} |" for number, (name, text) in enumerate(ROOMS.items(), 1)]
    order = [f"{n}. `{PACKAGE}/{file}`: {why}" for n, (file, why) in enumerate(READING_ORDER.items(), 1)]
    changes = [f"| {what} | {', '.join(f'`{file}`' for file in files)} |" for what, files in CHANGES.items()]
    parts = [
        "# Architecture",
        IDEAS.rstrip(),
        "## Map of the rooms",
        wrap(
            f"A room is a directory of `{PACKAGE}`, or one of the modules at its root. It may import the rooms above "
            "it in this table, never one below, also not inside functions or for types alone, and no modules import "
            "each other in a circle. `tests/test_architecture.py` holds it."
        ),
        "\n".join(["| | room | what it has |", "|---:|---|---|", *rooms]),
        wrap(
            "Named models appear in `recipes/` and `exchange/names/` alone: classes, functions and files elsewhere "
            "have no such name. A part that could only be called after one model is two parts that have not been "
            "separated yet. Outside the library stand `benchmarks/`, `studies/` (experiments of the documentation), "
            "`docs/tools/` (generators of pages, this one by `python -m docs.tools.architecture`) and `tests/`, which "
            "mirror it."
        ),
        DRAWING.rstrip(),
        "## Where a change goes",
        "\n".join([f"| you want to | read, below `{PACKAGE}/` |", "|---|---|", *changes]),
        "## Ten files to read first",
        "\n".join(order),
        "## How far it is",
        wrap(
            f"From the command line to attention there are {TRACE['frames_to_attention']} calls of ours "
            f"({TRACE_BEFORE['frames_to_attention']} in the layout before this one). Functions of "
            f"{TRACE['files_of_prepare']} files run in `prepare` ({TRACE_BEFORE['files_of_prepare']}), of "
            f"{TRACE['files_of_pretrain']} in `pretrain bert_mini` ({TRACE_BEFORE['files_of_pretrain']}): files are "
            "smaller. `python -m docs.tools.trace` counts them, `--list` names them."
        ),
        "## Files",
        "Everything that is written is written whole or not at all, by one module:",
        "::: clozeworks.core.atomic_io",
    ]
    return "\n\n".join(parts) + "\n"


def wrap(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page())
