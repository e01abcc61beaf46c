"""Learners that start anew when the world has changed, look at idle workers now and then, and notice who is away."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ata_gym.simulation import Ints
from ata_policies.ata import AtaEmpiricalIcml, AtaIcml
from ata_policies.attendance import Attendance
from ata_policies.beliefs import Belief
from ata_policies.concave import ThompsonBeta
from ata_policies.detection import Cusum, PageHinkley, Watched
from ata_policies.forgetting import RecentBound
from ata_policies.glr import Glr
from ata_policies.hyperparameters import real
from ata_policies.policy import AllocationPolicy, Observation, Setting, State
from ata_policies.thompson import Thompson, ThompsonGamma

DETECTORS: Mapping[str, type[Watched]] = MappingProxyType({"page-hinkley": PageHinkley, "cusum": Cusum, "glr": Glr})
_RESTARTS: Mapping[str, float] = MappingProxyType({"everybody": 0.0, "many": 1 / 3, "worker": math.inf})
"""The share of workers whose alarms make everybody start anew."""

_PAUSE, _LONGEST = 8, 64
"""Rounds in which who is away gets nothing, at first and at most."""

_USUAL = "Page-Hinkley, 48 / shape, drift 0.5 up and 0.25 down; refresh 2000; pause 8 to 64"
_SOURCE = "ours, after Liu, Lee and Shroff, AAAI 2018"


class Restarting(AllocationPolicy):
    """What a learner needs, beside its scores, to start anew after a change.

    Who gave fewer results than it had tasks is away (``Attendance``), and gets none for 8 rounds; then it is tried
    again, after a vain try with twice the pause, up to 64 rounds.

    Parameters
    ----------
    setting
        What the policy may know.
    detector
        "page-hinkley", "cusum" or "glr": see ``ata_policies.detection`` and ``ata_policies.glr``.
    restart
        Who starts anew at an alarm: the "worker" that raised it; "everybody"; or that worker alone, but everybody once
        "many" have raised one within 10 rounds: more than a third of the workers with a task.
    memory
        A worker's task counts 1 - 1 / memory times as much with each later one, so that slow changes are followed
        without an alarm; at least 40, or None: all count alike until an alarm.
    refresh
        Every so many rounds, workers without a task for half as many get one, all together; None: never. Without it
        nobody notices that a worker out of use has become fast. It costs about 8 rounds each time where 42 of 51
        workers are out of use.
    threshold
        What raises an alarm, above 0; by default the detector's own.
    seed
        Seeds the policy's own randomness.
    others
        Hyperparameters of the rule that starts anew.
    """

    follows = True

    def __init__(
        self,
        setting: Setting,
        *,
        detector: str = "page-hinkley",
        restart: str = "many",
        memory: float | None = 200.0,
        refresh: float | None = 2000.0,
        threshold: float | None = None,
        seed: int = 0,
        **others: Any,
    ) -> None:
        super().__init__(setting, seed=seed, **others)
        for name, value, known in (("detector", detector, DETECTORS), ("restart", restart, _RESTARTS)):
            if value not in known:
                raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, not {value!r}")
        if memory is not None and not 40.0 <= memory < math.inf:
            raise ValueError(f"memory must be a finite number of at least 40, or None, not {memory!r}")
        self.detector, self.share = detector, _RESTARTS[restart]
        self.memory = math.inf if memory is None else float(memory)
        self.refresh = math.inf if refresh is None else real("refresh", refresh)
        self.threshold = None if threshold is None else real("threshold", threshold)

    def first_belief(self, rows: int) -> Any:
        """Nothing seen yet."""
        chosen = {"share": self.share, "memory": self.memory, "refresh": self.refresh}
        if self.threshold is not None:
            chosen["threshold"] = self.threshold
        return DETECTORS[self.detector].empty(rows, self.setting.n, **chosen)

    def first_plan(self, rows: int) -> Attendance:
        """Everybody is there."""
        return Attendance.full(rows, self.setting.n, _PAUSE)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Do as the rule does.

        To it those who are to be tried again look as if they had never been, and those who are away all but standing.
        """
        belief = state.belief
        results, _ = Belief.empty(*belief.counts.shape).observe(seen["worker"], seen["time"])
        roll = state.plan.after(results, _PAUSE, _LONGEST)
        shown = belief.forgetting(belief.untried()).slowed(roll.away & (roll.wait > 0))
        action, after = super().act(state._replace(belief=shown), seen)
        return action, after._replace(belief=belief, plan=roll._replace(asked=action))


class RestartingThompson(Restarting, Thompson):
    """Thompson sampling that starts anew when a change is detected.

    Thompson's draws, 1 / lambda with lambda ~ Gamma(c K, rate c S), from the K tasks since the last alarm of total time
    S, those long past counting less. See ``ata_policies.detection`` for the alarm, and ``Restarting`` for the
    hyperparameters. Ours: the parts are published, but not a test of relative times, nor who starts anew, nor the
    refresh.
    """

    source = f"{_SOURCE}, and Thompson, 1933"
    constants = f"{_USUAL}; memory 200; shape 1"
    assumes = "gamma times of the shape given, which change seldom"


class RestartingThompsonGamma(Restarting, ThompsonGamma):
    """Thompson sampling with learned shapes that starts anew when a change is detected.

    As RestartingThompson and ThompsonGamma; the shapes are learned anew as well. Ours.
    """

    source = f"{_SOURCE}, and Thompson, 1933"
    constants = f"{_USUAL}; memory 200; weight 5"
    assumes = "gamma times of similar shapes, which change seldom"


class RestartingBeta(Restarting, ThompsonBeta):
    """The beta rule on Thompson's draws that starts anew when a change is detected.

    As RestartingThompsonGamma and ThompsonBeta. With all speeds of the published linear setting (n = 51) permuted every
    20,000 rounds its runtime was 1.4 % above the dynamic oracle's, and 5.4 % below dynamic OFTA's. A round costs five
    times what ATA's does, as the detector looks at each task. Ours.
    """

    source = f"{_SOURCE}, and Thompson, 1933"
    constants = f"{_USUAL}; memory 200; beta 1.5, weight 5"
    assumes = "gamma times of similar shapes, which change seldom"


class _RestartingBound(Restarting, RecentBound):
    """ATA's bounds: too wide where little is remembered, and 0 for who starts anew alone, who would get all tasks."""

    source = f"{_SOURCE}, and Maranjyan et al., ICML 2025"
    assumes = "sub-exponential times, which change seldom"

    def __init__(
        self, setting: Setting, *, restart: str = "everybody", memory: float | None = None, **others: Any
    ) -> None:
        super().__init__(setting, restart=restart, memory=memory, **others)


class RestartingAta(_RestartingBound, AtaIcml):
    """ATA (ICML) that starts anew when a change is detected: (m - 2 alpha f)+ from the tasks since the last alarm.

    The rounds in f are counted since everybody started anew. See ``ata_policies.detection`` for the alarm, and
    ``Restarting`` for the hyperparameters; by default memory is None, and everybody starts anew. Ours.
    """

    constants = f"{_USUAL}; 2 alpha, alpha >= psi1 norm of X - mean"


class RestartingAtaEmpirical(_RestartingBound, AtaEmpiricalIcml):
    """ATA-Empirical (ICML) that starts anew when a change is detected: m (1 - 2 eta f)+ since the last alarm.

    As RestartingAta, with eta for alpha. Ours.
    """

    constants = f"{_USUAL}; 2 eta, eta >= psi1 norm of (X - mean) / mean"
