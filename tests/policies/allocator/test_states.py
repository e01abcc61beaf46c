"""The clock, allocator and dispatcher: over an env's times they decide as in it, and from a state
they go on.
"""

import copy
import io
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Congestion, Spot, Switch, Walk
from ata_gym.pools import log_normal, shifted_exponential, trace
from ata_gym.utils.trees import difference
from ata_policies import Allocator, Clock, Dispatcher
from ata_policies.allocator.state import sealed, widened
from ata_policies.beliefs.distributions.bins import SLOTS, DistributionBelief
from ata_policies.steps import play as steps_of
from tests.mutated import mutations
from tests.policies.test_policies import BY_KIND

N = 4
BUDGET = 6
ROUNDS = 40
POOL = shifted_exponential(np.arange(1.0, N + 1), np.arange(1.0, N + 1))
KINDS = {name: ata_policies.load(name) for name in ata_policies.names()}
LATE = POOL.with_latency(log_normal(np.log([3.0, 8.0, 0.5, 2.0]), 0.5))
BY_ROUND = [
    "thompson",
    "restarting-beta",
    "ofta",
    "distribution-learner",
    "lb-bsp-federated",
    "learned",
    "race",
    "gta",
]
BY_RESULT = ["dispatch", "dispatch-rest", "dispatch-gta", "dispatch-oracle"]
CHANGES: dict[str, list[Any]] = {
    "steady": [],
    "changing": [Switch(every=9), Walk(0.1, 0.7)],
    "dying": [Spot(leaves=0.05, returns=0.3, deadline=0.5)],
}
CONGESTED = Congestion(5.0, starts=0.1, ends=0.3, rack=2)


def with_latency(changes: list[Any]) -> dict[str, Any]:
    """The arguments of an env whose workers pay a latency, beside these changes."""
    return {"pool": LATE, "changes": [*changes, CONGESTED]}


def told(observation: dict[str, Any]) -> tuple[dict[int, list[float]], dict[int, float]]:
    """An observation as the allocator takes it: the times of the results, and of cancelled
    tasks.
    """
    seconds: dict[int, list[float]] = {}
    for worker, duration in zip(
        observation["worker"].tolist(),
        observation["duration"].tolist(),
        strict=True,
    ):
        seconds.setdefault(worker, []).append(duration)
    return seconds, {
        i: time for i, time in enumerate(observation["elapsed"].tolist()) if time > 0.0
    }


def allocator_of(name: str, env: Any, seed: int) -> Allocator:
    race = "Race" in KINDS[name].env_id
    known = env.unwrapped
    try:
        return Allocator(
            N,
            BUDGET,
            name,
            start_more=race,
            price=known.price,
            seed=seed,
            horizon=known.horizon,
            deadline=known.scenario.deadline,
        )
    except ValueError:
        return Allocator(N, BUDGET, ata_policies.make(name, env, seed), start_more=race)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("changes", "price"), [("steady", 0.0), ("changing", 0.3), ("dying", 0.0)])
@pytest.mark.parametrize("name", BY_ROUND)
def test_the_allocations_are_those_of_the_env(
    name: str, changes: str, price: float, late: bool
) -> None:
    arguments: dict[str, Any] = {
        "pool": POOL,
        "changes": CHANGES[changes],
        "price": price,
        "horizon": 100 if price else None,
    }
    if late:
        arguments |= with_latency(CHANGES[changes])
    env = gym.make(KINDS[name].env_id, budget=BUDGET, **arguments)
    race = "Race" in KINDS[name].env_id
    allocator = allocator_of(name, env, seed=5)
    deaths = 0
    policy, (observation, _), state = ata_policies.make(name, env, seed=5), env.reset(seed=5), None
    for _ in range(ROUNDS):
        action, state = policy.predict(observation, state)
        assert list(allocator.allocate().values()) == action.tolist()
        observation, *_, info = env.step(action)
        seconds, cancelled = told(observation)
        owing = [i for i in range(N) if len(seconds.get(i, ())) < action[i]]
        lost = [
            i
            for i in owing
            if changes == "dying" and (info["lost"] or not race or i not in cancelled)
        ]
        deaths += len(lost) > 0
        latency = None
        if late:
            latency = dict(enumerate(observation["latency"].tolist()))
        allocator.observe(seconds, cancelled, lost, latency)
    assert deaths > 0 or changes != "dying"
    expected = policy.predict(observation, state)[1]
    allocator.allocate()
    assert difference(expected, allocator._state) is None or changes == "dying"


@pytest.mark.parametrize(
    ("name", "changes", "price"),
    [
        *((name, *world) for name in BY_RESULT for world in (("steady", 0.0), ("changing", 0.3))),
        *((name, "dying", 0.0) for name in ("dispatch", "dispatch-rest", "dispatch-gta")),
    ],
)
def test_the_decisions_are_those_of_the_env(name: str, changes: str, price: float) -> None:
    """The ages of running tasks, which the dispatcher computes where nobody dies, among them."""
    env = gym.make(
        KINDS[name].env_id,
        pool=POOL,
        changes=CHANGES[changes],
        budget=BUDGET,
        price=price,
    )
    try:
        dispatcher = Dispatcher(N, BUDGET, name, price=price, seed=3)
    except ValueError:
        dispatcher = Dispatcher(N, BUDGET, ata_policies.make(name, env, 3))
    deaths = 0
    dying = changes == "dying"
    policy = ata_policies.make(name, env, seed=3)
    bare = env.unwrapped
    (observation, _), state = env.reset(seed=3), None
    for _ in range(30 * BUDGET):
        assert dispatcher.missing == observation["missing"][0]
        (action, state), running = policy.predict(observation, state), observation["running"] > 0
        starts = (action > 0) & ~running & ~dispatcher._round.died
        if (starts | running).any() or not dying:
            if (starts | running).any():
                expected = starts
            else:
                expected = np.ones(N, np.bool_)
            assert dispatcher.start() == tuple(np.flatnonzero(expected).tolist())
        observation, *_, info = env.step(action)
        worker = observation["worker"][0].item()
        over = info["round_over"]
        ages = None
        if dying:
            ran: Any = bare.checkpoint()  # type: ignore[attr-defined]
            seen = observation["elapsed" if over else "age"]  # of the others
            while True:
                dead = [i for i in dispatcher.running if i != worker and not seen[i]]
                for i in dead:
                    dispatcher.lost(i, ran["finish"][0, i] - ran["task_start"][0, i])
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


@pytest.mark.parametrize("name", BY_RESULT[:-1])
def test_a_dispatcher_takes_the_latency_as_a_part_of_the_time_of_a_start(name: str) -> None:
    """The times are halves, so that sums have no rounding."""
    times = np.random.default_rng(0).integers(2, 12, (N, 200)) / 2.0
    pool = trace(list(times), latency=[4.0, 2.5, 0.0, 9.0])
    env = gym.make(KINDS[name].env_id, pool=pool, budget=BUDGET)
    policy = ata_policies.make(name, env, seed=3)
    dispatcher = Dispatcher(N, BUDGET, name, seed=3)
    observation, _ = env.reset(seed=3)
    state = None
    paid = 0
    for _ in range(30 * BUDGET):
        action, state = policy.predict(observation, state)
        starts = (action > 0) & (observation["running"] == 0)
        if not (starts | (observation["running"] > 0)).any():
            starts = np.ones(N, np.bool_)
        assert dispatcher.start() == tuple(np.flatnonzero(starts).tolist())
        observation, *_, info = env.step(action)
        worker = observation["worker"].item()
        latency = observation["latency"][worker]
        paid += latency > 0.0
        over = dispatcher.finished(worker, observation["duration"].item() + latency)
        assert over == info["round_over"]
    assert paid > 0


IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0", "ata_gym/TaskDispatch-v0"]


@pytest.mark.parametrize("env_id", IDS)
def test_a_tick_is_a_round_of_the_policy(env_id: str) -> None:
    clock = Clock(gym.make(env_id, pool=POOL, budget=5, price=0.2), seed=7)
    assert (clock.rounds, clock.runtime, clock.total_worker_time, clock.allocation) == (
        0,
        0.0,
        0.0,
        None,
    )
    env = gym.make(env_id, pool=POOL, budget=5, price=0.2)
    tasks = np.zeros(N, np.int64)
    for step in islice(steps_of(ata_policies.make("default", env, seed=7), env, seed=7), 30):
        running = step.observation.get("running", np.zeros(N, np.int8))
        starts = step.action * (running == 0)
        if (starts + running).any():
            tasks += starts
        else:
            tasks += 1
        if step.round_over:
            rounds = clock.rounds
            assert clock.tick() == clock.runtime == step.info["runtime"]
            assert (clock.rounds, clock.total_worker_time) == (
                rounds + 1,
                step.info["total_worker_time"],
            )
            assert clock.allocation is not None
            assert clock.allocation.tolist() == tasks.tolist()
            tasks[:] = 0


def test_wrappers_see_the_rounds() -> None:
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(IDS[0], pool=POOL, budget=5, horizon=3))
    clock = Clock(env, ata_policies.make("uta", env))
    for _ in range(3):
        clock.tick()
    assert env.return_queue[-1] == pytest.approx(-clock.runtime)


@pytest.mark.parametrize("env_id", IDS)
def test_after_the_episode_there_is_no_time(env_id: str) -> None:
    clock = Clock(
        gym.make(env_id, pool=trace([[1.0, 2.0], [1.0, 3.0]], "round", "truncate"), budget=1),
    )
    clock.tick()
    runtime = clock.tick()
    with pytest.raises(
        ValueError,
        match=r"the episode ended after 2 rounds: make the env with a longer horizon",
    ):
        clock.tick()
    assert (clock.rounds, clock.runtime) == (2, runtime)


def test_what_is_refused() -> None:
    env, other = (gym.make(IDS[0], pool=POOL, budget=budget) for budget in (5, 4))
    vector: Any = gym.make_vec(IDS[0], num_envs=2, pool=POOL, budget=5)
    for given, said in (
        ((vector,), r"a clock is a single env of ata_gym, made with gymnasium.make, not "),
        ((gym.make("CartPole-v1"),), "a clock is a single env of ata_gym"),
        ((env, "gta"), "gta plays ata_gym/TaskRace-v0, and this env is"),
        (
            (other, ata_policies.make("uta", env)),
            "the policy must be made for the env's 4 workers and B = 4",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            Clock(*given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed must be a whole number"):
        Clock(env, seed=-1)


@pytest.mark.parametrize("pool", [POOL, LATE])
@pytest.mark.parametrize("env_id", IDS[:2])
@pytest.mark.parametrize("rounds", [0, 1, 25])
def test_an_allocator_goes_on_where_a_clock_is(env_id: str, rounds: int, pool: Any) -> None:
    clock = Clock(gym.make(env_id, pool=pool, budget=5, price=0.2), seed=7)
    for _ in range(rounds):
        clock.tick()
    names = [f"gpu{i}" for i in range(N)]
    allocator = clock.allocator(names)
    state = allocator.state_dict()
    tasks = allocator.allocate()
    clock.tick()
    assert clock.allocation is not None
    assert tasks == dict(zip(names, clock.allocation.tolist(), strict=True))
    # the clock has gone on, and what was handed over has not changed with it
    restored = Allocator(
        names, 5, clock.policy, start_more=env_id == "ata_gym/TaskRace-v0", prior=state
    )
    assert restored.allocate() == tasks


def test_an_allocator_is_for_the_workers_of_the_clock() -> None:
    clock = Clock(gym.make(IDS[0], pool=POOL, budget=5))
    with pytest.raises(ValueError, match="is made for 4 workers and B = 5, not for 3 and 5"):
        clock.allocator(["a", "b", "c"])
    with pytest.raises(ValueError, match="this clock plays dispatch"):
        Clock(gym.make(IDS[2], pool=POOL, budget=5)).allocator(range(N))


def by_array(state: dict[str, Any]) -> Any:
    file = io.BytesIO()
    np.savez(file, **state)
    return np.load(io.BytesIO(file.getvalue()), allow_pickle=False)


def by_torch(state: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(state, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def text(state: dict[str, Any]) -> str:
    return json.dumps(state)


def by_json(state: dict[str, Any]) -> Any:
    return json.loads(text(state))


FORMATS: list[Callable[[dict[str, Any]], Any]] = [by_array, by_torch, by_json]


def play(loop: Any, steps: int) -> list[Any]:
    """What it says in some steps, with times that depend on the worker and on what it was given."""
    said: list[Any] = []
    for step in range(steps):
        if isinstance(loop, Allocator):
            shares = loop.allocate()
            said.append(shares)
            ends = sorted(
                ((j + 1.0) * (i + 1.0), i)
                for i, own in enumerate(shares.values())
                for j in range(own)
            )
            done = [i for _, i in ends[: loop.budget]]
            names = list(shares)
            seconds = {
                name: [i + 1.0 + 0.1 * j for j in range(done.count(i))]
                for i, name in enumerate(names)
            }
            short = [name for i, name in enumerate(names) if done.count(i) < shares[name]]
            latency = {name: 0.25 * (i + 1) for i, name in enumerate(names) if shares[name]}
            loop.observe(seconds, dict.fromkeys(short, 0.5), latency=latency)
        elif isinstance(loop, Dispatcher):
            said.append(loop.start())
            loop.finished(loop.running[step % len(loop.running)], 1.0 + step % 3)
        else:
            said.append((loop.tick(), loop.allocation.tolist(), loop.total_worker_time))
    return said


def made(name: str) -> Any:
    env = gym.make(KINDS[name].env_id, pool=POOL, budget=BUDGET, price=0.1)
    policy = ata_policies.make(name, env, seed=2)
    if "Dispatch" in KINDS[name].env_id:
        return Dispatcher(N, BUDGET, policy)
    return Allocator(N, BUDGET, policy, start_more="Race" in KINDS[name].env_id)


@pytest.mark.parametrize(
    "name",
    [name for name in BY_KIND if name in KINDS and not KINDS[name].privileged] + ["lb-bsp-narx"],
)
def test_goes_on_bit_for_bit(name: str) -> None:
    one = made(name)
    other = made(name)
    play(one, 10)
    one.start() if isinstance(one, Dispatcher) else one.allocate()  # within a round
    kept = one.state_dict()
    expected = play(one, 10)
    for through in FORMATS:
        other.load_state_dict(through(kept))
        assert (text(other.state_dict()), play(other, 10)) == (text(kept), expected)
    assert text(other.state_dict()) == text(one.state_dict())


@pytest.mark.parametrize(
    ("env_id", "through"),
    list(zip(["TaskAllocation", "TaskRace", "TaskDispatch"], FORMATS, strict=True)),
)
def test_workers_that_have_come_and_gone_go_on_too(env_id: str, through: Any) -> None:
    def start() -> Any:
        if env_id == "TaskDispatch":
            return Dispatcher(["a", "b", "7"], BUDGET, price=0.1)
        if env_id == "TaskAllocation":
            policy = "thompson"
        else:
            policy = "default"
        return Allocator(["a", "b", "7"], BUDGET, policy, start_more=env_id == "TaskRace")

    one = start()
    other = start()
    for change, worker in ((one.join, 7), (one.leave, "b"), (one.join, "ü"), (one.leave, "a")):
        play(one, 5)
        change(worker)
    play(one, 5)
    kept = copy.deepcopy(one.state_dict())
    other.load_state_dict(through(kept))
    assert (other.places, other.workers) == (one.places, one.workers)
    for loop in (one, other):
        loop.join("a")
    assert play(other, 10) == play(one, 10)
    fresh = start()
    other.load_state_dict(fresh.state_dict())
    assert play(other, 10) == play(fresh, 10)


@pytest.mark.parametrize(
    ("name", "through"),
    [
        ("distribution-learner", by_array),
        ("dynamic-ofta", by_torch),
        ("race", by_json),
        ("dispatch", by_array),
        ("lb-bsp-linear", by_json),
    ],
)
def test_a_clock_goes_on_bit_for_bit(name: str, through: Any) -> None:
    def start() -> Clock:
        changes = [Walk(0.1, 0.7), Switch(every=4)]
        env = gym.make(KINDS[name].env_id, pool=POOL, budget=BUDGET, horizon=20, changes=changes)
        return Clock(env, name, seed=4)

    one = start()
    other = start()
    begun = one.state_dict()
    whole = play(one, 10)
    kept = copy.deepcopy(one.state_dict())
    rest = play(one, 10)
    play(other, 3)
    other.load_state_dict(through(kept))
    assert (other.rounds, other.runtime) == (10, whole[-1][0])
    assert play(other, 10) == rest
    with pytest.raises(ValueError, match="the episode ended after 20 rounds"):
        other.tick()
    with pytest.raises(ValueError, match="this state does not fit"):
        other.load_state_dict({**kept, "clock.runtime": [1.0]})
    other.load_state_dict(through(begun))
    assert other.allocation is None
    assert play(other, 20) == whole + rest


@pytest.mark.parametrize("n", [SLOTS - 2, SLOTS])
def test_workers_that_join_one_by_one_never_share_what_is_kept(n: int) -> None:
    """Of more than 1,024 workers, the times of the fastest 1,024 are kept in full."""
    belief = DistributionBelief.empty(1, n).observe(
        np.array([[7]]),
        np.array([[9.0]]),
        np.zeros((1, n)),
    )
    for more in range(n + 1, SLOTS + 4):
        belief = widened(belief, DistributionBelief.empty(1, more))
        belief = belief.observe(
            np.array([[more - 1]]),
            np.array([[1.0 / more]]),
            np.zeros((1, more)),
        )
        owned = np.flatnonzero(belief.slot[0] >= 0)
        assert (owned.size, belief.owner[0, belief.slot[0, owned]].tolist()) == (
            min(more, SLOTS),
            owned.tolist(),
        )
        assert owned[-1] == more - 1


def resealed(state: dict[str, Any]) -> dict[str, Any]:
    return sealed({name: value for name, value in state.items() if name != "checksum"})


def changed(leaf: Any, value: Any) -> Any:
    array = np.array(leaf)
    array.reshape(-1)[0] = value
    return array.tolist()


@pytest.mark.parametrize(
    ("name", "through", "keys"),
    [
        ("ata", by_array, ("state.belief.counts", "round.elapsed")),
        ("distribution-learner", by_json, ("state.belief.slot", "state.plan.availability.wait")),
        ("race", by_json, ("round.elapsed",)),
        ("dispatch", by_array, ("round.begun", "state.belief.distributions.owner")),
    ],
)
def test_a_state_that_does_not_fit_or_was_changed_is_refused_and_changes_nothing(
    name,
    through,
    keys,
) -> None:
    loop = made(name)
    play(loop, 5)
    if isinstance(loop, Allocator):
        loop.allocate()
    kept = copy.deepcopy(loop.state_dict())
    counts = next(key for key in kept if key.endswith(".counts"))
    unfit: list[dict[str, Any]] = [
        {},
        *({**kept, "workers": wrong} for wrong in ("[0, 1, 1, 2]", "[0, 1]", "{", 3)),
        *({**kept, counts: wrong} for wrong in (kept[counts][0], [["1"] * N], None)),
        {**kept, "budget": 7},
        {**kept, "policy": "Uta"},
        {**kept, "state.round": [0.5]},
        {key: value for key, value in kept.items() if key != counts},
    ]
    without = {key: value for key, value in kept.items() if key != "checksum"}
    refused = [
        (state, "this is no state of|this state does not fit|is made for") for state in unfit
    ]
    refused += [
        (
            through({**kept, "state.episode": [7]}),
            "its checksum belongs to other values, .* damaged; load another",
        ),
        (through(without), r"this state has no checksum: load all that state_dict\(\) gave"),
    ]
    for key in keys:
        for value in (-2, -1000000):
            state = through(resealed({**kept, key: changed(kept[key], value)}))
            refused.append((state, rf"{key.partition('.')[2]} must be from .*, and holds {value}"))
    if name == "ata":
        refused.append(
            (
                resealed({**kept, "round.action": [6, 6, 0, 0]}),
                "must sum to the budget of 6, not to",
            ),
        )
    for state, said in refused:
        with pytest.raises(ValueError, match=said):
            loop.load_state_dict(state)
        assert loop.state_dict() == kept
    loop.load_state_dict(through(resealed(kept)))


@pytest.mark.parametrize("kind", [Allocator, Dispatcher])
def test_a_prior_that_is_none_is_refused_by_file_and_field(kind: Any, tmp_path: Path) -> None:
    loop = kind(2, 3, "dispatch-gta" if kind is Dispatcher else "uta")
    path = tmp_path / "prior.json"

    def read(prior: Any = path) -> Any:
        return kind(2, 3, "dispatch-gta" if kind is Dispatcher else "uta", prior=prior)

    for wrapped in (loop.state_dict(), {"allocator": loop.state_dict()}):
        path.write_text(json.dumps(wrapped))
        read()
    for content, said in (
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("5", "no object, but 5"),
        ("[1]", r"no object, but \[1\]"),
        ("{", "Expecting property name"),
        ('{"allocator": [1]}', r", but \[1\]"),
        (b"\xff\xfe{", "cannot be read as a JSON object"),
    ):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError, match=f"{path}.*{said}"):
            read()
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    for wrong in (deep, 5, [1], {"allocator": deep}):
        with pytest.raises(ValueError, match="this is no state of"):
            read(wrong)
    for one in mutations(loop.state_dict()):
        path.write_text(json.dumps(one.document))
        try:
            if read().state_dict() == loop.state_dict():
                said = None
            else:
                said = "another state"
        except ValueError as error:
            said = str(error)
        if said is not None:  # else the value is the same number in another type
            assert said.startswith(f"the prior {path}: "), one
            assert (
                one.field.partition("[")[0] in said
                or "its checksum belongs to other values" in said
            ), (one, said)
    for key in loop.state_dict():
        with pytest.raises(ValueError, match=key.partition(".")[2] or key):
            loop.load_state_dict({**loop.state_dict(), key: deep})


def test_a_clock_does_not_go_on_from_what_no_clock_has() -> None:
    clock = Clock(
        gym.make("ata_gym/TaskDispatch-v0", pool=POOL, budget=BUDGET),
        "dispatch-rest",
        seed=4,
    )
    play(clock, 3)
    kept = copy.deepcopy(clock.state_dict())
    wrong = {"clock.runtime": np.inf, "clock.rounds": -1}
    times = ("clock.total_worker_time", "env.finish", "observation.duration", "policy.plan.mean")
    wrong |= dict.fromkeys(times, np.nan)
    for key, value in (*wrong.items(), ("env.runtime", np.inf)):
        with pytest.raises(ValueError, match=key.rpartition(".")[2]):
            clock.load_state_dict(resealed({**kept, key: changed(kept[key], value)}))
    with pytest.raises(ValueError, match="its checksum belongs to other values"):
        clock.load_state_dict({**kept, "clock.runtime": kept["clock.runtime"] / 2})
    for none in ([kept], 5, None):
        with pytest.raises(ValueError, match=r"a state is what state_dict\(\) gave, not "):
            clock.load_state_dict(none)  # type: ignore[arg-type]
    assert text(clock.state_dict()) == text(kept)
