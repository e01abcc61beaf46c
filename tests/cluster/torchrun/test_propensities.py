"""How likely the allocations of real rounds were: estimates from their log have no bias, and all
ranks say the same.
"""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from ata_gym import bench  # noqa: E402
from ata_gym.bench.logs import Log  # noqa: E402
from ata_gym.bench.studies.what_if.off_policy.doubly_robust import (  # noqa: E402
    round_time,
    worker_time,
)
from ata_gym.cluster import TorchAllocator, TraceRecorder  # noqa: E402
from ata_gym.cluster.torchrun.plans import Plans  # noqa: E402
from ata_policies import Allocator  # noqa: E402
from tests.cluster.torchrun.processes import on_ranks  # noqa: E402
from tests.cluster.torchrun.training import backward, refused  # noqa: E402

NAMES = ("a", "b", "c")


def times_of(k):
    """What a task of each worker takes in round k: each last time is too low."""
    return np.array([1.0, 2.0, 3.0]) * (2.0 + k)


def log_of_plans(seed, rounds):
    """The log of rounds that are planned as in a process group."""
    ranks = SimpleNamespace(elastic=False, members={}, names=NAMES)
    plans = Plans(
        ranks,
        lambda names: Allocator(names, 2, "epsilon-uniform:c=1", seed=seed),
        100,
        propensities=True,
    )
    tasks = np.zeros((rounds, 3))
    propensity = np.zeros((rounds, 3))
    of_allocation = np.zeros(rounds)
    for k in range(rounds):
        tasks[k] = plans.begin(k, lambda: False)
        likely = plans.propensities
        propensity[k] = [likely.workers[name] for name in NAMES]
        of_allocation[k] = likely.allocation
        times = zip(NAMES, times_of(k), tasks[k].astype(int), strict=True)
        plans.allocator.observe({name: [time] * count for name, time, count in times if count})
        plans.make_next()
    return Log(
        *("job", NAMES, tasks * [times_of(k) for k in range(rounds)], tasks),
        propensity=propensity,
        allocation_propensity=of_allocation,
        before=times_of(-1),
    )


def test_estimates_from_the_log_of_planned_rounds_have_no_bias():
    errors = {True: [], False: []}
    for seed in range(60):
        log = log_of_plans(seed, 8)
        tasks = np.tile([1.0, 1.0, 0.0], (8, 1))
        costs = tasks * [times_of(k) for k in range(8)]
        certain = replace(log, propensity=np.ones((8, 3)), allocation_propensity=np.ones(8))
        for known, source in ((True, log), (False, certain)):
            apart = [
                round_time(source, tasks, 2).values - costs.max(axis=1),
                worker_time(source, tasks, 2).values - costs.sum(axis=1),
            ]
            errors[known] += np.transpose(apart).tolist()
    for known, values in errors.items():
        standard = np.std(values, axis=0) / len(values) ** 0.5
        bias = np.abs(np.mean(values, axis=0)) / standard
        # What is said to be certain and is not leaves the errors of the model.
        assert (bias < 4).all() if known else (bias > 8).all(), (known, bias)


def play(path, policy, budget, rounds):
    """Rounds of a rank, of which the first writes a log; and the probabilities of all of them."""
    allocator = TorchAllocator(
        budget, policy, name="ab"[dist.get_rank()], warm_up=0, propensities=True
    )
    model = nn.Identity()
    likely = []
    with TraceRecorder(f"{path}.{dist.get_rank()}", propensities=True) as recorder:
        for number in range(rounds):
            if number == 2:
                failed = refused(lambda: one_round(allocator, model, fails=True))
                assert "round 3" in failed, failed
            one_round(allocator, model)
            recorder.add(allocator.last)
            likely.append((allocator.last.tasks, allocator.last.propensities))
    return likely


def one_round(allocator, model, fails=False):
    with allocator.round(model) as share:
        for _ in range(share.tasks):
            with share.timed():
                backward(share)
        if fails and dist.get_rank() == 0:
            raise ValueError("round 3 fails here")
        share.reduce()


def test_the_log_of_two_ranks_gives_doubly_robust_estimates(tmp_path):
    path = tmp_path / "times.csv"
    first, second = on_ranks(2, play, str(path), "uta", 3, 90)
    assert first == second
    for tasks, (workers, allocation) in first:
        assert sorted(tasks.values()) == [1, 2]
        assert workers == {"a": 1.0, "b": 1.0}
        # one of two allocations, from a thousand draws
        assert allocation == pytest.approx(0.5, abs=5 * (0.25 / 1_000) ** 0.5)
    results = bench.what_if(f"{path}.0", policies="uta", without="race,dispatch")
    answer = json.loads(str(results.content.files["what-if.json"]))
    (uta,) = (way for way in answer["alternatives"] if way["name"] == "uta")
    assert uta["doubly_robust"].keys() == {"round_time", "worker_time"}
    assert 30 < uta["doubly_robust"]["round_time"]["effective_steps"] < 60


def test_a_policy_without_randomness_is_certain_and_nothing_is_asked_by_default(alone):  # noqa: ARG001
    certain = TorchAllocator(2, "certainty-equivalence", propensities=True)
    silent = TorchAllocator(2, "uta")
    for allocator in (certain, silent):
        one_round(allocator, nn.Identity())
    assert certain.last.propensities == ({certain.name: 1.0}, 1.0)
    assert silent.last.propensities is None
    with pytest.raises(ValueError, match="propensities must be True or False"):
        TorchAllocator(2, propensities=1)
