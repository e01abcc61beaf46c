"""Broken policies, one for each fault, each caught with its sentence and nothing else."""

import random
import re
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from ata_gym.simulation.keys import derive_keys, uniforms
from ata_gym.utils.ranges import Within
from ata_policies import AllocationPolicy, DispatchPolicy, Policy, PolicyError, Setting, State, check_policy
from ata_policies.checking import invariance
from ata_policies.checking.check import examine
from ata_policies.checking.contract import ContractCheck
from ata_policies.dispatch.oracles import DispatchGta

SAID = {"source": "ours", "constants": "none", "assumes": "nothing"}


class Count(NamedTuple):
    seen: Any


class Few(NamedTuple):
    seen: Annotated[Any, Within(0, 4)]


class Sound(AllocationPolicy):
    """Allocates by the mean times, from 0 up: keeps every rule."""

    source, constants, assumes = "ours", "none", "nothing"

    def scores(self, state: State) -> Any:
        return np.nan_to_num(state.belief.mean())

    def allocate(self, state: State) -> Any:
        return allocate(self.scores(state), self.setting.budget, state.round_keys())


class Counting(Sound):
    """Has a plan: keeps every rule."""

    def first_plan(self, rows: int) -> Any:
        return Count(np.zeros(rows))

    def act(self, state: State, seen: Any) -> Any:
        del seen
        return self.allocate(state), state._replace(plan=self.counted(state.plan.seen))

    def counted(self, seen: Any) -> Any:
        return Count(seen + 1)


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


def takes_any_state(self: Any, observation: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
    fits = state is not None and len(state.round) == len(np.atleast_2d(observation["worker"]))
    return Policy.predict(self, observation, state if fits else None, *args, **kwargs)


def decides_for_all(self: Any, state: State) -> Any:
    return Sound.scores(self, state) if np.any(state.round % 3 == 0) else np.ones_like(state.belief.totals)


def fails_at_zero(_: Any, state: State) -> Any:
    mean = state.belief.mean()
    return np.where(state.belief.untried(), 0.0, np.where(mean == 0.0, np.nan, mean))


def hides(self: Any) -> None:
    """What a closure holds cannot be looked at, but it is missed where a new policy goes on."""
    hidden = [np.zeros((1, self.setting.n))]
    self.swap = lambda new: (hidden.append(new), hidden.pop(0))[1]


def from_hidden(self: Any, state: State) -> Any:
    last = self.swap(np.nan_to_num(state.belief.mean()))
    return np.where((state.round == 1)[:, None], 0.0, np.broadcast_to(last, state.belief.totals.shape))


def counts_on(allocation: Any, self: Any, _: State) -> Any:
    self.rounds += 1
    return allocation


def in_place(_: Any, seen: Any) -> Any:
    seen += 1
    return Count(seen)


def of_a_local_class(_: Any, seen: Any) -> Any:
    class Local(NamedTuple):
        seen: Any

    return Local(seen)


def set_in_place(_: Any, state: State, *__: Any) -> State:
    state.plan.seen[:] = 99.0
    return state


def writes(self: Any, state: State, seen: Any) -> Any:
    seen["elapsed"] += 1.0
    return AllocationPolicy.act(self, state, seen)


def never_forgets(self: Any, observation: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
    action, after = Policy.predict(self, observation, state, *args, **kwargs)
    return action, after if state is None else after._replace(plan=Count(state.plan.seen + 1))


def forgets_together(self: Any, observation: Any, state: Any = None, episode_start: Any = None, **kwargs: Any) -> Any:
    worker = np.atleast_2d(observation["worker"])
    if worker.min() < 0:
        episode_start = np.full(len(worker), True)
    return Policy.predict(self, observation, state, episode_start, **kwargs)


def halves_what_it_has_seen(self: Any, state: State) -> Any:
    state.belief.totals[:] *= 0.5
    return Sound.allocate(self, state)


def in_proportion_to_the_means(self: Any, state: State) -> Any:
    return allocate(1.0 / np.maximum(Sound.scores(self, state), 1e-9), self.setting.budget)


def turned_around(self: Any, state: State, seen: Any) -> Any:
    return AllocationPolicy.act(self, state, seen)[0][:, ::-1].copy(), state


def of_means(change: Any) -> dict[str, Any]:
    """Scores that are a function of the mean times."""
    return {"scores": lambda self, state: change(Sound.scores(self, state), state)}


def drawn(keys: Any) -> dict[str, Any]:
    """Scores that are mean times multiplied by draws from keys that follow from the state."""
    return of_means(lambda means, state: (means + 1e-9) * uniforms(keys(state), means.shape[1]))


def explores_seldom(allocation: Any, self: Any, state: State) -> Any:
    """In one of ten rows, and always the same ones, all tasks go to the last worker."""
    explores = uniforms(derive_keys(state.key, 0, 5), 1) < 0.1
    return np.where(explores, np.eye(self.setting.n, dtype=int)[-1] * self.setting.budget, allocation)


def late(round: int, change: Any, episode: int = 1) -> dict[str, Any]:
    """From a round, or an episode, on the allocation is another one."""

    def changed(allocation: Any, _: Any, state: State) -> Any:
        now = (state.round >= round) & (state.episode >= episode)
        return change(allocation, now[:, None]) if now.any() else allocation

    return allocates(changed)


def pool_scores(self: Any, state: State) -> Any:
    pool = self.setting.pool
    return np.zeros_like(state.belief.totals) + (1.0 if pool is None else pool.mean())


def faults() -> Iterator[tuple[Any, str]]:
    start, another = "where the worker is -1 an episode begins, but ", "a row of a batch has another action "
    cannot, illegal = "cannot be made for 5 workers and B = 7: ", "illegal in round 1: "
    looks = 'says knows = "nothing", so setting.pool is not given to it'
    # the class
    yield type("NoPolicy", (), {}), "must be a subclass of AllocationPolicy or DispatchPolicy"
    yield broken("Unfinished", AllocationPolicy, **SAID), "must define allocate"
    other = "env_id must be ata_gym/TaskAllocation-v0 or .*, not 'ata_gym/TaskAllocation-v1'"
    yield broken("AnotherEnv", Sound, env_id="ata_gym/TaskAllocation-v1"), other
    seedless = {"__init__": lambda _, __: None}
    yield broken("Seedless", Sound, **seedless), f"{cannot}TypeError: .*'seed'"
    alone = "cannot be made for 1 workers and B = 4: ZeroDivisionError"
    yield broken("CannotBeAlone", Sound, made=lambda self: 1 / (self.setting.n - 1)), alone
    # its actions
    short = allocates(lambda a, self, _: a - np.eye(self.setting.n, dtype=int)[0])
    sums = f"{illegal}.*negative|{illegal}.*row 0 must sum to the budget of 7, not to 6"
    yield broken("ShortSum", Sound, **short), sums
    one_row = rf"{illegal}.*must have shape \(3, 5\), not \(5,\)"
    yield broken("OneForAll", Sound, **allocates(lambda a, *_: a[0])), one_row
    yield broken("Lists", Sound, **allocates(lambda a, *_: a.tolist())), "must be a NumPy array, not list"
    twos = {"act": lambda self, state, seen: (2 * DispatchGta.act(self, state, seen)[0], state)}
    yield broken("Twos", DispatchGta, **twos), f"{illegal}worker 0 of row 0 must have 0 or 1, not 2"
    batch = r"for a single env its action must have shape \(5,\), not \(1, 5\)"
    yield broken("AlwaysABatch", Sound, predict=as_a_batch), batch
    bare = {"predict": lambda *args, **kwargs: Policy.predict(*args, **kwargs)[0]}
    yield broken("BareAction", Sound, **bare), "predict must give an action and a State"
    no_start = {"predict": lambda self, observation, state=None: Policy.predict(self, observation, state)}
    yield broken("NoEpisodeStart", Sound, **no_start), "predict raises TypeError: .*(episode_start|deterministic)"
    # its randomness
    legacy = allocates(lambda a, *_: a + 0 * int(np.random.rand()))  # noqa: NPY002
    legacy_said = "draws from the global generator of numpy.random: draw with ata_gym.simulation.keys.uniforms"
    yield broken("GlobalNumPy", Sound, **legacy), legacy_said
    plain = allocates(lambda a, *_: a + 0 * int(random.random()))
    yield broken("GlobalRandom", Sound, **plain), "draws from the global generator of random:"
    unseeded = {"scores": lambda self, state: np.random.default_rng().random((len(state.round), self.setting.n))}
    yield broken("Unseeded", Sound, **unseeded), "made again with the same seed, it has another action in round 1"

    def for_the_batch(self: Any, state: State) -> Any:
        return uniforms(state.round_keys()[:1], len(state.round) * self.setting.n).reshape(-1, self.setting.n)

    yield broken("DrawsForTheBatch", Sound, scores=for_the_batch), f"{another}in round 1 than the same row alone"
    mixed = f"{another}beside rows that are at other rounds"
    yield broken("DecidesForAll", Sound, scores=decides_for_all), mixed
    zero = "where all durations are 0, in round 2: predict raises ValueError: scores must be finite"
    yield broken("FailsAtZero", Sound, scores=fails_at_zero), zero
    given = "predict says nothing: raise ValueError"
    times = sees(lambda _, seen: {name: np.nan_to_num(field) for name, field in seen.items()})
    yield broken("TakesForeignTimes", Sound, **times), f"given durations that are NaN, {given}"
    unknown = sees(lambda self, seen: {"worker": np.minimum(seen["worker"], self.setting.n - 1)})
    yield broken("TakesUnknownWorkers", Sound, **unknown), f"given results of a worker that is not there, {given}"
    foreign = sees(lambda self, seen: {"elapsed": seen["elapsed"][..., : self.setting.n]})
    yield broken("TakesForeignWorkers", Sound, **foreign), f"given an observation of 6 workers, {given}"
    rows = f"given a state of 3 rows with an observation of 2, {given}"
    yield broken("TakesAnyState", Sound, predict=takes_any_state), rows
    # its memory
    yield broken("Remembers", Sound, rounds=0, **allocates(counts_on)), "predict changes self.rounds"
    saved = "going on from a saved state, it has another action in round 11"
    yield broken("HidesAMemory", Sound, made=hides, scores=from_hidden), saved
    yield broken("CountsInPlace", Counting, counted=in_place), "changes state.plan.seen of the state that it was given"
    grows = {"counted": lambda _, seen: Count(np.zeros((len(seen), 2)))}
    form = r"keep the form of first_state.*plan.seen must hold float64 of shape \(3,\), not float64 of shape \(3, 2\)"
    yield broken("Grows", Counting, **grows), form
    local = {"first_plan": lambda _, rows: of_a_local_class(_, np.zeros(rows)), "counted": of_a_local_class}
    yield broken("Local", Counting, **local), "define the classes of belief and plan at the top of a module"
    far = {"first_plan": lambda _, rows: Few(np.zeros(rows)), "counted": lambda _, seen: Few(seen + 1)}
    too_far = "state is not one that this CountsTooFar can have: plan.seen must be from 0 to 4, and holds 5"
    yield broken("CountsTooFar", Counting, **far), too_far
    forgets = {"note_absences": lambda _, state, *__: state._replace(plan=())}
    no_state = "note_absences gives no state that it can have: the state is not one of this"
    yield broken("ForgetsItsPlan", Counting, **forgets), no_state
    changed = "note_absences changes plan.seen of the state in place: make new arrays"
    yield broken("IsChangedInPlace", Counting, note_absences=set_in_place), changed
    yield broken("WritesToTheObservation", Sound, act=writes), r"predict changes observation\['elapsed'\]"
    # its episodes
    kept = f"{start}the state.plan.seen is not that of a new one"
    yield broken("NeverForgets", Counting, predict=never_forgets), kept
    spread = "where one row begins an episode, the .* of another changes"
    yield broken("ForgetsTogether", Sound, predict=forgets_together), spread
    deaf = {"predict": lambda *given, **more: Policy.predict(*given, **more | {"episode_start": None})}
    yield broken("IgnoresEpisodeStart", Sound, **deaf), "where episode_start is True an episode begins"
    # what explain does
    halved = "explain changes state.belief.totals in place, and so what is learned from it"
    yield broken("HalvesItsTotals", Sound, allocate=halves_what_it_has_seen), halved
    # the unit of time
    unit, thousandth = "in another unit of time it has another action in round", "divided by 1,024"
    prior = of_means(lambda means, state: (means * state.belief.counts + 2.0) / (state.belief.counts + 1.0))
    yield broken("PriorOf2Seconds", Sound, **prior), unit
    yield broken("AtMost40Seconds", Sound, **of_means(lambda means, _: np.minimum(means, 40.0))), unit
    yield (
        broken("AtLeastACentisecond", Sound, **of_means(lambda means, _: np.maximum(means, 0.01))),
        f"{unit}.*{thousandth}",
    )
    fails = of_means(lambda means, _: np.where(means > 500.0, np.nan, means))
    yield broken("FailsAt500", Sound, **fails), "where all times are multiplied by 1,024, predict raises ValueError"
    in_seconds = {"act": lambda _, state, seen: ((seen["age"] < 3.0).astype(np.int64), state)}
    yield broken("Waits3Seconds", DispatchGta, **in_seconds), unit
    # its draws, over time
    alike = "it draws the same in every"
    yield broken("DrawsOnce", Sound, **drawn(lambda state: derive_keys(state.key, 0, 0))), f"{alike} round"
    by_episode = drawn(lambda state: derive_keys(state.key, state.episode, 0))
    yield broken("DrawsByTheEpisode", Sound, **by_episode), f"{alike} round"
    seldom = allocates(explores_seldom)
    yield broken("ExploresInTheSameRows", Sound, **seldom), f"{alike} round"
    by_round = drawn(lambda state: derive_keys(state.key, 0, state.round))
    yield broken("DrawsByTheRound", Sound, **by_round), f"{alike} episode"
    ties = {"allocate": lambda self, state: allocate(Sound.scores(self, state), self.setting.budget, state.key)}
    yield broken("BreaksTiesOnce", Sound, **ties), f"{alike} episode"
    # what comes late
    one_more = late(150, lambda tasks, now: tasks + now * (np.arange(5) == 2))
    game, of_8 = "of a longer game", "must sum to the budget of 7, not to 8"
    yield broken("OneMoreAt150", Sound, **one_more), f"in round 150 of episode 1 {game} its action is illegal: .*{of_8}"
    breaks = late(90, lambda tasks, _: tasks // 0)
    yield broken("DividesAt90", Sound, **breaks), f"in round 90 of episode 1 {game} its action is illegal|FloatingPoint"
    third = late(1, lambda tasks, now: tasks + now * (np.arange(5) == 0), episode=8)
    yield broken("OneMoreInEpisode8", Sound, **third), f"in round 1 of episode 7 {game} its action is illegal: .*{of_8}"
    draws = late(75, lambda tasks, _: tasks + 0 * int(np.random.rand()))  # noqa: NPY002
    yield broken("GlobalAt75", Sound, **draws), legacy_said
    together = late(60, lambda tasks, now: np.where(now, tasks[:1], tasks))
    yield (
        broken("FirstRowAt60", Sound, **together),
        f"has another action in round [0-9]+ {game} than the same row alone",
    )
    # what it says
    yield broken("LooksAtThePool", Sound, scores=pool_scores), looks
    needs = {"made": lambda self: self.setting.pool.mean(), "scores": pool_scores}
    yield broken("NeedsThePool", Sound, **needs), looks
    price = {"scores": lambda self, state: Sound.scores(self, state) + np.arange(5) * (self.setting.price > 1)}
    yield broken("SecretlyPriced", Sound, **price), "depends on the price: set priced = True"


@pytest.mark.parametrize(("broken", "sentence"), [*faults()], ids=lambda x: getattr(x, "__name__", ""))
def test_each_fault_has_its_sentence(broken: type[Any], sentence: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of advice
        with pytest.raises(PolicyError, match=sentence) as caught:
            check_policy(broken, rounds=4 if issubclass(broken, DispatchPolicy) else 14)
    assert len(caught.value.faults) == 1, caught.value.faults
    assert str(caught.value).startswith(f"{broken.__name__} does not keep the contract of a policy:\n- ")


def test_all_faults_are_listed_at_once() -> None:
    known = {kind.__name__: kind for kind, _ in faults()}
    bases = tuple(known[name] for name in ("CountsInPlace", "SecretlyPriced"))

    class Hopeless(*bases):  # type: ignore[misc]
        """Breaks four rules."""

        def allocate(self, state: State) -> Any:
            np.random.rand()  # noqa: NPY002
            return super().allocate(state) - np.eye(self.setting.n, dtype=int)[0]

    found, advice = examine(Hopeless, rounds=12)
    for part in ("illegal", "numpy.random", "state.plan.seen", "price"):
        assert sum(part in fault for fault in found) == 1, found
    assert advice == ()


def test_advice_is_a_warning() -> None:
    class Silent(AllocationPolicy):
        def allocate(self, state: State) -> Any:
            return allocate(state.belief.totals, self.setting.budget)

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        check_policy(Silent, rounds=4)
    said = [str(warning.message).split(";")[0].split(" = ")[0] for warning in given]
    assert said == ["give the class a docstring", "set source", "set constants", "set assumes"]
    assert all(warning.filename == __file__ for warning in given)


def test_a_policy_and_its_env() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    check_policy("ata:alpha=3.0", env, rounds=4)
    check_policy("ata", env, rounds=4, alpha=3.0)
    for name, scenario in (("uta", "drawn-6-v1"), ("dynamic-ofta", "drawn-3-to-16-v1"), ("ucb-v", "changing-walk")):
        check_policy(name, gym.make("ata_gym/TaskAllocation-v0", scenario=scenario), rounds=4)
    with pytest.raises(PolicyError, match=r"cannot be made for 20 workers and B = 5: ValueError: .*alpha"):
        check_policy("ata", env, alpha=-3.0)
    for given, more, said in (
        ((ata_policies.make("ata", env),), {}, "it must be a subclass of AllocationPolicy or DispatchPolicy"),
        (("gta", env), {}, "gta plays ata_gym/TaskRace-v0, and this env is ata_gym/TaskAllocation-v0"),
        (("ata",), {"rounds": 3}, "rounds must be"),
        (("atta",), {}, "did you mean ata"),
    ):
        with pytest.raises(ValueError, match=said):
            check_policy(*given, **more)  # type: ignore[arg-type]


class Drawing(Counting):
    """Multiplies means by draws that it makes anew in every second round only, from a count of its own."""

    def last_action(self, state: State) -> Any:
        return self.allocate(state._replace(plan=Count(state.plan.seen - 1)))

    def scores(self, state: State) -> Any:
        keys = derive_keys(state.key, state.episode, (state.plan.seen // 2).astype(np.int64))
        return (super().scores(state) + 1e-9) * uniforms(keys, self.setting.n)


class Rounding(Sound):
    """Goes by the error of a logarithm in the last digits, which hang on the unit of time."""

    def scores(self, state: State) -> Any:
        means = np.maximum(super().scores(state), 1e-300)
        return np.abs(np.exp(np.log(means)) / means - 1.0)


class InSeconds(Sound):
    """Has a prior of two seconds, and says so."""

    time_unit = "seconds"

    def scores(self, state: State) -> Any:
        return (state.belief.totals + 2.0) / (state.belief.counts + 1.0)


@pytest.mark.parametrize("sound", [Sound, Counting, Drawing, InSeconds])
def test_a_sound_policy_has_neither_fault_nor_advice(sound: type[Policy]) -> None:
    assert examine(sound) == ((), ())


def test_decisions_that_hang_on_rounding_are_no_fault_of_units() -> None:
    check = ContractCheck(Rounding, Rounding, Scenario(exponential([1.0, 3.0, 5.0]), 7), 12)
    check.plays()
    assert invariance._changed_decisions(check, 1024.0, "multiplied").any()
    assert examine(Rounding, rounds=12).faults == ()


def test_advice_on_what_is_legal_and_looks_like_a_mistake() -> None:
    turned = broken("TurnedAround", Sound, act=turned_around)
    slow = broken("TheSlowest", Sound, **of_means(lambda means, _: means.max(axis=1, keepdims=True) - means))
    shares = broken("AsTheMeans", Sound, allocate=in_proportion_to_the_means)
    spread = "where half of the workers are ten times as fast, it needs [0-9.]+ times the time of even shares"
    for kind, said in ((turned, "override last_action: explain shows other"), (slow, spread), (shares, spread)):
        faults, advice = examine(kind)
        assert not faults
        assert any(re.match(said, sentence) for sentence in advice)
