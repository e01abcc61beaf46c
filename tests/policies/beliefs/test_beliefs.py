"""What every belief has in common, moments against numpy's, who is away, and what is known from an
earlier run.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize_scalar

from ata_gym import proxy_loss
from ata_gym.changes import Change, Crash, Spot
from ata_gym.pools import exponential
from ata_gym.typing import Floats, Ints
from ata_gym.utils.trees import difference, map_leaves
from ata_policies import Exposure, Moments, Setting, Totals
from ata_policies.allocation.estimates.robust import MedianOfMeans, TruncatedMean
from ata_policies.beliefs.availability import Availability, best_pause, signs_of_life
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.memory import DETECTORS, Discount, Everything, Memory, Restarts, Window
from ata_policies.beliefs.moments import learn_shapes
from ata_policies.beliefs.prior import read_prior, save_prior

N = 3


def feedback_of_rounds(mean: float, seed: int) -> tuple[Ints, Floats]:
    """Workers and times (rounds, B): by turns above and below the mean, by about 1."""
    rng = np.random.default_rng(seed)
    worker = np.sort(rng.integers(0, N, rng.integers((1, 3), (60, 12))), axis=1)
    signs = np.ones(worker.shape)
    for i in range(N):
        signs[worker == i] = (-1.0) ** np.arange((worker == i).sum())
    return worker, mean + signs * rng.uniform(0.5, 1.5, worker.shape)


def played(belief: Any, worker: Ints, times: Floats) -> Any:
    for who, time in zip(worker, times, strict=True):
        belief = belief.observe(who[None], time[None], np.zeros((1, N)))
    return belief


def check(belief: Any, weights: Floats, worker: Ints, times: Floats) -> None:
    for i in range(N):
        some = (worker == i) & (weights > 0.0)
        w = weights[some]
        x = times[some]
        assert belief.counts[0, i] == pytest.approx(w.sum(), rel=1e-9)
        if len(x) >= 2:
            expected = w @ (x - np.average(x, weights=w)) ** 2
            assert belief.deviations[0, i] == pytest.approx(expected, rel=1e-6)


MEMORIES: list[Memory] = [Everything(), Window(12), Window(12, "rounds"), Discount(0.9)]
MEMORIES += [Restarts(detector, threshold=6.0, refresh=30.0) for detector in DETECTORS]
STARTS = [
    *(lambda rows, memory=memory: memory.start(rows, N, deviations=True) for memory in MEMORIES),
    *(
        lambda rows, estimate=estimate: estimate.start(rows, N)
        for estimate in (MedianOfMeans(), TruncatedMean(2.0))
    ),
    lambda rows: DistributionBelief.empty(rows, N),
]


@pytest.mark.parametrize("start", STARTS)
@settings(max_examples=3)
@given(seed=st.integers(0, 10**6), exponent=st.sampled_from([-80, 40]))
def test_a_row_is_what_it_is_alone_and_in_any_unit_of_time(
    start: Any,
    seed: int,
    exponent: int,
) -> None:
    rng = np.random.default_rng(seed)
    unit = 2.0**exponent
    rows = start(3)
    row = start(1)
    scaled = start(1)
    for k in range(150):
        worker = rng.integers(-1, N, (3, 4))
        elapsed = rng.exponential(size=(3, N)) * (rng.random((3, N)) < 0.1)
        time = rng.gamma(4.0, np.where((k // 50 + np.arange(3)[:, None] + worker) % 3, 1.0, 9.0))
        old = map_leaves(np.copy, rows)
        later = rows.observe(worker, time, elapsed)
        assert difference(old, rows) is None
        rows = later
        row = row.observe(worker[2:], time[2:], elapsed[2:])
        scaled = scaled.observe(worker[2:], unit * time[2:], unit * elapsed[2:])
    assert difference(row, map_leaves(lambda leaf: leaf[2:], rows)) is None
    for name, power in (("counts", 0), ("totals", 1), ("sums", 1), ("deviations", 2)):
        if hasattr(row, name):
            np.testing.assert_array_equal(getattr(scaled, name), unit**power * getattr(row, name))


means = st.one_of(st.sampled_from([1e6, 1e8, 1e9]), st.floats(10.0, 1e9))
seeds = st.integers(0, 10**6)


@settings(max_examples=20)
@given(mean=means, seed=seeds)
def test_everything(mean: float, seed: int) -> None:
    worker, times = feedback_of_rounds(mean, seed)
    belief = played(Everything().start(1, N, deviations=True), worker, times)
    check(belief, np.ones(times.shape), worker, times)
    check(
        played(DistributionBelief.empty(1, N), worker, times),
        np.ones(times.shape),
        worker,
        times,
    )
    shapes = learn_shapes(belief, 1e-30)[0]  # each worker's own
    for i in range(N):
        x = times[worker == i]
        if len(x) >= 2:
            assert shapes[i] == pytest.approx(
                (len(x) - 1) / len(x) * (x.mean() / x.std()) ** 2,
                rel=1e-6,
            )


@settings(max_examples=20)
@given(
    mean=means,
    seed=seeds,
    memory=st.floats(40, 500),
    detector=st.sampled_from([*DETECTORS]),
    change=st.booleans(),
)
def test_restarts(mean: float, seed: int, memory: float, detector: str, change: bool) -> None:
    """A worker's task counts less with each round in which it has more; after a change, only those
    since its alarm.
    """
    rounds = [
        (who[None], time[None]) for who, time in zip(*feedback_of_rounds(mean, seed), strict=True)
    ]
    if change:
        before = [
            (np.arange(N)[None], np.full((1, N), mean * (0.1 if k < 30 else 1.0)))
            for k in range(50)
        ]
        rounds = before + rounds
    belief: Any = Restarts(detector, "worker", memory, None, threshold=8.0).start(
        1,
        N,
        deviations=True,
    )
    first = np.zeros(N)
    own = np.array([np.bincount(who[0], minlength=N) for who, _ in rounds])
    for k, (who, time) in enumerate(rounds):
        alarms = belief.alarms
        belief = belief.observe(who, time)
        first[belief.alarms[0] > alarms[0]] = k
    assert belief.alarms.min() == belief.alarms.max() == change
    worker, times = (np.concatenate(parts, axis=1)[0] for parts in zip(*rounds, strict=True))
    round = np.repeat(np.arange(len(rounds)), own.sum(axis=1))
    later = (own[::-1].cumsum(axis=0)[::-1] - own)[round, worker]
    check(belief, (1.0 - 1.0 / memory) ** later * (round >= first[worker]), worker, times)


@pytest.mark.parametrize("spell", [1.0, 7.0, 60.0])
@pytest.mark.parametrize("cost", [0.5, 4.0, 80.0, 900.0])
def test_probes_come_when_the_expected_cost_of_a_spell_is_least(cost: float, spell: float) -> None:
    """By the sum over all probes: the k-th finds the worker, and k - 1 were in vain."""
    probes = np.arange(1, 4000)

    def expected(pause: float) -> float:
        away = np.exp(-pause * (probes - 1) / spell) - np.exp(-pause * probes / spell)
        return float((away * ((probes - 1) * cost + probes * pause)).sum())

    found = minimize_scalar(expected, bounds=(0.02 * spell, 40.0 * spell), method="bounded").x
    pause = best_pause(np.array(cost), np.array(spell))
    assert pause == max(np.ceil(found - 1e-3 * spell), 1.0)


@settings(max_examples=40)
@given(st.data())
def test_it_agrees_with_a_diary_kept_by_hand(data: st.DataObject) -> None:
    deadline = data.draw(st.sampled_from([None, 0.0, 3.0, 40.0]))
    known = Availability.full(2, 3)
    first = {"away": False, "pause": 0, "wait": 0, "absence": 0, "share": 0}
    diary = [[dict(first) for _ in range(3)] for _ in range(2)]
    ended: list[list[float]] = [[], []]
    times: list[list[float]] = [[], []]
    for _ in range(data.draw(st.integers(1, 12))):
        asked, worker = (
            data.draw(arrays(np.int64, (2, k), elements=st.integers(0, 2))) for k in (3, 4)
        )
        results = (worker[:, :, None] == np.arange(3)).sum(axis=1)
        time = np.array(data.draw(st.lists(st.floats(0.5, 9.0), min_size=2, max_size=2)))
        known = known._replace(allocation=asked).updated(results.astype(float), time, deadline)
        for e, row in enumerate(diary):
            owing = results[e] < asked[e]
            if not owing.any():
                times[e].append(time[e])
            for i, who in enumerate(row):
                if asked[e, i] > 0 and not owing[i]:
                    if who["away"]:
                        ended[e].append(who["absence"] - min(who["pause"], who["absence"]) / 2)
                    who["away"] = False
                if owing[i] and not who["away"]:
                    who["away"] = True
                    who["share"] = asked[e, i]
                who["absence"] = who["absence"] + 1 if who["away"] else 0
                who["wait"] = max(who["wait"] - 1, 0)
            for i, who in enumerate(row):
                if owing[i]:
                    late = 2.0
                    if deadline is not None and times[e]:
                        late = deadline / np.mean(times[e])
                    others = max(asked[e].sum() - who["share"], 1)
                    cost = (late + 1 / who["share"]) * others / who["share"]
                    mean = np.mean([*ended[e], cost / 2])
                    who["wait"] = who["pause"] = best_pause(cost, max(mean, who["absence"]))
            if all(who["away"] for who in row):
                for who in row:
                    who["away"] = False
        for name in ("away", "pause", "wait", "absence", "share"):
            assert getattr(known, name).tolist() == [[who[name] for who in row] for row in diary]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Race", Spot(0.05, 0.2, 30.0)),
        ("Race", Crash(0.05, 3.0, 5, 30.0)),
        ("Dispatch", Spot(0.05, 0.2)),
    ],
)
def test_who_is_away_shows_no_sign_of_life(kind: str, change: Change) -> None:
    """A worker that is to start a task is away if and only if it shows none; no round waits for
    it.
    """
    rng = np.random.default_rng(0)
    known = Availability.full(3, 6)
    options: dict[str, Any] = {
        "pool": exponential(np.arange(1.0, 7)),
        "budget": 8,
        "changes": [change],
    }
    env: Any = gym.make_vec(f"ata_gym/Task{kind}-v0", num_envs=3, **options)
    (observation, _), gone, all_gone = env.reset(seed=0), np.zeros((3, 6), bool), []
    for _ in range(150 if kind == "Race" else 300):
        shown = (
            observation[name] for name in ("worker", "elapsed", "running") if name in observation
        )
        known = known.updated(signs_of_life(*shown), np.ones(3))
        np.testing.assert_array_equal(known.away[known.allocation > 0], gone[known.allocation > 0])
        gone = env.unwrapped.conditions().death_time == 0.0
        all_gone.append(gone)
        if kind == "Race":
            action = np.where(np.arange(6) == rng.integers(6), 8, rng.integers(0, 3, (3, 6)))
            started = action > 0
        else:
            action = (rng.random((3, 6)) < 0.7).astype(np.int8)
            action[~((action > 0) & ~gone).any(axis=1)] = 1  # somebody works
            started = (action > 0) & (observation["running"] == 0)
        known = known._replace(allocation=started.astype(int))
        observation, *_ = env.step(action)
    assert 0.02 < np.mean(all_gone) < 0.7


BEST = "ata-empirical-icml"


def published(rows: int, **more: Any) -> Any:
    return gym.make_vec(
        "ata_gym/TaskAllocation-v0",
        num_envs=rows,
        scenario="icml2025-regret",
        **more,
    )


@settings(max_examples=25)
@given(
    counts=arrays(np.float64, (1, 4), elements=st.floats(0, 1e12).map(np.floor)),
    means=arrays(np.float64, (1, 4), elements=st.floats(0, 1e100)),
)
def test_round_trip(tmp_path_factory: Any, counts: Any, means: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "prior.csv"
    save_prior(path, Totals(counts, counts * means))
    again = read_prior(path)
    np.testing.assert_array_equal(again.counts, counts)
    np.testing.assert_allclose(again.totals, counts * means, rtol=4e-16)
    save_prior(path, again)
    np.testing.assert_allclose(read_prior(path).totals, again.totals, rtol=4e-16)


def test_rows_are_added_up_and_states_and_other_beliefs_will_do(play: Any, tmp_path: Path) -> None:
    path = tmp_path / "prior.csv"
    worker = np.array([[0, 0], [0, 1]])
    time = np.array([[1.0, 2.0], [6.0, 4.0]])
    for learned in (
        Totals.empty(2, 2).observe(worker, time),
        Moments.empty(2, 2).observe(worker, time),
    ):
        save_prior(path, learned)
        assert path.read_text() == "worker,tasks,mean\n0,3.0,3.0\n1,1.0,4.0\n"
    save_prior(path, play("ata-icml", 3, env=published(2)).states[-1])
    assert read_prior(path).counts.sum() == 2 * 2 * 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "first line must be worker,tasks,mean, not nothing"),
        ('{"worker": 0}', "first line must be"),
        ("worker,tasks,mean\n", "a line for each worker; there is none"),
        *(
            (f"worker,tasks,mean\n{lines}\n", "in order from 0")
            for lines in ("1,2,3", "0,1,1\n0,1,1", "0,2,3,4")
        ),
        *((f"worker,tasks,mean\n0,{line}\n", "could not convert") for line in ("two,3", ",3")),
        ("worker,tasks,mean\n0,1,1\n1,2\n", "number of columns"),
        *(
            (f"worker,tasks,mean\n0,{line}\n", "finite and at least 0")
            for line in ("-1,3", "1,-3", "1e300,1e300")
        ),
    ],
)
def test_bad_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "prior.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_prior(path)
    assert str(path) in str(caught.value)


def test_what_is_no_prior(refuses: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_prior(tmp_path / "nothing.csv")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    one = np.ones((1, 2))
    path = tmp_path / "prior.csv"
    save_prior(path, Totals(one[:, :1], one[:, :1]))
    for bad, message in [
        (Totals.empty(1, 3), "knows 3 workers; here are 2"),
        (Totals(-one, one), "counts must be finite"),
        (Totals(one, np.nan * one), "totals must be finite"),
        (Totals(0 * one, one), "totals must be 0 where counts are 0"),
        (Totals(one, one[:, :1]), "must both have shape"),
        (Exposure.empty(1, 2), "belief with counts and totals"),
        (3.0, "belief with counts and totals"),
        (str(path), "knows 1 workers; here are 2"),
        (tmp_path, "is a folder: name a file"),
        (tmp_path / "bytes", "cannot be read"),
    ]:
        refuses(BEST, message, Setting(n=2, budget=2), memory="prior", eta=1.0, prior=bad)


def test_every_episode_begins_with_the_prior_in_every_row(play: Any) -> None:
    prior = Totals(np.full((1, 20), 8.0), 2.0 * np.arange(20.0)[None])
    known = {"memory": "prior", "prior": prior, "prior_weight": 0.5}
    run = play(BEST, 12, env=published(2, horizon=4), hyperparameters=known)
    begun = [
        state.belief
        for seen, state in zip(run.observations, run.states, strict=True)
        if seen["worker"][0, 0] < 0
    ]
    assert len(begun) == 3
    for belief in begun:
        np.testing.assert_array_equal(belief.counts, np.full((2, 20), 4.0))
        np.testing.assert_array_equal(belief.totals, np.tile(np.arange(20.0), (2, 1)))
    assert prior.counts[0, 0] == 8.0


def test_the_gain_of_an_earlier_run(play: Any, tmp_path: Path) -> None:
    """Of as many rounds with other seeds; without a prior, or with one of weight 0, it is the plain
    policy.
    """
    env = published(4)
    path = tmp_path / "prior.csv"
    means = env.unwrapped.pool.mean()
    save_prior(path, play(BEST, 1001, env=published(1), seed=100).states[-1])
    fixed = proxy_loss(play("ofta", 1, env=env).actions[0], means)

    def gain(**hyperparameters: Any) -> tuple[float, float, float]:
        run = play(BEST, 1000, env=env, hyperparameters=hyperparameters)
        losses = (proxy_loss(run.actions, means) - fixed).mean(axis=1)
        return losses.sum(), run.round_times.sum(), losses[-100:].mean()

    known = {"memory": "prior", "prior": path}
    without = gain()
    half = gain(**known, prior_weight=0.5)
    whole = gain(**known)
    assert whole[0] < 0.5 * without[0]
    assert whole[0] < half[0] < without[0]
    assert whole[1] < half[1] < without[1]
    assert gain(memory="prior") == gain(**known, prior_weight=0.0) == without
    wrong = gain(memory="prior", prior=Totals(np.full((1, 20), 50.0), 50.0 * means[None, ::-1]))
    assert wrong[2] < 1.1 * without[2]
