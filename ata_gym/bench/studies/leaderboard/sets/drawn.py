"""The sets of scenarios whose workers are drawn anew for each seed."""

import numpy as np

from ata_gym import changes, pools
from ata_gym.bench.studies.leaderboard.scenario_set import (
    ScenarioSet,
    for_changing_workers,
    maker,
)
from ata_gym.pools import PoolDistribution, gamma
from ata_gym.scenarios import scenario
from ata_gym.scenarios.for_agents import FAMILIES, FOR_AGENTS, SMALL, SPLITS
from ata_gym.scenarios.scenario import Maker
from ata_gym.typing import Floats

DRAWN = ScenarioSet(
    name="drawn",
    version="3",
    built={name: scenario for name in FOR_AGENTS if name != SMALL},
    prices=(0.0, 0.1, 1.0),
    quick={"drawn-6-v1": 25, "drawn-3-to-16-v1": 50, "drawn-heavy-8-v1": 50},
    policies=for_changing_workers,
    front="drawn-6-v1",
    seeds=32,
    quick_seeds=8,
    first_seed=SPLITS["test"][0],
)
"""Workers drawn anew for each seed, for policies that were trained.

The seeds are the first of ``SPLITS["test"]``: no policy that was trained on the seeds of "train"
and chosen on the seeds of "validation" has met these workers. Intervals are over seeds, and so over
workers.
"""


def _drawn_anew(
    pool_distribution: PoolDistribution,
    budget: int,
    rounds: int,
    summary: str,
    *among: tuple[changes.Change, ...],
    always: tuple[changes.Change, ...] = (),
) -> Maker:
    """Return what makes a scenario whose workers and changes are drawn anew in each episode.

    Args:
        pool_distribution: The distribution of the workers.
        budget: Results that a round needs.
        rounds: The rounds of an episode.
        summary: The workers and their changes, in words.
        *among: Lists of changes, of which an episode has one.
        always: Changes of all episodes, which stand behind those.
    """
    return maker(
        pool_distribution.typical,
        budget,
        rounds,
        f"drawn anew in each episode: {pool_distribution.n} workers, {summary}",
        changes.Redraw(pool_distribution, among=among),
        *always,
    )


def _usual(n: int) -> PoolDistribution:
    """Return the distribution of n workers as they are but for what a scenario is about."""
    return PoolDistribution(n, None, FAMILIES, (2, 10), (0.1, 1.0))


def _variable(n: int, family: str, least_cv: float, largest_cv: float) -> PoolDistribution:
    """Return the distribution of n workers of one family, means 1 to 5 at most."""
    return PoolDistribution(n, None, (family,), (1.5, 5), (least_cv, largest_cv))


_WEIBULL = pools.weibull(0.3, 1.0)
_CV_OF_WEIBULL = float(_WEIBULL.sd()[0] / _WEIBULL.mean()[0])
"""The coefficient of variation of Weibull times of shape 0.3."""
_CV_OF_LOG_NORMAL = float(np.sqrt(np.expm1(2.0**2)))
"""That of log-normal times, where the standard deviation of the logarithm is 2."""
_DRAWN_SPEEDS = changes.Load(0, 0, unexplained=0.6, persistence=1 - 1e-12)
"""Draws the speeds of workers with a latency in each episode, log-normal.

``Redraw`` draws workers that pay none. A load that lasts for the whole episode does the same.
"""


def _with_latency(
    medians: Floats, budget: int, rounds: int, summary: str, *worker_changes: changes.Change
) -> Maker:
    """Return what makes a scenario whose workers pay log-normal latencies.

    The fastest of some ten to thirty workers has a mean task time of about 1.

    Args:
        medians: The median latency of each worker.
        budget: Results that a round needs.
        rounds: The rounds of an episode.
        summary: The workers and their changes, in words.
        *worker_changes: How the latencies change.
    """
    n = len(medians)
    return maker(
        lambda: gamma(4.0, np.full(n, 3.0 / 4)).with_latency(
            pools.log_normal(np.log(medians), 0.5)
        ),
        budget,
        rounds,
        f"{n} workers, gamma times of CV .5, speeds drawn anew in each episode; {summary}",
        _DRAWN_SPEEDS,
        *worker_changes,
    )


CLUSTER = ScenarioSet(
    name="cluster",
    version="2",
    built={
        "together-spells": _drawn_anew(
            _usual(24),
            36,
            500,
            "all of them 3 to 10 times slower in the same spells; in a quarter of the episodes"
            " they also exchange their speeds at round 250",
            (changes.OnOff(3, 0.02, 0.05, rack=24),),
            (changes.OnOff(6, 0.03, 0.1, rack=24),),
            (changes.OnOff(10, 0.01, 0.03, rack=24),),
            (changes.OnOff(3, 0.02, 0.05, rack=24), changes.Switch(at=(250,))),
        ),
        "together-waves": _drawn_anew(
            _usual(16),
            64,
            400,
            "one load of all, with a period of 60 to 300 rounds",
            (changes.Periodic(60, 0.5, apart=0),),
            (changes.Periodic(150, 0.7, apart=0),),
            (changes.Periodic(300, 0.9, apart=0),),
        ),
        "warming": _drawn_anew(
            _usual(20),
            40,
            300,
            "the first 1 to 20 tasks of each take 10 to 100 times as long",
            (changes.Warming(1, 100),),
            (changes.Warming(3, 30),),
            (changes.Warming(8, 20),),
            (changes.Warming(20, 10),),
        ),
        "warming-smooth": _drawn_anew(
            _usual(30),
            30,
            300,
            "the first task of each takes 10 to 100 times as long, the next 4 to 19 less and less",
            (changes.Warming(5, 100, smooth=True),),
            (changes.Warming(10, 30, smooth=True),),
            (changes.Warming(20, 10, smooth=True),),
        ),
        "latency": _with_latency(
            np.full(10, 5.0), 40, 400, "latencies of median 5, 5 times the fastest mean or so"
        ),
        "latency-long": _with_latency(
            np.full(24, 20.0), 96, 300, "latencies of median 20, 20 times the fastest mean or so"
        ),
        "latency-by-worker": _with_latency(
            np.geomspace(1.0, 20.0, 32), 64, 400, "latencies of medians 1 to 20"
        ),
        "latency-shared": _with_latency(
            np.geomspace(1.0, 5.0, 16),
            48,
            400,
            "latencies of medians 1 to 5, all of them 5 times as long for 10 rounds, 1 round in 5",
            changes.Congestion(5, 0.025, 0.1, rack=16),
        ),
        "fast-waves": _drawn_anew(
            _usual(12),
            24,
            400,
            "load of each with a period of 30 to 90 rounds",
            (changes.Periodic(30, 0.9),),
            (changes.Periodic(60, 0.7),),
            (changes.Periodic(90, 0.9),),
        ),
        "fast-spells": _drawn_anew(
            _usual(40),
            20,
            500,
            "each 3 to 10 times slower for spells of 10 rounds",
            (changes.OnOff(3, 0.05, 0.1),),
            (changes.OnOff(6, 0.03, 0.1),),
            (changes.OnOff(10, 0.02, 0.1),),
        ),
        "fast-load": _drawn_anew(
            _usual(16),
            32,
            400,
            "load that no signal shows lasts for some 10 rounds",
            always=(changes.Load(0.4, 0.3, 0.3, 0.9),),
        ),
        "variable-gamma": _drawn_anew(
            _variable(10, "gamma", 0.3**-0.5, 0.1**-0.5),
            20,
            600,
            "gamma times of shapes .1 to .3",
        ),
        "variable-log-normal": _drawn_anew(
            _variable(20, "log-normal", _CV_OF_LOG_NORMAL, _CV_OF_LOG_NORMAL),
            10,
            600,
            "log-normal times, the standard deviation of the logarithm 2",
        ),
        "variable-weibull": _drawn_anew(
            _variable(8, "weibull", _CV_OF_WEIBULL, _CV_OF_WEIBULL),
            8,
            600,
            "Weibull times of shape .3",
        ),
        "throttling": _drawn_anew(
            _usual(12),
            48,
            400,
            "1.5 to 3 times slower once they were busy for long",
            (changes.Throttling(30.0, hot=0.6, cool=0.4, factor=1.5),),
            (changes.Throttling(100.0, hot=0.7, cool=0.5, factor=2.0),),
            (changes.Throttling(300.0, hot=0.8, cool=0.5, factor=3.0),),
        ),
        "leak": _drawn_anew(
            _usual(16),
            32,
            400,
            "each task slows the later ones by 1 to 5 %, until a restart after 40 to 200 tasks",
            (changes.Leak(0.05, 40),),
            (changes.Leak(0.02, 100),),
            (changes.Leak(0.01, 200, away=5, deadline=10.0),),
        ),
        "cold-after-idle": _drawn_anew(
            _usual(50),
            50,
            400,
            "3 to 10 times slower in the round after 1 to 10 rounds without a task",
            (changes.ColdAfterIdle(1, 3),),
            (changes.ColdAfterIdle(3, 5),),
            (changes.ColdAfterIdle(10, 10),),
        ),
        "leaving": _drawn_anew(
            _usual(12),
            24,
            400,
            "each leaves for spells of 7 to 50 rounds, and its tasks are handed on from 30 to 300"
            " units of time on",
            (changes.Spot(0.002, 0.02, deadline=60),),
            (changes.Spot(0.01, 0.05, deadline=30),),
            (changes.Spot(0.03, 0.15, deadline=60),),
            (changes.Spot(0.004, 0.02, deadline=300),),
        ),
        "leaving-late": _drawn_anew(
            _usual(40),
            60,
            400,
            "each leaves for spells of 50 rounds, and its tasks are handed on from 1,000 units of"
            " time on",
            always=(changes.Spot(0.004, 0.02, deadline=1_000),),
        ),
        "dying": _drawn_anew(
            _usual(12),
            24,
            400,
            "each dies in mid-round, for 20 or 50 rounds, and its tasks are handed on from 40 or"
            " 100 units of time on",
            (changes.Crash(0.01, 20, 20, deadline=40),),
            (changes.Crash(0.002, 20, 50, deadline=100),),
        ),
    },
    prices=(0.0, 0.1),
    quick={"together-spells": 100, "warming": 50, "latency-by-worker": 50},
    front="together-spells",
    seeds=4,
    # Where workers never change, it is the one to beat on times that vary much.
    policies=lambda: [*for_changing_workers(), "thompson-gamma"],
    first_seed=SPLITS["test"][0],
)
"""Workers as clusters have them, drawn anew for each seed.

All are slow together, the first tasks are slow, a share has a latency, changes come within tens of
rounds, times vary much but never change, load tires the workers, or workers leave and die. The
seeds are ``SPLITS["test"]``, as in ``DRAWN``.
"""
