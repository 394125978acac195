"""Both products are measured, and the verdict says which of them int8 models use."""

import os

import pytest
import torch

from clozeworks.machine import doctor, int8_gain, trials
from clozeworks.machine.doctor import Verdict
from clozeworks.nn.int8 import products


def measured(fp32: float, int8: float, vnni: bool = True, fused: bool = True) -> dict[str, object]:
    return {"fp32_ms": fp32, "int8_ms": int8, "vnni": vnni, "fused": fused}


def test_both_products_take_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(products.CHOICE, "0")
    run = int8_gain.make(torch.get_num_threads())
    assert all(run(option) > 0 for option in int8_gain.OPTIONS)
    assert set(int8_gain.facts()) == {"vnni", "fused"}


@pytest.mark.parametrize(
    ("facts", "chosen", "says"),
    [
        ({}, None, ""),
        ({"died": "SIGILL"}, None, ""),
        (measured(4, 1), True, "4.00 times the speed of fp32; so int8 models are multiplied as int8."),
        (measured(1, 2, vnni=False), False, "no instructions for products of int8 (VNNI)"),
        (measured(2, 1, fused=False), True, "pip install 'clozeworks[vectors]'"),
    ],
)
def test_the_verdict_follows_the_clock(facts, chosen, says):
    assert doctor._decide_int8(facts)[0] is chosen
    assert says in doctor._decide_int8(facts)[1]


def test_the_choice_is_applied_and_the_users_stays(monkeypatch: pytest.MonkeyPatch):
    for name in (*trials.CHOSEN_BY_US, products.CHOICE):
        monkeypatch.setenv(name, "restored afterwards")
    monkeypatch.delenv(products.CHOICE)
    doctor.apply(Verdict(None, "fp32", 1, "cpu", int8=False))
    assert os.environ[products.CHOICE] == "0"
    assert not products.pays()
    doctor.apply(Verdict(None, "fp32", 1, "cpu", int8=True))
    assert os.environ[products.CHOICE] == "0"
