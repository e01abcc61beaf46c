"""Broken policies, one for each fault, each caught with its sentence and nothing else."""

from __future__ import annotations

import random
import warnings
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate
from ata_gym.simulation.keys import uniforms
from ata_gym.utils.ranges import Within
from ata_policies import AllocationPolicy, DispatchPolicy, PolicyError, Setting, State, check_policy
from ata_policies.checking.check import examine


class Sound(AllocationPolicy):
    """Allocates by the mean times, from 0 up: keeps every rule."""

    source, constants, assumes = "ours", "none", "nothing"

    def scores(self, state: State) -> Any:
        return np.nan_to_num(state.belief.mean())

    def allocate(self, state: State) -> Any:
        return allocate(self.scores(state), self.setting.budget, state.round_keys())


class SoundDispatch(DispatchPolicy):
    """Everybody works: keeps every rule."""

    source, constants, assumes = "ours", "none", "nothing"

    def act(self, state: State, seen: Any) -> Any:
        return np.ones(seen["running"].shape, np.int8), state


class Count(NamedTuple):
    seen: Any


# --- the class -------------------------------------------------------------------------------------------------------


class NoPolicy:
    pass


class Unfinished(AllocationPolicy):
    """Says nothing."""

    source, constants, assumes = "ours", "none", "nothing"


class AnotherEnv(Sound):
    env_id = "ata_gym/TaskAllocation-v1"


class NeedsMore(Sound):
    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        raise ValueError("a file is missing")


class Seedless(Sound):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)


class CannotBeAlone(Sound):
    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if setting.n == 1:
            raise ZeroDivisionError


# --- its actions -----------------------------------------------------------------------------------------------------


class ShortSum(Sound):
    def allocate(self, state: State) -> Any:
        return super().allocate(state) - np.eye(self.setting.n, dtype=int)[0]


class TooFewInARace(Sound):
    env_id = "ata_gym/TaskRace-v0"

    def allocate(self, state: State) -> Any:
        return np.ones((len(state.round), self.setting.n), np.int64)


class Floats(Sound):
    def allocate(self, state: State) -> Any:
        return super().allocate(state).astype(float)


class OneForAll(Sound):
    def allocate(self, state: State) -> Any:
        return super().allocate(state)[0]


class Lists(Sound):
    def allocate(self, state: State) -> Any:
        return super().allocate(state).tolist()


class Twos(SoundDispatch):
    def act(self, state: State, seen: Any) -> Any:
        return 2 * super().act(state, seen)[0], state


class AlwaysABatch(Sound):
    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        action, state = super().predict(observation, *args, **kwargs)
        return np.atleast_2d(action), state


class Raises(Sound):
    def allocate(self, state: State) -> Any:
        return super().allocate(state) if state.round[0] < 3 else 1 / 0


class BareAction(Sound):
    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        return super().predict(observation, *args, **kwargs)[0]


class NoEpisodeStart(Sound):
    def predict(self, observation: Any, state: Any = None) -> Any:  # type: ignore[override]
        return super().predict(observation, state)


# --- its randomness --------------------------------------------------------------------------------------------------


class GlobalNumPy(Sound):
    def allocate(self, state: State) -> Any:
        np.random.rand()  # noqa: NPY002
        return super().allocate(state)


class GlobalRandom(Sound):
    def allocate(self, state: State) -> Any:
        random.random()
        return super().allocate(state)


class Unseeded(Sound):
    def scores(self, state: State) -> Any:
        return np.random.default_rng().random((len(state.round), self.setting.n))


class OwnGenerator(Sound):
    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.rng = np.random.default_rng(seed)

    def allocate(self, state: State) -> Any:
        self.rng.random()
        return super().allocate(state)


class DrawsForTheBatch(Sound):
    def scores(self, state: State) -> Any:
        return uniforms(state.round_keys()[:1], len(state.round) * self.setting.n).reshape(-1, self.setting.n)


class DecidesForAll(Sound):
    """As long as all rows are at the same round nobody notices."""

    def scores(self, state: State) -> Any:
        return super().scores(state) if np.any(state.round % 3 == 0) else np.ones_like(state.belief.totals)


class FailsAtZero(Sound):
    def scores(self, state: State) -> Any:
        mean = state.belief.mean()
        return np.where(state.belief.untried(), 0.0, np.where(mean == 0.0, np.nan, mean))


class DecidesTogether(Sound):
    """In a race: whether any row has seen a slow worker decides for all."""

    env_id = "ata_gym/TaskRace-v0"

    def allocate(self, state: State) -> Any:
        extra = state.belief.totals > 20.0
        return np.minimum(super().allocate(state) + bool(np.any(extra)), self.setting.budget)


class TakesForeignTimes(Sound):
    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        known = {name: np.nan_to_num(field) for name, field in observation.items()}
        return super().predict(known, *args, **kwargs)


class TakesUnknownWorkers(Sound):
    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        known = {"worker": np.minimum(observation["worker"], self.setting.n - 1)}
        return super().predict(observation | known, *args, **kwargs)


class TakesForeignWorkers(Sound):
    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        mine = {"elapsed": observation["elapsed"][..., : self.setting.n]}
        return super().predict(observation | mine, *args, **kwargs)


class TakesAnyState(Sound):
    def predict(self, observation: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
        fits = state is not None and len(state.round) == len(np.atleast_2d(observation["worker"]))
        return super().predict(observation, state if fits else None, *args, **kwargs)


# --- its memory ------------------------------------------------------------------------------------------------------


class MixesRows(Sound):
    def scores(self, state: State) -> Any:
        return np.broadcast_to(np.nan_to_num(state.belief.totals).mean(axis=0), state.belief.totals.shape)


class Remembers(Sound):
    rounds = 0

    def allocate(self, state: State) -> Any:
        self.rounds += 1
        return super().allocate(state)


class HidesAMemory(Sound):
    """What a closure holds cannot be looked at, but it is missed where a new policy goes on."""

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        hidden = [np.zeros((1, setting.n))]
        self.swap = lambda new: (hidden.append(new), hidden.pop(0))[1]

    def scores(self, state: State) -> Any:
        last = self.swap(np.nan_to_num(state.belief.mean()))
        return np.where((state.round == 1)[:, None], 0.0, np.broadcast_to(last, state.belief.totals.shape))


class Counting(Sound):
    def first_plan(self, rows: int) -> Any:
        return Count(np.zeros(rows))

    def act(self, state: State, seen: Any) -> Any:
        del seen
        return self.allocate(state), state._replace(plan=self.counted(state.plan.seen))

    def counted(self, seen: Any) -> Any:
        return Count(seen + 1)


class CountsInPlace(Counting):
    def counted(self, seen: Any) -> Any:
        seen += 1
        return Count(seen)


class KeepsAList(Counting):
    def counted(self, seen: Any) -> Any:
        return Count(list(seen))


class OneForTheBatch(Counting):
    def counted(self, seen: Any) -> Any:
        return Count(seen[:1])


class Grows(Counting):
    def counted(self, seen: Any) -> Any:
        return Count(np.zeros((len(seen), 2)))


class AnotherPlan(Counting):
    def counted(self, seen: Any) -> Any:
        return (Count(seen), seen)


class OfALocalClass(Counting):
    def first_plan(self, rows: int) -> Any:
        return self.counted(np.zeros(rows))

    def counted(self, seen: Any) -> Any:
        class Local(NamedTuple):
            seen: Any

        return Local(seen)


class Few(NamedTuple):
    seen: Annotated[Any, Within(0, 4)]


class CountsTooFar(Counting):
    def first_plan(self, rows: int) -> Any:
        return Few(np.zeros(rows))

    def counted(self, seen: Any) -> Any:
        return Few(seen + 1)


class ForgetsItsPlan(Counting):
    def note_absences(self, state: State, absent: Any, back: Any) -> State:
        return state._replace(plan=())


class IsChangedInPlace(Counting):
    def note_absences(self, state: State, absent: Any, back: Any) -> State:
        state.plan.seen[:] = 7.0
        return state


class WritesToTheObservation(Sound):
    def act(self, state: State, seen: Any) -> Any:
        seen["elapsed"] += 1.0
        return super().act(state, seen)


# --- its episodes ----------------------------------------------------------------------------------------------------


class NeverForgets(Counting):
    def predict(self, observation: Any, state: Any = None, *args: Any, **kwargs: Any) -> Any:
        action, after = super().predict(observation, state, *args, **kwargs)
        return action, after if state is None else after._replace(plan=Count(state.plan.seen + 1))


class ForgetsTogether(Sound):
    def predict(self, observation: Any, state: Any = None, episode_start: Any = None, **kwargs: Any) -> Any:
        worker = np.atleast_2d(observation["worker"])
        if worker.min() < 0:
            episode_start = np.full(len(worker), True)
        return super().predict(observation, state, episode_start, **kwargs)


class IgnoresEpisodeStart(Sound):
    def predict(self, observation: Any, state: Any = None, **kwargs: Any) -> Any:
        return super().predict(observation, state, **kwargs | {"episode_start": None})


# --- what it says ----------------------------------------------------------------------------------------------------


class LooksAtThePool(Sound):
    def scores(self, state: State) -> Any:
        pool = self.setting.pool
        return np.zeros_like(state.belief.totals) + (1.0 if pool is None else pool.mean())


class NeedsThePool(LooksAtThePool):
    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        assert setting.pool is not None


class SecretlyPriced(Sound):
    def scores(self, state: State) -> Any:
        return super().scores(state) + (np.arange(self.setting.n) if self.setting.price > 1 else 0.0)


FAULTS: list[tuple[type[Any], str]] = [
    (NoPolicy, "must be a subclass of AllocationPolicy or DispatchPolicy"),
    (Unfinished, "must define allocate"),
    (AnotherEnv, "env_id must be ata_gym/TaskAllocation-v0 or .*, not 'ata_gym/TaskAllocation-v1'"),
    (NeedsMore, "cannot be made for 5 workers and B = 7: ValueError: a file is missing"),
    (Seedless, "cannot be made for 5 workers and B = 7: TypeError: .*'seed'"),
    (CannotBeAlone, "cannot be made for 1 workers and B = 4: ZeroDivisionError"),
    (ShortSum, "illegal in round 1: .*negative|illegal in round 1: .*row 0 must sum to the budget of 7, not to 6"),
    (TooFewInARace, "illegal in round 1: .*row 0 must sum to at least the budget of 7, not to 5"),
    (Floats, "illegal in round 1: .*integer dtype such as int64, not float64"),
    (OneForAll, r"illegal in round 1: .*must have shape \(3, 5\), not \(5,\)"),
    (Lists, "must be a NumPy array, not list"),
    (Twos, "illegal in round 1: worker 0 of row 0 must have 0 or 1, not 2"),
    (AlwaysABatch, r"for a single env its action must have shape \(5,\), not \(1, 5\)"),
    (Raises, "predict raises ZeroDivisionError"),
    (BareAction, "predict must give an action and a State"),
    (NoEpisodeStart, "predict raises TypeError: .*episode_start"),
    (GlobalNumPy, "draws from the global generator of numpy.random: draw with ata_gym.simulation.keys.uniforms"),
    (GlobalRandom, "draws from the global generator of random:"),
    (Unseeded, "made again with the same seed, it has another action in round 1"),
    (OwnGenerator, "predict changes self.rng"),
    (DrawsForTheBatch, "a row of a batch has another action in round 1 than the same row alone"),
    (DecidesForAll, "a row of a batch has another action beside rows that are at other rounds"),
    (FailsAtZero, "where all durations are 0, in round 2: predict raises ValueError: scores must be finite"),
    (DecidesTogether, "a row of a batch has another action in round .* than the same row alone"),
    (TakesForeignTimes, "given durations that are NaN, predict says nothing: raise ValueError"),
    (TakesUnknownWorkers, "given results of a worker that is not there, predict says nothing: raise ValueError"),
    (TakesForeignWorkers, "given an observation of 6 workers, predict says nothing: raise ValueError"),
    (TakesAnyState, "given a state of 3 rows with an observation of 2, predict says nothing: raise ValueError"),
    (MixesRows, "a row of a batch has another action in round 2 than the same row alone"),
    (Remembers, "predict changes self.rounds"),
    (HidesAMemory, "going on from a saved state, it has another action in round 16"),
    (CountsInPlace, "predict changes state.plan.seen of the state that it was given"),
    (KeepsAList, r"state.plan.seen.0 must be an array of numbers with a leading row axis, not float64"),
    (OneForTheBatch, r"state.plan.seen must be an array .*, not an array of float64 \(1,\)"),
    (Grows, r"state.plan.seen must keep .* first_state: it is float64 \(3,\) there, and float64 \(3, 2\) later"),
    (AnotherPlan, r"state.plan.0.seen must keep the form .*: it is not there there|state.plan.0.seen .* missing"),
    (OfALocalClass, "define the classes of belief and plan at the top of a module"),
    (CountsTooFar, "state is not one that this CountsTooFar can have: plan.seen must be from 0 to 4, and holds 5"),
    (ForgetsItsPlan, "note_absences gives no state that it can have: the state is not one of this"),
    (IsChangedInPlace, "note_absences changes plan.seen of the state in place: make new arrays"),
    (WritesToTheObservation, r"predict changes observation\['elapsed'\]"),
    (NeverForgets, "where the worker is -1 an episode begins, but the state.plan.seen is not that of a new one"),
    (ForgetsTogether, "where one row begins an episode, the .* of another changes"),
    (IgnoresEpisodeStart, "where episode_start is True an episode begins"),
    (LooksAtThePool, 'says knows = "nothing", but looks at the pool'),
    (NeedsThePool, 'says knows = "nothing", but looks at the pool'),
    (SecretlyPriced, "depends on the price: set priced = True"),
]


@pytest.mark.parametrize(("broken", "sentence"), FAULTS, ids=lambda x: getattr(x, "__name__", ""))
def test_each_fault_has_its_sentence(broken: type[Any], sentence: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of advice
        with pytest.raises(PolicyError, match=sentence) as caught:
            check_policy(broken, rounds=8 if issubclass(broken, DispatchPolicy) else 20)
    assert len(caught.value.faults) == 1, caught.value.faults
    assert str(caught.value).startswith(f"{broken.__name__} does not keep the contract of a policy:\n- ")


@pytest.mark.parametrize("sound", [Sound, SoundDispatch, Counting])
def test_sound_policies_pass(sound: type[Any]) -> None:
    faults, _ = examine(sound, rounds=12)
    assert faults == ()


def test_all_faults_are_listed_at_once() -> None:
    class Hopeless(CountsInPlace, GlobalNumPy, ShortSum, SecretlyPriced):
        """Breaks four rules."""

    faults, advice = examine(Hopeless)
    for part in ("illegal", "numpy.random", "state.plan.seen", "price"):
        assert sum(part in fault for fault in faults) == 1, faults
    assert advice == ()


def test_advice_is_a_warning() -> None:
    class Silent(AllocationPolicy):
        def allocate(self, state: State) -> Any:
            return allocate(state.belief.totals, self.setting.budget)

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        check_policy(Silent)
    said = [str(warning.message) for warning in given]
    assert [sentence.split(";")[0].split(" = ")[0] for sentence in said] == [
        "give the class a docstring",
        "set source",
        "set constants",
        "set assumes",
    ]
    assert all(warning.filename == __file__ for warning in given)


def test_a_policy_that_is_made_and_its_env() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")
    check_policy(ata_policies.make("ata", env, alpha=3.0))
    check_policy("ata", env, alpha=3.0)
    check_policy("ata:alpha=3.0", env)
    check_policy(Sound(Setting(n=2, budget=3)))
    with pytest.raises(PolicyError, match=r"cannot be made for 20 workers and B = 5: ValueError: .*alpha"):
        check_policy("ata", env, alpha=-3.0)
    with pytest.raises(ValueError, match="has its hyperparameters"):
        check_policy(ata_policies.make("ata", env), alpha=3.0)
    with pytest.raises(ValueError, match=r"gta plays ata_gym/TaskRace-v0, and this env is ata_gym/TaskAllocation-v0"):
        check_policy("gta", env)
    with pytest.raises(ValueError, match="rounds must be"):
        check_policy("ata", rounds=3)
    with pytest.raises(ValueError, match="did you mean ata"):
        check_policy("atta")
