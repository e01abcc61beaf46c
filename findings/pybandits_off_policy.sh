#!/usr/bin/env bash
# pybandits 8.4.1, scipy 1.17.1, pydantic 2.14.4, loguru 0.6.0
#
# Off-policy estimators of PyBandits are others than those they are named after. The doubly robust ones take from each reward the
# expected reward of the policy, where that of the action that was taken is meant: so they are wrong whenever the propensities
# are, even with the true expected rewards, which they should survive. Switch-DR keeps the importance weights above its threshold
# and drops those below, the other way round; by default, with no threshold, it is the direct method. The sub-Gaussian estimators
# have a shrinkage factor that nothing reads. Here a policy is worth 0.52, and all numbers are means over 20000 rounds.
# It concerns comparisons of policies by logs: take ipw and snips, which are right, or the three lines of numpy below.
. "$(dirname "$0")/fresh.bash"
install scipy==1.17.1 pydantic==2.14.4 loguru==0.6.0 numpy==2.4.6
install_alone pybandits==8.4.1

expect "the policy is worth 0.52
doubly robust, all true: 0.52, by definition 0.52
doubly robust, propensities wrong: 0.44, by definition 0.52
doubly robust, expected rewards wrong: 0.52, by definition 0.52
expected rewards wrong, importance weights 0.25 and 4
Switch-DR, threshold 2: 0.58, by definition 0.44
Switch-DR, threshold inf: 0.50, by definition 0.52
direct method: 0.50
sub-Gaussian, shrinkage factor 0.0: 0.52, by its own formula 0.52
sub-Gaussian, shrinkage factor 0.5: 0.52, by its own formula 0.26
sub-Gaussian, shrinkage factor 1.0: 0.52, by its own formula 0.28
ipw: 0.52
snips: 0.52" <<'PY'
import numpy as np
from pybandits import offline_policy_estimator as estimators

ROUNDS = 20000
RNG = np.random.default_rng(0)
LOGGED, POLICY, REWARD = np.array([0.8, 0.2]), np.array([0.2, 0.8]), np.array([0.2, 0.6])

action = RNG.choice(2, size=ROUNDS, p=LOGGED)
reward = (RNG.random(ROUNDS) < REWARD[action]).astype(int)


def table(row):
    return np.tile(row, (ROUNDS, 1))


def by_pybandits(estimator, propensity, expected):
    return estimator.estimate_sample_rewards(
        action=action,
        reward=reward,
        propensity_score=propensity[action],
        estimated_policy=table(POLICY),
        expected_reward=table(expected),
    ).mean()


def by_definition(propensity, expected, shrink=lambda weight: weight):
    weight = shrink((POLICY / propensity)[action])
    return (POLICY @ expected + weight * (reward - expected[action])).mean()


HALF = np.array([0.5, 0.5])
print(f"the policy is worth {POLICY @ REWARD:.2f}")
for name, propensity, expected in (
    ("all true", LOGGED, REWARD),
    ("propensities wrong", HALF, REWARD),
    ("expected rewards wrong", LOGGED, HALF),
):
    found = by_pybandits(estimators.DoublyRobust(), propensity, expected)
    print(f"doubly robust, {name}: {found:.2f}, by definition {by_definition(propensity, expected):.2f}")

print("expected rewards wrong, importance weights 0.25 and 4")
for threshold in (2, np.inf):
    found = by_pybandits(estimators.SwitchDoublyRobust(switch_threshold=threshold), LOGGED, HALF)
    right = by_definition(LOGGED, HALF, lambda weight: weight * (weight <= threshold))
    print(f"Switch-DR, threshold {threshold}: {found:.2f}, by definition {right:.2f}")
direct = by_pybandits(estimators.DirectMethod(), LOGGED, HALF)
print(f"direct method: {direct:.2f}")

for factor in (0.0, 0.5, 1.0):
    found = by_pybandits(estimators.SubGaussianInverseProbabilityWeighting(shrinkage_factor=factor), LOGGED, REWARD)
    weight = (POLICY / LOGGED)[action]
    right = (reward * weight / (1 - factor + factor * weight)).mean()
    print(f"sub-Gaussian, shrinkage factor {factor}: {found:.2f}, by its own formula {right:.2f}")
for estimator in (estimators.InverseProbabilityWeighting(), estimators.SelfNormalizedInverseProbabilityWeighting()):
    print(f"{estimator.name}: {by_pybandits(estimator, LOGGED, REWARD):.2f}")
PY
