"""The motivation of the paper: 1,010 workers of which a round needs ten results. The task times are ours."""

import numpy as np

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.report import report as usual_report
from ata_gym.pools import shifted_exponential
from ata_gym.scenarios import Scenario

POLICIES = ("gta", "uta", "ofta", "oracle")  # all workers at once, an even share, and the best that can be allocated
ROUNDS = 1_000

_C = np.repeat([1.0, 10.0], [10, 1_000])
SCENARIO = Scenario(
    shifted_exponential(_C, _C), 10, name="motivation-n1010", summary="c + Exp(c), c = 1 of ten workers, 10 of 1,000"
)


def report(experiment: Experiment, policies: list[str], folder: Folder) -> Report:
    """What ``bench`` reports, and how much of GTA's work is in vain."""
    made, n, budget = usual_report(experiment, policies, folder), experiment.scenario.pool.n, experiment.scenario.budget
    said = (
        f"At least {1 - budget / n:.1%} of GTA's worker time gives no result: its {n:,} workers are busy in all of a "
        f"round, and a result takes one of them at most the round. Ours: the task times, {experiment.scenario.summary}; "
        "those of the paper, and its figures, are not known to us: nothing is compared."
    )
    return made._replace(remark=f"{made.remark}\n{said}")
