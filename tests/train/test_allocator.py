import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from clozeworks.train.allocator import keep_freed
torch.set_num_threads(1)
kept = {kept} and keep_freed()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(4_000_000)
begin = faults()
for _ in range(20):
    torch.ones(4_000_000)
print(int(kept), faults() - begin)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_memory_that_was_freed_is_not_asked_for_again():
    def run(kept: bool) -> tuple[int, int]:
        done = subprocess.run([sys.executable, "-c", FAULTS.format(kept=kept)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told, faults = map(int, done.stdout.split())
        return told, faults

    told, faults = run(True)
    if not told:
        pytest.skip("the C library is not glibc, or it was set up from outside")
    assert faults < 100
    assert run(False)[1] > 1000


def test_what_the_user_has_set_up_stays(monkeypatch):
    from clozeworks.train.allocator import keep_freed

    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed()
