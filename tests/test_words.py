"""The field's terms stand where a reader searches for them: in the docstring or help text of the part that does it."""

import ast
from pathlib import Path

import pytest

import clozeworks

ROOT = Path(clozeworks.__file__).parent
TERMS = {
    "beam search": "inference/beam_search.py",
    "bi-encoder": "tasks/embed.py",
    "cross-encoder": "tasks/pair.py",
    "in-batch negatives": "tasks/contrastive.py",
    "gradient accumulation": "optim/settings.py",
    "gradient checkpointing": "optim/settings.py",
    "early stopping": "optim/finetune.py",
    "learning rate": "optim/settings.py",
    "mixed precision": "machine/doctor.py",
    "named entity recognition": "tasks/tag.py",
    "question answering": "tasks/qa.py",
    "text classification": "tasks/classify.py",
    "multiple choice": "tasks/choice.py",
    "sentence embedding": "tasks/embed.py",
    "whole word masking": "objectives/mask/whole_words.py",
    "dynamic masking": "objectives/mask/masking.py",
    "nucleus sampling": "inference/generation.py",
    "data parallel": "train/distributed.py",
    "label smoothing": "objectives/losses/next_token.py",
    "early exit": "tasks/early_exit.py",
    "sequence to sequence": "tasks/seq2seq.py",
    "sequence length": "tasks/template.py",
    "gradual unfreezing": "optim/unfreezing.py",
}


def documentation(file: Path) -> str:
    """Every docstring of a file, in lower case and without line breaks."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)]
    return " ".join(" ".join(ast.get_docstring(node) or "" for node in nodes).lower().split())


@pytest.mark.parametrize(("term", "file"), TERMS.items())
def test_term_stands_where_its_part_is(term, file):
    assert term in documentation(ROOT / file), f"{file} does not say {term!r}"


PAGES = {
    "learning rate": "finetune.md",
    "inference": "api.md",
    "named entity recognition": "tag.md",
    "token classification": "tag.md",
    "question answering": "qa.md",
    "text classification": "finetune.md",
    "sentence embedding": "embed.md",
    "semantic search": "embed.md",
    "bi-encoder": "embed.md",
    "in-batch negatives": "embed.md",
    "cross-encoder": "pair.md",
    "multiple choice": "choice.md",
    "sequence length": "finetune.md",
    "downstream": "finetune.md",
    "early stopping": "finetune.md",
    "gradient accumulation": "checkpoints.md",
    "gradient checkpointing": "checkpoints.md",
    "mixed precision": "checkpoints.md",
    "beam search": "generation.md",
    "nucleus": "generation.md",
    "whole word masking": "masks/whole_words.md",
    "dynamic masking": "masks/index.md",
    "data parallel": "distributed.md",
    "label smoothing": "encoder_decoder.md",
    "early exit": "compress.md",
}


@pytest.mark.parametrize(("term", "page"), PAGES.items())
def test_term_stands_on_its_page(term, page):
    text = " ".join((ROOT.parents[1] / "docs" / page).read_text().lower().split())
    assert term in text, f"docs/{page} does not say {term!r}"
