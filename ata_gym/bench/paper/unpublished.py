"""Figures of the paper of which not all is known to us: its motivation, and ATA with a prior."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.experiment.claim import claim
from ata_gym.pools import shifted_exponential
from ata_gym.scenarios import Scenario, scenario
from ata_policies.beliefs.moments import Totals
from ata_policies.beliefs.prior import read_prior, save_prior
from ata_policies.presets import PRESETS
from ata_policies.registry import Given, given
from ata_policies.steps import play

_C = np.repeat([1.0, 10.0], [10, 1_000])
MOTIVATION = (  # the scenario, who plays on it, and what there is to say
    Scenario(shifted_exponential(_C, _C), 10, name="motivation-n1010"),
    ("gta", "uta", "ofta", "oracle"),  # all workers at once, an even share, the best allocations
    "At least 99 % of GTA's worker time, 1 - B / n, gives no result: all workers are busy in all of a round, and each "
    "of the B results takes one of them at most the round.\nOurs: the task times, c + Exp(c), c = 1 of ten workers and "
    "10 of 1,000. The paper's, and its figures, are not known to us: nothing is compared.",
)

_TASKS, _SEED = 1_000, 10**6  # of the earlier run; the seed is none of the figure's
_ATA, _RIGHT, _WRONG = "ata-icml", "right-prior", "wrong-prior"
PRIOR = (
    scenario("icml2025-regret"),
    ("ofta", _ATA, _RIGHT, _WRONG),
    f"{_RIGHT} is {_ATA} after {_TASKS:,} tasks of each worker in an earlier run; {_WRONG} takes them for those of the "
    "workers in reverse, so that the slowest seems the fastest.\nOurs: the scenario, these priors, and the constants, "
    "those of ICML with the true norms. The paper's protocol and figures are not known to us: nothing is compared.",
)


@contextmanager
def with_priors(out: Path) -> Iterator[None]:
    """Make the priors, files in a folder; inside the block this process knows the policies that begin with them."""
    claimed = claim(out)
    earlier = replace(PRIOR[0], budget=PRIOR[0].pool.n, horizon=_TASKS + 1)  # one task for each worker in a round
    env = gym.make("ata_gym/TaskAllocation-v0", scenario=earlier)
    *_, last = play(ata_policies.make("uta", env), env, _SEED)
    counts, totals = last.state.belief
    found = {}
    for name, order in ((_RIGHT, slice(None)), (_WRONG, slice(None, None, -1))):
        save_prior(path := out / f"{name}.csv", Totals(counts[:, order], totals[:, order]))
        chosen = {**PRESETS[_ATA].hyperparameters, "memory": "prior", "prior": read_prior(path)}
        found[name] = Given(replace(PRESETS[_ATA], name=name, hyperparameters=chosen), path.read_text("utf-8"))
    with given(found):
        yield
    del claimed
