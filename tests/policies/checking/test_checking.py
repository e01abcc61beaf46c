"""Each broken policy is caught with its sentence and nothing else."""

import re
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from ata_gym.simulation.keys import derive_keys, uniforms
from ata_policies import (
    AllocationPolicy,
    DispatchPolicy,
    Policy,
    PolicyError,
    State,
    check_policy,
)
from ata_policies.checking import invariance
from ata_policies.checking.check import examine
from ata_policies.checking.contract import ContractCheck
from tests.policies.checking.faulty_policies import (
    Count,
    Counting,
    Sound,
    broken,
    faults,
    in_proportion_to_the_means,
    of_means,
    turned_around,
)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [*faults()],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_each_fault_has_its_sentence(broken: type[Any], sentence: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of advice
        with pytest.raises(PolicyError, match=sentence) as caught:
            check_policy(broken, rounds=4 if issubclass(broken, DispatchPolicy) else 14)
    assert len(caught.value.faults) == 1, caught.value.faults
    assert str(caught.value).startswith(
        f"{broken.__name__} does not keep the contract of a policy:\n- ",
    )


def test_what_another_process_decides_otherwise_is_a_fault() -> None:
    (fault,) = examine("tests.policies.checking.hashed_policy:ByHashes", rounds=6).faults
    assert fault.startswith("in another process it has another action in round ")
    assert "hash() of a text" in fault
    # what a policy prints there is no answer
    assert examine("tests.policies.checking.hashed_policy:Prints", rounds=6).faults == ()


@pytest.mark.parametrize("rounds", [3, 150])
def test_a_policy_that_ends_the_program_is_a_fault(rounds: int) -> None:
    class Exits(Sound):
        """Ends the program in a late round."""

        def allocate(self, state: State) -> Any:
            if (state.round == rounds).any():
                raise SystemExit(0)
            return super().allocate(state)

    (fault,) = examine(Exits, rounds=12).faults
    assert "predict raises SystemExit: 0" in fault


def test_a_row_of_a_large_batch_is_what_it_is_alone() -> None:
    class Chunks(Sound):
        """Takes the first row of 64 for all of them."""

        def scores(self, state: State) -> Any:
            means = super().scores(state)
            return means[np.arange(len(means)) // 64 * 64] if len(means) > 64 else means

    (fault,) = examine(Chunks, rounds=12).faults
    assert "beside rows that are at other rounds" in fault


def test_all_faults_are_listed_at_once() -> None:
    known = {kind.__name__: kind for kind, _ in faults()}
    bases = tuple(known[name] for name in ("CountsInPlace", "SecretlyPriced"))

    class Hopeless(*bases):  # type: ignore[misc]
        """Breaks four rules."""

        def allocate(self, state: State) -> Any:
            np.random.rand()  # noqa: NPY002
            return super().allocate(state) - np.eye(self.setting.n, dtype=int)[0]

    found, advice = examine(Hopeless, rounds=12)
    for part in ("illegal", "numpy.random", "state.plan.rounds", "price"):
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
    for name, scenario in (
        ("uta", "drawn-6-v1"),
        ("dynamic-ofta", "drawn-3-to-16-v1"),
        ("ucb-v", "changing-walk"),
    ):
        check_policy(name, gym.make("ata_gym/TaskAllocation-v0", scenario=scenario), rounds=4)
    with pytest.raises(
        PolicyError,
        match=r"cannot be made for 20 workers and B = 5: ValueError: .*alpha",
    ):
        check_policy("ata", env, alpha=-3.0)
    for given, more, said in (
        (
            (ata_policies.make("ata", env),),
            {},
            "it must be a subclass of AllocationPolicy or DispatchPolicy",
        ),
        (
            ("gta", env),
            {},
            "gta plays ata_gym/TaskRace-v0, and this env is ata_gym/TaskAllocation-v0",
        ),
        (("ata",), {"rounds": 3}, "rounds must be"),
        (("atta",), {}, "did you mean ata"),
    ):
        with pytest.raises(ValueError, match=said):
            check_policy(*given, **more)  # type: ignore[arg-type]


class Drawing(Counting):
    """Multiplies means by draws that it makes anew in every second round, by its own count."""

    def last_action(self, state: State) -> Any:
        return self.allocate(state._replace(plan=Count(state.plan.rounds - 1)))

    def scores(self, state: State) -> Any:
        keys = derive_keys(state.key, state.episode, (state.plan.rounds // 2).astype(np.int64))
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
    slow = broken(
        "TheSlowest",
        Sound,
        **of_means(lambda means, _: means.max(axis=1, keepdims=True) - means),
    )
    shares = broken("AsTheMeans", Sound, allocate=in_proportion_to_the_means)
    spread = (
        "where half of the workers are ten times as fast, it needs [0-9.]+ times the time of even"
        " shares"
    )
    for kind, said in (
        (turned, "override last_action: explain shows other"),
        (slow, spread),
        (shares, spread),
    ):
        faults, advice = examine(kind)
        assert not faults
        assert any(re.match(said, sentence) for sentence in advice)
