"""Broken policies, one for each fault, and the sentence that names it."""

import random
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from ata_gym import allocate
from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.utils.ranges import Within
from ata_policies import (
    AllocationPolicy,
    Policy,
    Setting,
    State,
)
from ata_policies.dispatch.oracles import DispatchGta

SAID = {"source": "ours", "constants": "none", "assumes": "nothing"}
START = "where the worker is -1 an episode begins, but "
ANOTHER = "a row of a batch has another action "
CANNOT = "cannot be made for 5 workers and B = 7: "
ILLEGAL = "illegal in round 1: "
GLOBAL = (
    "draws from the global generator of numpy.random: draw with ata_gym.simulation.keys.uniforms"
)
LOOKS = 'says knows = "nothing", so setting.pool is not given to it'


class Count(NamedTuple):
    rounds: Any


class Few(NamedTuple):
    rounds: Annotated[Any, Within(0, 4)]


class Sound(AllocationPolicy):
    """Allocates by the mean times, from 0 up: keeps every rule."""

    source = "ours"
    constants = "none"
    assumes = "nothing"

    def scores(self, state: State) -> Any:
        return np.nan_to_num(state.belief.mean())

    def allocate(self, state: State) -> Any:
        return allocate(self.scores(state), self.setting.budget, state.round_keys())


class Counting(Sound):
    """Has a plan: keeps every rule."""

    def first_plan(self, rows: int) -> Any:
        return Count(np.zeros(rows))

    def act(self, state: State, observation: Any) -> Any:
        del observation
        return self.allocate(state), state._replace(plan=self.counted(state.plan.rounds))

    def counted(self, rounds: Any) -> Any:
        return Count(rounds + 1)


def broken(name: str, base: type, **attributes: Any) -> Any:
    """A policy that differs from another one by this; ``made`` is done when it is made."""
    if (made := attributes.pop("made", None)) is not None:

        def initialise(self: Any, setting: Setting, *, seed: int = 0) -> None:
            base.__init__(self, setting, seed=seed)  # type: ignore[misc]
            made(self)

        attributes["__init__"] = initialise
    return type(name, (base,), {"__doc__": base.__doc__, **attributes})


def allocates(change: Any) -> dict[str, Any]:
    return {"allocate": lambda self, state: change(Sound.allocate(self, state), self, state)}


def sees(change: Any) -> dict[str, Any]:
    """A ``predict`` that is given some fields of the observation in another form."""

    def predict(self: Any, observation: Any, *args: Any, **kwargs: Any) -> Any:
        return Policy.predict(self, observation | change(self, observation), *args, **kwargs)

    return {"predict": predict}


def as_a_batch(self: Any, observation: Any, *args: Any, **kwargs: Any) -> Any:
    action, state = Policy.predict(self, observation, *args, **kwargs)
    return np.atleast_2d(action), state


def takes_any_state(
    self: Any,
    observation: Any,
    state: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    fits = state is not None and len(state.round) == len(np.atleast_2d(observation["worker"]))
    return Policy.predict(self, observation, state if fits else None, *args, **kwargs)


def decides_for_all(self: Any, state: State) -> Any:
    if np.any(state.round % 3 == 0):
        return Sound.scores(self, state)
    return np.ones_like(state.belief.totals)


def fails_at_zero(_: Any, state: State) -> Any:
    mean = state.belief.mean()
    return np.where(state.belief.untried(), 0.0, np.where(mean == 0.0, np.nan, mean))


def hides(self: Any) -> None:
    """What a closure holds cannot be looked at, but it is missed where a new policy goes on."""
    hidden = [np.zeros((1, self.setting.n))]
    self.swap = lambda new: (hidden.append(new), hidden.pop(0))[1]


def from_hidden(self: Any, state: State) -> Any:
    last = self.swap(np.nan_to_num(state.belief.mean()))
    return np.where(
        (state.round == 1)[:, None],
        0.0,
        np.broadcast_to(last, state.belief.totals.shape),
    )


def counts_on(allocation: Any, self: Any, _: State) -> Any:
    self.rounds += 1
    return allocation


def in_place(_: Any, rounds: Any) -> Any:
    rounds += 1
    return Count(rounds)


def of_a_local_class(_: Any, rounds: Any) -> Any:
    class Local(NamedTuple):
        rounds: Any

    return Local(rounds)


def set_in_place(_: Any, state: State, *__: Any) -> State:
    state.plan.rounds[:] = 99.0
    return state


def writes(self: Any, state: State, observation: Any) -> Any:
    observation["elapsed"] += 1.0
    return AllocationPolicy.act(self, state, observation)


def never_forgets(self: Any, observation: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
    action, after = Policy.predict(self, observation, state, *args, **kwargs)
    return action, after if state is None else after._replace(plan=Count(state.plan.rounds + 1))


def forgets_together(
    self: Any,
    observation: Any,
    state: Any = None,
    episode_start: Any = None,
    **kwargs: Any,
) -> Any:
    worker = np.atleast_2d(observation["worker"])
    if worker.min() < 0:
        episode_start = np.full(len(worker), True)
    return Policy.predict(self, observation, state, episode_start, **kwargs)


def halves_what_it_has_seen(self: Any, state: State) -> Any:
    state.belief.totals[:] *= 0.5
    return Sound.allocate(self, state)


def in_proportion_to_the_means(self: Any, state: State) -> Any:
    return allocate(1.0 / np.maximum(Sound.scores(self, state), 1e-9), self.setting.budget)


def turned_around(self: Any, state: State, observation: Any) -> Any:
    return AllocationPolicy.act(self, state, observation)[0][:, ::-1].copy(), state


def of_means(change: Any) -> dict[str, Any]:
    """Scores that are a function of the mean times."""
    return {"scores": lambda self, state: change(Sound.scores(self, state), state)}


def drawn(keys: Any) -> dict[str, Any]:
    """Scores that are mean times multiplied by draws from keys that follow from the state."""
    return of_means(lambda means, state: (means + 1e-9) * uniforms(keys(state), means.shape[1]))


def explores_seldom(allocation: Any, self: Any, state: State) -> Any:
    """In one of ten rows, and always the same ones, all tasks go to the last worker."""
    explores = uniforms(derive_keys(state.key, 0, 5), 1) < 0.1
    return np.where(
        explores,
        np.eye(self.setting.n, dtype=int)[-1] * self.setting.budget,
        allocation,
    )


def late(round: int, change: Any, episode: int = 1) -> dict[str, Any]:
    """From a round, or an episode, on the allocation is another one."""

    def changed(allocation: Any, _: Any, state: State) -> Any:
        now = (state.round >= round) & (state.episode >= episode)
        if now.any():
            return change(allocation, now[:, None])
        return allocation

    return allocates(changed)


def pool_scores(self: Any, state: State) -> Any:
    pool = self.setting.pool
    return np.zeros_like(state.belief.totals) + (1.0 if pool is None else pool.mean())


def of_the_class() -> Iterator[tuple[Any, str]]:
    yield type("NoPolicy", (), {}), "must be a subclass of AllocationPolicy or DispatchPolicy"
    yield broken("Unfinished", AllocationPolicy, **SAID), "must define allocate"
    other = "env_id must be ata_gym/TaskAllocation-v0 or .*, not 'ata_gym/TaskAllocation-v1'"
    yield broken("AnotherEnv", Sound, env_id="ata_gym/TaskAllocation-v1"), other
    seedless = {"__init__": lambda _, __: None}
    yield broken("Seedless", Sound, **seedless), f"{CANNOT}TypeError: .*'seed'"
    alone = "cannot be made for 1 workers and B = 4: ZeroDivisionError"
    yield broken("CannotBeAlone", Sound, made=lambda self: 1 / (self.setting.n - 1)), alone


def of_actions() -> Iterator[tuple[Any, str]]:
    short = allocates(lambda a, self, _: a - np.eye(self.setting.n, dtype=int)[0])
    sums = f"{ILLEGAL}.*negative|{ILLEGAL}.*row 0 must sum to the budget of 7, not to 6"
    yield broken("ShortSum", Sound, **short), sums
    one_row = rf"{ILLEGAL}.*must have shape \(3, 5\), not \(5,\)"
    yield broken("OneForAll", Sound, **allocates(lambda a, *_: a[0])), one_row
    yield (
        broken("Lists", Sound, **allocates(lambda a, *_: a.tolist())),
        "must be a NumPy array, not list",
    )
    twos = {
        "act": lambda self, state, observation: (
            2 * DispatchGta.act(self, state, observation)[0],
            state,
        )
    }
    yield broken("Twos", DispatchGta, **twos), f"{ILLEGAL}worker 0 of row 0 must have 0 or 1, not 2"
    batch = r"for a single env its action must have shape \(5,\), not \(1, 5\)"
    yield broken("AlwaysABatch", Sound, predict=as_a_batch), batch
    bare = {"predict": lambda *args, **kwargs: Policy.predict(*args, **kwargs)[0]}
    yield broken("BareAction", Sound, **bare), "predict must give an action and a State"
    no_start = {
        "predict": lambda self, observation, state=None: Policy.predict(self, observation, state),
    }
    yield (
        broken("NoEpisodeStart", Sound, **no_start),
        "predict raises TypeError: .*(episode_start|deterministic)",
    )


def of_randomness() -> Iterator[tuple[Any, str]]:
    legacy = allocates(lambda a, *_: a + 0 * int(np.random.rand()))  # noqa: NPY002
    yield broken("GlobalNumPy", Sound, **legacy), GLOBAL
    plain = allocates(lambda a, *_: a + 0 * int(random.random()))
    yield broken("GlobalRandom", Sound, **plain), "draws from the global generator of random:"
    unseeded = {
        "scores": (
            lambda self, state: np.random.default_rng().random(
                (len(state.round), self.setting.n),
            )
        ),
    }
    yield (
        broken("Unseeded", Sound, **unseeded),
        "made again with the same seed, it has another action in round 1",
    )

    def for_the_batch(self: Any, state: State) -> Any:
        return uniforms(state.round_keys()[:1], len(state.round) * self.setting.n).reshape(
            -1,
            self.setting.n,
        )

    yield (
        broken("DrawsForTheBatch", Sound, scores=for_the_batch),
        f"{ANOTHER}in round 1 than the same row alone: .* round what a network answers",
    )
    mixed = f"{ANOTHER}beside rows that are at other rounds"
    yield broken("DecidesForAll", Sound, scores=decides_for_all), mixed
    zero = "where all durations are 0, in round 2: predict raises ValueError: scores must be finite"
    yield broken("FailsAtZero", Sound, scores=fails_at_zero), zero
    given = "predict says nothing: raise ValueError"
    times = sees(
        lambda _, observation: {name: np.nan_to_num(field) for name, field in observation.items()}
    )
    yield broken("TakesForeignTimes", Sound, **times), f"given durations that are NaN, {given}"
    unknown = sees(
        lambda self, observation: {"worker": np.minimum(observation["worker"], self.setting.n - 1)}
    )
    yield (
        broken("TakesUnknownWorkers", Sound, **unknown),
        f"given results of a worker that is not there, {given}",
    )
    foreign = sees(
        lambda self, observation: {"elapsed": observation["elapsed"][..., : self.setting.n]}
    )
    yield (
        broken("TakesForeignWorkers", Sound, **foreign),
        f"given an observation of 6 workers, {given}",
    )
    rows = f"given a state of 3 rows with an observation of 2, {given}"
    yield broken("TakesAnyState", Sound, predict=takes_any_state), rows


def of_memory() -> Iterator[tuple[Any, str]]:
    yield (
        broken("Remembers", Sound, rounds=0, **allocates(counts_on)),
        "predict changes self.rounds",
    )
    saved = "going on from a saved state, it has another action in round 11"
    yield broken("HidesAMemory", Sound, made=hides, scores=from_hidden), saved
    yield (
        broken("CountsInPlace", Counting, counted=in_place),
        "changes state.plan.rounds of the state that it was given",
    )
    grows = {"counted": lambda _, rounds: Count(np.zeros((len(rounds), 2)))}
    form = (
        r"keep the form of first_state.*plan.rounds must hold float64 of shape \(3,\), not float64"
        r" of shape \(3, 2\)"
    )
    yield broken("Grows", Counting, **grows), form
    local = {
        "first_plan": lambda _, rows: of_a_local_class(_, np.zeros(rows)),
        "counted": of_a_local_class,
    }
    yield (
        broken("Local", Counting, **local),
        "define the classes of belief and plan at the top of a module",
    )
    far = {
        "first_plan": lambda _, rows: Few(np.zeros(rows)),
        "counted": lambda _, rounds: Few(rounds + 1),
    }
    too_far = (
        "state is not one that this CountsTooFar can have: plan.rounds must be from 0 to 4, and"
        " holds 5"
    )
    yield broken("CountsTooFar", Counting, **far), too_far
    forgets = {"note_absences": lambda _, state, *__: state._replace(plan=())}
    no_state = "note_absences gives no state that it can have: the state is not one of this"
    yield broken("ForgetsItsPlan", Counting, **forgets), no_state
    changed = "note_absences changes plan.rounds of the state in place: make new arrays"
    yield broken("IsChangedInPlace", Counting, note_absences=set_in_place), changed
    yield (
        broken("WritesToTheObservation", Sound, act=writes),
        r"predict changes observation\['elapsed'\]",
    )


def of_episodes() -> Iterator[tuple[Any, str]]:
    kept = f"{START}the state.plan.rounds is not a new one's"
    yield broken("NeverForgets", Counting, predict=never_forgets), kept
    spread = "where one row begins an episode, the .* of another changes"
    yield broken("ForgetsTogether", Sound, predict=forgets_together), spread
    deaf = {
        "predict": lambda *given, **more: Policy.predict(*given, **more | {"episode_start": None}),
    }
    yield (
        broken("IgnoresEpisodeStart", Sound, **deaf),
        "where episode_start is True an episode begins",
    )


def of_explain() -> Iterator[tuple[Any, str]]:
    halved = "explain changes state.belief.totals in place, and so what is learned from it"
    yield broken("HalvesItsTotals", Sound, allocate=halves_what_it_has_seen), halved


def of_the_unit_of_time() -> Iterator[tuple[Any, str]]:
    unit = "in another unit of time it has another action in round"
    thousandth = "divided by 1,024"
    prior = of_means(
        lambda means, state: (means * state.belief.counts + 2.0) / (state.belief.counts + 1.0),
    )
    yield broken("PriorOf2Seconds", Sound, **prior), unit
    yield (
        broken("AtMost40Seconds", Sound, **of_means(lambda means, _: np.minimum(means, 40.0))),
        unit,
    )
    yield (
        broken("AtLeastACentisecond", Sound, **of_means(lambda means, _: np.maximum(means, 0.01))),
        f"{unit}.*{thousandth}",
    )
    fails = of_means(lambda means, _: np.where(means > 500.0, np.nan, means))
    yield (
        broken("FailsAt500", Sound, **fails),
        "where all times are multiplied by 1,024, predict raises ValueError",
    )
    in_seconds = {
        "act": lambda _, state, observation: ((observation["age"] < 3.0).astype(np.int64), state)
    }
    yield broken("Waits3Seconds", DispatchGta, **in_seconds), unit


def of_draws_over_time() -> Iterator[tuple[Any, str]]:
    alike = "it draws the same in every"
    yield (
        broken("DrawsOnce", Sound, **drawn(lambda state: derive_keys(state.key, 0, 0))),
        f"{alike} round",
    )
    by_episode = drawn(lambda state: derive_keys(state.key, state.episode, 0))
    yield broken("DrawsByTheEpisode", Sound, **by_episode), f"{alike} round"
    seldom = allocates(explores_seldom)
    yield broken("ExploresInTheSameRows", Sound, **seldom), f"{alike} round"
    by_round = drawn(lambda state: derive_keys(state.key, 0, state.round))
    yield broken("DrawsByTheRound", Sound, **by_round), f"{alike} episode"
    ties = {
        "allocate": lambda self, state: allocate(
            Sound.scores(self, state),
            self.setting.budget,
            state.key,
        ),
    }
    yield broken("BreaksTiesOnce", Sound, **ties), f"{alike} episode"


def that_come_late() -> Iterator[tuple[Any, str]]:
    one_more = late(150, lambda tasks, now: tasks + now * (np.arange(5) == 2))
    run = "of a longer run"
    of_8 = "must sum to the budget of 7, not to 8"
    yield (
        broken("OneMoreAt150", Sound, **one_more),
        f"in round 150 of episode 1 {run} its action is illegal: .*{of_8}",
    )
    breaks = late(90, lambda tasks, _: tasks // 0)
    yield (
        broken("DividesAt90", Sound, **breaks),
        f"in round 90 of episode 1 {run} its action is illegal|FloatingPoint",
    )
    third = late(1, lambda tasks, now: tasks + now * (np.arange(5) == 0), episode=8)
    yield (
        broken("OneMoreInEpisode8", Sound, **third),
        f"in round 1 of episode 7 {run} its action is illegal: .*{of_8}",
    )
    draws = late(75, lambda tasks, _: tasks + 0 * int(np.random.rand()))  # noqa: NPY002
    yield broken("GlobalAt75", Sound, **draws), GLOBAL
    together = late(60, lambda tasks, now: np.where(now, tasks[:1], tasks))
    yield (
        broken("FirstRowAt60", Sound, **together),
        f"has another action in round [0-9]+ {run} than the same row alone",
    )


def of_what_it_says() -> Iterator[tuple[Any, str]]:
    yield broken("LooksAtThePool", Sound, scores=pool_scores), LOOKS
    needs = {"made": lambda self: self.setting.pool.mean(), "scores": pool_scores}
    yield broken("NeedsThePool", Sound, **needs), LOOKS
    price = {
        "scores": lambda self, state: (
            Sound.scores(self, state) + np.arange(5) * (self.setting.price > 1)
        ),
    }
    yield broken("SecretlyPriced", Sound, **price), "depends on the price: set priced = True"


def faults() -> Iterator[tuple[Any, str]]:
    """All broken policies, each with a pattern of its sentence."""
    yield from of_the_class()
    yield from of_actions()
    yield from of_randomness()
    yield from of_memory()
    yield from of_episodes()
    yield from of_explain()
    yield from of_the_unit_of_time()
    yield from of_draws_over_time()
    yield from that_come_late()
    yield from of_what_it_says()
