"""Kernels in several threads: the same bits, wherever they are asked for."""

import os
from itertools import islice

import gymnasium as gym
import numpy as np
import pytest

import ata_gym
import ata_policies
from ata_gym.utils import compiled
from ata_gym.utils.compiled import run_together
from ata_gym.utils.trees import difference
from ata_policies.steps import play


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(compiled, "_LEAST_WORK", 1)


def played(name, count, scenario):
    envs = gym.make_vec(ata_policies.load(name).env_id, num_envs=5, scenario=scenario)
    with ata_gym.threads(count):
        steps = list(islice(play(ata_policies.make(name, envs), envs, seed=3), 20))
    return [step.action for step in steps], steps[-1].observation, steps[-1].state


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("name", "scenario", "count"),
    [
        ("restarting-beta", "changing-spot", 3),
        ("thompson-gamma", "icml2025-regret", 9),
        ("race-fastest", "changing-spot", 2),
    ],
)
def test_threads_change_no_bits(name, scenario, count):
    assert difference(played(name, count, scenario), played(name, 1, scenario)) is None


def test_it_holds_in_its_block_only_and_an_error_of_another_thread_is_raised_here():
    def fail():
        raise ValueError("there")

    with ata_gym.threads(3):
        with ata_gym.threads(1):
            assert compiled._count.get() == 1
        assert compiled._count.get() == 3
    assert compiled._count.get() == 1
    with pytest.raises(ValueError, match="threads must be a whole number"), ata_gym.threads(0):
        pass
    with pytest.raises(ValueError, match="there"):
        run_together([lambda: None, fail, lambda: None])
    assert run_together([lambda: 1, lambda: 2]) == [1, 2]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    scores = np.random.default_rng(0).random((8, 5))
    with ata_gym.threads(2):
        expected = ata_gym.allocate(scores, 7)
        child = os.fork()
        if child == 0:
            os._exit(0 if (ata_gym.allocate(scores, 7) == expected).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
