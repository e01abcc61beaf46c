"""Figures of the paper that we know only in part: its motivation, and ATA with a prior."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_gym.scenarios import Scenario, scenario
from ata_policies.beliefs.moments import Totals
from ata_policies.beliefs.prior import read_prior, save_prior
from ata_policies.presets import PRESETS
from ata_policies.registry import RegisteredPolicy
from ata_policies.steps import play

_C = np.repeat([1.0, 10.0], [10, 1_000])
MOTIVATION = Scenario(shifted_exponential(_C, _C), 10, name="motivation-n1010")
"""The scenario of the motivation."""

MOTIVATION_POLICIES = ("gta", "uta", "ofta", "oracle")
"""All workers at once, an even share, and the best allocations."""

MOTIVATION_REMARKS = (
    "At least 99 % of GTA's worker time, 1 - B / n, gives no result: all workers are busy in all of"
    " a round, and each of the B results takes one of them at most the round.",
    "Ours: the task times, c + Exp(c), c = 1 of ten workers and 10 of 1,000. The paper's, and its"
    " figures, are not known to us: nothing is compared.",
)

_TASKS = 1_000
"""Tasks of each worker in the earlier run that gives the priors."""

_SEED = 10**6
"""The seed of that run, which is none of the figure's seeds."""

_ATA = "ata-icml"
_RIGHT = "right-prior"
_WRONG = "wrong-prior"

PRIOR = scenario("icml2025-regret")
"""The scenario of ATA with a prior."""

PRIOR_REMARKS = (
    f"{_RIGHT} is {_ATA} after {_TASKS:,} tasks of each worker in an earlier run; {_WRONG} takes"
    " them for the times of the workers in reverse order, so that the slowest seems the fastest.",
    "Ours: the scenario, these priors, and the constants, ICML's with the true norms. The"
    " paper's protocol and figures are not known to us: nothing is compared.",
)


def prior_policies() -> Mapping[str, RegisteredPolicy | None]:
    """ATA without a prior, with a right and with a wrong one, and OFTA, by their names.

    The source that is kept with the results of a policy with a prior is the prior itself, as
    ``save_prior`` writes it.
    """
    # A uniform allocation of n tasks gives each worker one in a round.
    earlier_scenario = replace(PRIOR, budget=PRIOR.pool.n, horizon=_TASKS + 1)
    env = gym.make("ata_gym/TaskAllocation-v0", scenario=earlier_scenario)
    *_, last_step = play(ata_policies.make("uta", env), env, _SEED)
    counts, totals = last_step.state.belief
    policies: dict[str, RegisteredPolicy | None] = {"ofta": None, _ATA: None}
    with TemporaryDirectory() as folder:
        for name, order in ((_RIGHT, slice(None)), (_WRONG, slice(None, None, -1))):
            path = Path(folder, f"{name}.csv")
            save_prior(path, Totals(counts[:, order], totals[:, order]))
            hyperparameters = {
                **PRESETS[_ATA].hyperparameters,
                "memory": "prior",
                "prior": read_prior(path),
            }
            preset = replace(PRESETS[_ATA], name=name, hyperparameters=hyperparameters)
            policies[name] = RegisteredPolicy(preset, path.read_text("utf-8"))
    return policies
