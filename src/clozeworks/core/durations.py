"""Spans of time as people write them: 90s, 10m, 2h, 1d."""

import re

from clozeworks.core.errors import InputError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_duration(where: str, text: str) -> float:
    """Seconds of '90s', '10m', '1.5h' or '2d'."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip())
    if match is None or not float(match[1]):
        raise InputError(where, text or "nothing", "a number with s, m, h or d is needed", "for example 10m")
    return float(match[1]) * UNITS[match[2]]
