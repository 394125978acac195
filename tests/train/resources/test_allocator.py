import os
import subprocess
import sys

import pytest

from clozeworks.train.resources.allocator import Heap

MB = 1 << 20

FAULTS = """
import ctypes, resource, torch
from clozeworks.train.resources.allocator import keep_freed
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: pages of one size
torch.set_num_threads(1)
kept = {kept} and keep_freed()
def step(number):
    first = torch.ones(2048 - number % 3, 1024)
    return [first, first + 1, first * 2]
for number in range(9):
    step(number)
begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
pages = sum(sum(tensor.nbytes for tensor in step(number)) >> 12 for number in range(21))
print(int(kept), (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin) / pages)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_a_step_asks_the_system_for_less_memory_than_it_frees():
    def run(kept: bool, **environment: str) -> tuple[bool, float]:
        code = FAULTS.format(kept=kept)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment
        )
        assert done.returncode == 0, done.stderr
        supported, faults = done.stdout.split()
        return supported == "1", float(faults)

    supported, faults = run(True)
    if not supported:
        pytest.skip("the C library is not glibc, or it was set up from outside")
    assert faults < 0.1  # of the pages that were written to
    # Left alone, the C library learns to keep some of it; with a threshold that stays, all goes back.
    assert run(False, MALLOC_MMAP_THRESHOLD_="131072")[1] > 0.9


def test_what_the_user_has_set_up_stays(monkeypatch):
    from clozeworks.train.resources.allocator import keep_freed

    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed()


TORN = """
import torch
from clozeworks.train.resources.allocator import Heap, keep_freed
from clozeworks.train.resources.memory_check import held_bytes as held
kept, heap = keep_freed(), Heap(held)
calm = any(heap.settle() for _ in range(9))
blocks = [torch.ones(1 << 18) for _ in range(600)]  # of a megabyte
del blocks[::2]
before = held()
print(int(kept), int(calm), int(heap.settle()), before - held() >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc_trim is glibc's")
@pytest.mark.slow
def test_holes_between_blocks_in_use_are_given_back():
    done = subprocess.run([sys.executable, "-c", TORN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept, calm, given, less = map(int, done.stdout.split())
    if not kept:
        pytest.skip("the C library is not glibc, or it was set up from outside")
    assert (calm, given) == (0, 1)
    assert 250 < less < 350


def decisions(held: list[int]) -> list[bool]:
    """Whether pages are given back after each step, if so many MB are held after it."""
    left = iter(held)
    heap = Heap(lambda: next(left) * MB, lambda _: None)
    return [heap.settle() for _ in range(len(held) + 3)]


def test_what_the_first_steps_need_is_never_given_back():
    assert not any(decisions([9000, 9000, 11000, 9000]))


def test_growth_is_given_back_and_what_the_next_step_needs_counts_from_then_on():
    assert decisions([500, 756, 757, 900, 1100, 1157]) == [False] * 3 + [False, False, True, False, False, True]
    assert decisions([4000, 4900, 5001, 4000, 5001]) == [False] * 3 + [False, False, True, False, True]


def test_without_a_c_library_that_can_nothing_is_done(monkeypatch):
    monkeypatch.setattr("clozeworks.train.resources.allocator._glibc", lambda name: None)
    heap = Heap(lambda: pytest.fail("nothing to ask for"))
    assert not any(heap.settle() for _ in range(9))


HELD = """
import torch
from clozeworks.train.resources import memory_check as room
from clozeworks.train.resources.allocator import give_back, keep_freed
torch.set_num_threads(1)
kept = keep_freed()
some = [torch.ones(1 << 18) for _ in range(200)]  # a megabyte each
last = torch.ones(1 << 18)
del some
before = room.held_bytes()
give_back()
print(int(kept), (before - room.held_bytes()) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="malloc_trim is glibc's")
@pytest.mark.slow
def test_a_run_gives_back_what_it_has_freed():
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    supported, given = map(int, done.stdout.split())
    if not supported:
        pytest.skip("the C library is not glibc, or it was set up from outside")
    assert given > 150
