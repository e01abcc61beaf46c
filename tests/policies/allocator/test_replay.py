"""Played over an env's times, the allocator decides as the policy does in the env, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Spot, Switch, Walk
from ata_gym.pools import shifted_exponential
from ata_gym.utils.trees import difference
from ata_policies import Allocator, Dispatcher

N, BUDGET, ROUNDS = 5, 7, 40
POOL = shifted_exponential(np.arange(1.0, N + 1), np.arange(1.0, N + 1))
POLICIES = {name: ata_policies.load(name) for name in ata_policies.names()}
BY_ROUND = ["thompson", "restarting-beta", "ofta", "distribution-learner", "lb-bsp-federated", "learned", "race", "gta"]
BY_RESULT = ["dispatch", "dispatch-rest", "dispatch-gta", "dispatch-oracle", "learned-dispatch"]
CHANGES: dict[str, list[Any]] = {
    "steady": [], "changing": [Switch(every=9), Walk(0.1, 0.7)], "dying": [Spot(leaves=0.05, returns=0.3, deadline=0.5)]
}  # fmt: skip


def told(observation: dict[str, Any]) -> tuple[dict[int, list[float]], dict[int, float]]:
    """An observation as the allocator takes it: the times of the results, and those of cancelled tasks."""
    seconds: dict[int, list[float]] = {}
    for worker, duration in zip(observation["worker"].tolist(), observation["duration"].tolist(), strict=True):
        seconds.setdefault(worker, []).append(duration)
    return seconds, {i: time for i, time in enumerate(observation["elapsed"].tolist()) if time > 0.0}


def allocator_of(name: str, env: Any, seed: int) -> Allocator:
    """Made by name where that suffices, else with a policy that knows the env's pool."""
    race, known = "Race" in POLICIES[name].env_id, env.unwrapped
    try:
        return Allocator(N, BUDGET, name, start_more=race, price=known.price, seed=seed, horizon=known.horizon)
    except ValueError:
        return Allocator(N, BUDGET, ata_policies.make(name, env, seed), start_more=race)


@pytest.mark.parametrize(("changes", "price"), [("steady", 0.0), ("changing", 0.3), ("dying", 0.0)])
@pytest.mark.parametrize("name", BY_ROUND)
def test_the_allocations_are_those_of_the_env(name: str, changes: str, price: float) -> None:
    arguments: dict[str, Any] = {"changes": CHANGES[changes], "price": price, "horizon": 100 if price else None}
    env, race = gym.make(POLICIES[name].env_id, pool=POOL, budget=BUDGET, **arguments), "Race" in POLICIES[name].env_id
    allocator, deaths = allocator_of(name, env, seed=5), 0
    policy, (observation, _), state = ata_policies.make(name, env, seed=5), env.reset(seed=5), None
    for _ in range(ROUNDS):
        action, state = policy.predict(observation, state)
        assert list(allocator.allocate().values()) == action.tolist()
        observation, *_, info = env.step(action)
        seconds, cancelled = told(observation)
        owing = [i for i in range(N) if len(seconds.get(i, ())) < action[i]]
        lost = [i for i in owing if changes == "dying" and (info["lost"] or not race or i not in cancelled)]
        deaths += len(lost) > 0
        allocator.observe(seconds, cancelled, lost)
    assert deaths > 0 or changes != "dying"


@pytest.mark.parametrize(
    ("name", "changes", "price"),
    [
        *((name, *world) for name in BY_RESULT for world in (("steady", 0.0), ("changing", 0.3))),
        *((name, "dying", 0.0) for name in ("dispatch", "dispatch-rest", "dispatch-gta")),
    ],
)
def test_the_decisions_are_those_of_the_env(name: str, changes: str, price: float) -> None:
    """The ages of running tasks, which the dispatcher computes where nobody dies, among them."""
    env = gym.make(POLICIES[name].env_id, pool=POOL, changes=CHANGES[changes], budget=BUDGET, price=price)
    try:
        dispatcher = Dispatcher(N, BUDGET, name, price=price, seed=3)
    except ValueError:
        dispatcher = Dispatcher(N, BUDGET, ata_policies.make(name, env, 3))
    deaths, dying, policy, bare = 0, changes == "dying", ata_policies.make(name, env, seed=3), env.unwrapped
    (observation, _), state = env.reset(seed=3), None
    for _ in range(30 * BUDGET):
        assert dispatcher.missing == observation["missing"][0]
        action, state = policy.predict(observation, state)
        running = observation["running"] > 0
        starts = (action > 0) & ~running & ~dispatcher._round.died
        if (starts | running).any() or not dying:
            expected = starts if (starts | running).any() else np.ones(N, np.bool_)
            assert dispatcher.start() == tuple(np.flatnonzero(expected).tolist())
        observation, *_, info = env.step(action)
        worker, over, ages = observation["worker"][0].item(), info["round_over"], None
        if dying:
            ran: Any = bare.checkpoint()  # type: ignore[attr-defined]
            seen = observation["elapsed" if over else "age"]  # of the others
            while True:
                dead = [i for i in dispatcher.running if i != worker and not seen[i]]
                for i in dead:
                    dispatcher.lost(i, ran["finish"][0, i] - ran["begun"][0, i])
                deaths += len(dead)
                if worker in dispatcher.running:
                    break
                dispatcher.start()  # nobody was left running, so all have started
            ages = {i: seen[i] for i in dispatcher.running if i != worker}
        assert dispatcher.finished(worker, observation["duration"].item(), ages) == over
    assert deaths > 0 or not dying
    after = policy.predict(observation, state)[1]
    dispatcher.start()
    assert difference(after, dispatcher._state) is None or dying
