import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from clozeworks.train.allocator import keep_freed
torch.set_num_threads(1)
kept = {kept} and keep_freed()
def part():
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))
model = torch.nn.Sequential(part(), part(), part())
def steps(count):
    for number in range(count):
        model(torch.ones(2048 - number % 3, 256)).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
begin = steps(9)
print(int(kept), steps(21) - begin)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_a_step_asks_the_system_for_less_memory_than_it_frees():
    def run(kept: bool) -> tuple[int, int]:
        done = subprocess.run([sys.executable, "-c", FAULTS.format(kept=kept)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        told, faults = map(int, done.stdout.split())
        return told, faults

    told, faults = run(True)
    if not told:
        pytest.skip("the C library is not glibc, or it was set up from outside")
    # Now and then the C library keeps some of it of its own accord.
    assert any(faults < 0.25 * run(False)[1] for _ in range(3))


def test_what_the_user_has_set_up_stays(monkeypatch):
    from clozeworks.train.allocator import keep_freed

    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed()
