#!/usr/bin/env bash
# rliable 1.2.0, arch 7.2.0, pandas 2.3.3
#
# get_interval_estimates(..., random_state=...), "if specified, ensures reproducibility" by the documentation, does not read it:
# StratifiedBootstrap and StratifiedIndependentBootstrap draw from numpy's global generator. So the same call gives another
# interval each time; and to compute an interval changes all later numbers of a program that has seeded numpy.
# It concerns published intervals: call np.random.seed before each call, and keep the state of the generator if it is used
# elsewhere.
. "$(dirname "$0")/fresh.bash"
install rliable==1.2.0 arch==7.2.0 pandas==2.3.3 numpy==2.4.6

expect "IQM, random_state=RandomState(0): two calls give the same False
IQM, np.random.seed(0): two calls give the same True
probability of improvement, random_state=RandomState(0): two calls give the same False
probability of improvement, np.random.seed(0): two calls give the same True
the number after np.random.seed(0) is the same after an interval False" <<'PY'
import numpy as np
from rliable import library, metrics

runs = np.random.default_rng(0).normal(size=(10, 5))  # of ten seeds on five tasks
better = np.random.default_rng(1).normal(size=(10, 5))


def iqm(scores):
    return np.array([metrics.aggregate_iqm(scores)])


def interval(kind, random_state=None):
    scores, function = {
        "IQM": (runs, iqm),
        "probability of improvement": ([runs, better], metrics.probability_of_improvement),
    }[kind]
    _, intervals = library.get_interval_estimates(
        {"agent": scores}, function, reps=200, random_state=random_state
    )
    return intervals["agent"]


for kind in ("IQM", "probability of improvement"):
    two = [interval(kind, np.random.RandomState(0)) for _ in range(2)]
    print(f"{kind}, random_state=RandomState(0): two calls give the same", np.array_equal(*two))
    two = []
    for _ in range(2):
        np.random.seed(0)
        two.append(interval(kind))
    print(f"{kind}, np.random.seed(0): two calls give the same", np.array_equal(*two))

np.random.seed(0)
alone = np.random.random()
np.random.seed(0)
interval("IQM", np.random.RandomState(0))
same = np.random.random() == alone
print("the number after np.random.seed(0) is the same after an interval", same)
PY
