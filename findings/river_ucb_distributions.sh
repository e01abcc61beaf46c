#!/usr/bin/env bash
# river 0.26.1
#
# bandit.UCB with a distribution as its reward object, which is one of the three kinds that its documentation names, has no bonus:
# the upper bound of an arm is the mode of its distribution, and delta is not read. So it plays greedily, and settles on one of two
# arms, on the worse one in 11 of 20 seeds here; all values of delta play the same rounds. With a statistic such as
# stats.Mean it explores.
# It concerns comparisons of UCB with Beta or Gaussian rewards: take stats.Mean, or bandit.BayesUCB.
. "$(dirname "$0")/fresh.bash"
install river==0.26.1 numpy==2.4.6

expect "Beta: delta 0.1, 1 and 100 play the same rounds True
Beta: one arm has more than 980 of 1000 rounds in 20 of 20 seeds, the worse one in 11
Mean: delta 0.1, 1 and 100 play the same rounds False
Mean: one arm has more than 980 of 1000 rounds in 0 of 20 seeds, the worse one in 0" <<'PY'
import numpy as np
from river import bandit, proba, stats

CHANCES = (0.5, 0.6)


def rounds(reward_object, delta, seed):
    """How often each of two arms is pulled in 1000 rounds with rewards 0 and 1."""
    policy = bandit.UCB(delta=delta, reward_obj=reward_object, seed=seed)
    rng = np.random.default_rng(seed)
    counts = [0, 0]
    for _ in range(1000):
        arm = policy.pull(range(2))
        counts[arm] += 1
        policy.update(arm, int(rng.random() < CHANCES[arm]))
    return counts


for name, kind in (("Beta", proba.Beta), ("Mean", stats.Mean)):
    played = {
        delta: [rounds(kind(), delta, seed) for seed in range(20)] for delta in (0.1, 1, 100)
    }
    print(
        f"{name}: delta 0.1, 1 and 100 play the same rounds {played[0.1] == played[1] == played[100]}"
    )
    settled = sum(max(counts) > 980 for counts in played[1])
    worse = sum(counts[0] > 980 for counts in played[1])
    print(
        f"{name}: one arm has more than 980 of 1000 rounds in {settled} of 20 seeds,"
        f" the worse one in {worse}"
    )
PY
