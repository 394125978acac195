"""Spans of time as people write them."""

import pytest

from clozeworks.core.durations import read_duration
from clozeworks.core.errors import InputError


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2 d", 172_800)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert read_duration("--budget", text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "0m", "ten minutes", "-5m", "nan s", "1e9h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--budget.*a number with s, m, h or d is needed"):
        read_duration("--budget", text)
