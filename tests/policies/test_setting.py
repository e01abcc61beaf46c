"""What a policy does not say that it must know is not given to it, however it is made."""

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate
from ata_gym.changes import Change, Crash, Redraw, Spot, Walk
from ata_gym.pools import PoolDistribution, exponential, gamma
from ata_gym.scenarios import AtaConstants, Published, Scenario
from ata_policies import (
    AllocationPolicy,
    Allocator,
    Dispatcher,
    DispatchPolicy,
    Policy,
    Preset,
    Setting,
    from_agent,
)
from ata_policies.allocation.baselines import Ofta, Uta
from ata_policies.allocation.composition import ComposedPolicy
from ata_policies.card import policy_card
from ata_policies.checking.check import examine
from ata_policies.facts import UndeclaredError, granted, is_oracle
from ata_policies.setting import Norms, _PartialSetting
from ata_policies.steps import play

ENV = "ata_gym/TaskAllocation-v0"
POOL = gamma([2.0, 3.0, 4.0], [1.0, 1.0, 2.0])
PUBLISHED = Published(AtaConstants(9.0, 2.0), AtaConstants(5.0, 1.0))
DRAWN = PoolDistribution(3, None, ("exponential",), (2, 4), (1, 1))
WHOLE = Setting(3, 4, 0.5, POOL, PUBLISHED, 60, DRAWN, (1.0, 2.0, 1.0))
PIECES = ("pool", "drawn", "published", "norms")


class Reads(AllocationPolicy):
    """Reads a piece of its setting in its first round."""

    source = "ours"
    constants = "none"
    assumes = "nothing"
    piece = "pool"

    def allocate(self, state):
        getattr(self.setting, self.piece)
        return allocate(state.belief.totals, self.setting.budget)


class ReadsWhenMade(Reads):
    """Reads a piece of the setting that it is made with, before anything else."""

    def __init__(self, setting, *, seed=0):
        self.kept = getattr(setting, self.piece)
        super().__init__(setting, seed=seed)


class HoldsAnOracle(AllocationPolicy):
    """Does what an oracle does that it makes itself."""

    source = "ours"
    constants = "none"
    assumes = "nothing"

    def __init__(self, setting, *, seed=0):
        super().__init__(setting, seed=seed)
        self.oracle = Ofta(self.setting)

    def allocate(self, state):
        return self.oracle.allocate(state)


class StartsByThePool(DispatchPolicy):
    """Lets the workers work that are fast on average."""

    def act(self, state, observation):
        mean = self.setting.pool.mean()
        return (mean <= np.median(mean)) * np.ones_like(observation["started"]), state


def of(base: type[Policy], **attributes: Any) -> Any:
    return type("Mine", (base,), {"__doc__": base.__doc__, **attributes})


def predicted(policy: Policy) -> Any:
    game = gym.make(
        policy.env_id,
        pool=exponential(np.ones(policy.setting.n)),
        budget=policy.setting.budget,
    )
    return policy.predict(game.reset(seed=0)[0])


@pytest.mark.parametrize(
    "knows",
    ["nothing", "nothing; or the shape", "the weather", "a bound on the psi1 norms"],
)
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("base", [Reads, ReadsWhenMade])
def test_what_is_not_declared_is_not_given(base: type[Reads], piece: str, knows: str) -> None:
    mine = of(base, piece=piece, knows=knows)
    if piece in granted(knows):
        predicted(mine(WHOLE))
        return
    with pytest.raises(
        UndeclaredError,
        match=f'^Mine says knows = "{knows}", so setting.{piece} is not given to it',
    ):
        predicted(mine(WHOLE))
    for declared in (
        "the means",
        "the distributions",
        "the distributions, of each round",
        "nothing; the means",
    ):
        predicted(of(base, piece=piece, knows=declared)(WHOLE))


def test_what_everybody_may_know_is_given_to_everybody() -> None:
    told = Uta(WHOLE).setting
    for piece in ("n", "budget", "price", "horizon", "unit_costs"):
        assert getattr(told, piece) == getattr(WHOLE, piece)
    assert told.prices.tolist() == [0.5, 1.0, 0.5]
    assert not {POOL, PUBLISHED, DRAWN} & {
        part for part in told if not isinstance(part, float | int)
    }
    for again in (copy.deepcopy(told), pickle.loads(pickle.dumps(told)), told._replace(price=1.0)):
        assert again.n == 3
        with pytest.raises(UndeclaredError, match=r"setting\.pool is not given"):
            again.pool  # noqa: B018


def test_a_bound_is_told_without_the_pool() -> None:
    told: Any = of(Reads, knows="a bound on the psi1 norms")(WHOLE._replace(drawn=None)).setting
    assert told.published == PUBLISHED
    assert told.norms.largest(centred=False, relative=False)[0] == pytest.approx(
        POOL.psi1_norm().max(),
    )
    public = {
        name: getattr(told.norms, name) for name in dir(told.norms) if not name.startswith("_")
    }
    assert list(public) == ["largest"]
    drawn = Norms(exponential([1.0]), DRAWN).largest(centred=False, relative=False)
    assert drawn == (pytest.approx(4 * exponential([1.0]).psi1_norm()[0]), " that can be drawn")


def test_a_policy_cannot_tell_another_what_it_was_not_told() -> None:
    with pytest.raises(
        UndeclaredError,
        match=r'^HoldsAnOracle says knows = "nothing", so setting\.pool',
    ):
        HoldsAnOracle(WHOLE)
    declared = of(HoldsAnOracle, knows="the means")(WHOLE._replace(drawn=None))
    assert (
        predicted(declared)[0].tolist() == predicted(Ofta(WHOLE._replace(drawn=None)))[0].tolist()
    )
    estimated = Uta(WHOLE).setting._replace(pool=exponential([1.0, 1.0, 9.0]))  # a pool of its own
    assert predicted(Ofta(estimated))[0].tolist() == [2, 2, 0]


def test_every_way_to_make_a_policy_is_the_same_door() -> None:
    env = gym.make(ENV, pool=POOL, budget=4)
    by_name = f"{__name__}:Reads"
    agent_env = gym.make(ENV, observation="workers", action="shares")
    agent = from_agent(lambda workers: workers[..., 1], agent_env)
    peeking = of(agent, act=lambda self, state, _: (self.setting.pool, state), only_size=None)
    # what its parts say does not count, but what it builds
    liar = Preset(
        "liar",
        Reads,
        {},
        (Ofta,),
    )
    ways = [
        lambda: Reads(Setting.from_env(env)),
        lambda: ata_policies.make(by_name, env),
        lambda: liar(Setting.from_env(env)),
        lambda: ata_policies.make_for(by_name, Setting.from_env(env), ENV),
        lambda: peeking(Setting.from_env(env)),
        lambda: next(play(Reads(Setting.from_env(env)), env)),
    ]
    for way in ways:
        with pytest.raises(UndeclaredError, match=r"setting\.pool is not given to it"):
            predicted(way())
    loops = [
        lambda: Allocator(["a", "b"], budget=3, policy=by_name).allocate(),
        lambda: Dispatcher(["a", "b"], budget=3, policy=f"{__name__}:StartsByThePool").start(),
    ]
    for loop in loops:
        with pytest.raises(UndeclaredError, match=r"setting\.pool is not given to it"):
            loop()
    with pytest.raises(ValueError, match="is made for a setting"):
        Reads(env)  # type: ignore[arg-type]


def test_conditions_of_each_round_are_for_who_declares_them() -> None:
    peeks = {"privileged": True}
    said = (
        'what predict gets as privileged is not given to it: .*knows = "the distributions, of each'
        ' round"'
    )
    for knows in ("nothing", "the means", "the distributions", "a bound on the psi1 norms"):
        with pytest.raises(UndeclaredError, match=said):
            of(Uta, knows=knows, **peeks)(WHOLE)
    of(Uta, knows="the means, of each round", **peeks)(WHOLE)

    class Later(Uta):
        """Asks for them when it is made."""

        def __init__(self, setting, *, seed=0):
            super().__init__(setting, seed=seed)
            self.privileged = True  # type: ignore[misc]

    with pytest.raises(UndeclaredError, match=said):
        Later(WHOLE)


def test_check_says_what_is_not_declared_in_its_own_sentence() -> None:
    for base, piece in (
        (Reads, "pool"),
        (ReadsWhenMade, "drawn"),
        (Reads, "published"),
        (Reads, "norms"),
    ):
        (fault,), _ = examine(of(base, piece=piece))
        assert fault.startswith(
            f'Mine says knows = "nothing", so setting.{piece} is not given to it: a policy that',
        )
        assert "test_setting.py, line" in fault
    (fault,), _ = examine(of(Uta, privileged=True))
    assert fault.startswith("Mine says knows")
    assert examine(of(Reads, knows="the distributions"), rounds=8).faults == ()


def test_what_a_composed_policy_knows_hangs_on_its_parts() -> None:
    env = gym.make(ENV, scenario="icml2025-regret")
    ata: Any = ata_policies.make("thompson", env, estimate="ata")
    assert ata.estimate.alpha == ata_policies.make("ata", env).estimate.alpha  # type: ignore[attr-defined]
    with pytest.raises(UndeclaredError, match="ComposedPolicy says"):
        ata_policies.make("thompson", env).setting.pool  # noqa: B018
    assert ComposedPolicy(Setting.from_env(env), estimate="ata-empirical").estimate.eta is not None  # type: ignore[attr-defined]
    named = ("thompson", "thompson:estimate=ata", "ata:estimate=mean")
    knows = [policy_card(name).facts["must know beforehand"] for name in named]
    assert knows == ["nothing; or the shape", "a bound on the psi1 norms", "nothing"]


@pytest.mark.parametrize("name", ata_policies.names())
def test_policies_of_the_zoo_read_what_they_declare_and_declare_what_they_read(
    name,
    monkeypatch,
) -> None:
    reads = set()
    told = _PartialSetting._disclosed

    def noting(self: _PartialSetting, piece: str, value: Any) -> Any:
        reads.add(piece)
        return told(self, piece, value)

    monkeypatch.setattr(_PartialSetting, "_disclosed", noting)
    kind = ata_policies.load(name)
    env = gym.make(kind.env_id, pool=POOL, budget=4, horizon=3)
    list(play(ata_policies.make(name, env), env))
    given = granted(kind.knows)
    assert reads <= given
    assert bool(reads) == bool(given)
    assert is_oracle(kind.knows) == ("pool" in reads)
    assert kind.privileged == ("conditions" in given)


def test_a_setting_tells_the_deadline_of_workers_that_leave() -> None:
    pool = exponential([1.0, 2.0, 3.0])
    spot = Spot(0.1, 0.2, deadline=9.0)
    crash = Crash(0.1, 3.0, 5, deadline=4.0)
    drawn = Redraw(
        PoolDistribution(3, None, ("exponential",), (2, 3), (1.0, 1.0)), among=((spot,),)
    )
    cases: list[tuple[tuple[Change, ...], float | None]] = [
        ((), None),
        ((Walk(0.1, 1.0),), None),
        ((Spot(0.1, 0.2),), 0.0),
        ((crash, spot), 9.0),
        ((drawn, crash), 9.0),
    ]
    for changes, deadline in cases:
        assert Setting.from_scenario(Scenario(pool, 3, changes=changes)).deadline == deadline
