"""The names of the library's tasks, and what else people call them. Imports nothing heavy: help pages have them."""

from collections.abc import Iterable

from clozeworks.core.errors import suggest

TASKS = {
    "classify": ("classification", "sentiment", "text-classification"),
    "pair": ("nli", "mnli", "paraphrase"),
    "tag": ("ner", "pos", "token-classification"),
    "qa": ("span", "squad", "question-answering"),
    "choice": ("multiple-choice",),
    "seq2seq": ("write", "translate", "translation", "summarize", "summarization"),
    "embed": ("towers", "sts", "sentence", "similarity", "retrieval"),
}


def suggest_task(name: str, known: Iterable[str] = TASKS) -> str:
    """What to do about a name that is none: the task that it means, or the nearest names."""
    meant = next((task for task, others in TASKS.items() if name in others), None)
    return f"did you mean {meant}?" if meant else suggest(name, known)
