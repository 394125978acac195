"""JSON that knows its own hash: a record that changed since it was written is seen when it is read."""

import hashlib
import json
from typing import Any

MARK = "sha256"


def add_checksum(record: dict[str, Any]) -> dict[str, Any]:
    """A copy with the hash of all the rest."""
    return {**record, MARK: _hash(record)}


def broken(record: Any) -> bool:
    """Whether a record is other than it was when it was sealed. One that has no mark was never sealed."""
    return isinstance(record, dict) and MARK in record and record[MARK] != _hash(record)


def _hash(record: dict[str, Any]) -> str:
    content = {name: value for name, value in record.items() if name != MARK}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
