#!/usr/bin/env bash
# adastop 0.1.3, scipy 1.17.1
#
# AdaStop finds differences between equal agents more often than its level alpha allows: for two agents twice as often. Its test
# is two-sided by the documentation, and compares the absolute value of the difference of means with a threshold; but the
# threshold is the quantile of the differences with their sign, of which half are negative. Here ten scores are given to two
# agents in all 252 ways; a test of level alpha rejects in at most 252 alpha of them, as scipy's two-sided test does. For several
# agents alpha is documented as the probability of any false difference; for five it is exceeded even where half is asked for.
# It concerns all rankings by adastop: for two agents ask for half of the level that is meant; for more take a fixed number of
# runs, scipy's test for each pair, and Holm's correction.
. "$(dirname "$0")/fresh.bash"
install adastop==0.1.3 scipy==1.17.1 numpy==2.4.6

expect "level 0.1: at most 25 of 252; adastop rejects in 50, scipy in 24
level 0.05: at most 12 of 252; adastop rejects in 24, scipy in 12
level 0.01: at most 2 of 252; adastop rejects in 4, scipy in 2
level 0.025: at most 6 of 252; adastop rejects in 12, scipy in 6
five equal agents, level 0.05: a difference in 41 of 300 comparisons, at most 15 are expected
five equal agents, level 0.025: a difference in 28 of 300 comparisons, at most 7 are expected" <<'PY'
from itertools import combinations

import numpy as np
from adastop import MultipleAgentsComparator
from scipy.stats import permutation_test

SCORES = np.random.default_rng(0).normal(size=10)


def splits():
    for first in combinations(range(10), 5):
        mask = np.isin(np.arange(10), first)
        yield SCORES[mask], SCORES[~mask]


def adastop_rejects(scores, level):
    """Whether any two agents, of which each has five scores, are said to differ."""
    comparator = MultipleAgentsComparator(n=5, K=1, alpha=level)
    comparator.partial_compare(dict(enumerate(scores)), verbose=False)
    return any(decision != "equal" for decision in comparator.decisions.values())


def scipy_rejects(scores, level):
    def statistic(x, y, axis):
        return np.mean(x, axis) - np.mean(y, axis)

    # 252 splits in all, so that each is looked at once
    return permutation_test(scores, statistic, vectorized=True).pvalue <= level


for level in (0.1, 0.05, 0.01, 0.025):
    adastop = sum(adastop_rejects(split, level) for split in splits())
    scipy = sum(scipy_rejects(split, level) for split in splits())
    print(
        f"level {level}: at most {int(252 * level)} of 252;"
        f" adastop rejects in {adastop}, scipy in {scipy}"
    )

for level in (0.05, 0.025):
    found = 0
    for seed in range(300):
        scores = np.random.default_rng(seed).normal(size=(5, 5))
        found += adastop_rejects(scores, level)
    print(
        f"five equal agents, level {level}: a difference in {found} of 300 comparisons,"
        f" at most {int(300 * level)} are expected"
    )
PY
