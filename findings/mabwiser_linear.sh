#!/usr/bin/env bash
# mabwiser 2.7.4
#
# LinTS draws the coefficients of all arms of one fit() from the same random numbers, as fit() copies the generator into each
# arm. So arms with the same contexts go up and down together, and the one with the higher mean is chosen always: nothing is
# explored. With other contexts, too, the samples of two arms are nearly in step. In Clusters the generator is copied for each
# call as well, so that predict() of one context draws the same sample for ever.
# And until an arm has data, its covariance is l2_lambda I, where (l2_lambda I)^-1 is documented and used from the first data on.
# So with a small l2_lambda, for which LinUCB and LinTS should try a new arm at once, it may never be tried.
# It concerns comparisons with LinTS, and searches over l2_lambda: take LinUCB with l2_lambda = 1, where the two covariances are
# the same, and scale the contexts in its place.
. "$(dirname "$0")/fresh.bash"
install mabwiser==2.7.4 numpy==2.4.6

expect "LinTS, arms with the same contexts: correlation of their samples 1.00; the second arm is chosen in 0 of 1000 predictions
by numpy, with the covariance of the documentation: correlation below 0.1 True; the second arm in more than 400 True
LinTS, arms with other contexts: correlation above 0.95 True
LinTS in two clusters: different samples of an arm in 1000 calls: 1
LinUCB, bound of an arm without data, l2_lambda 0.01: 0.1, by the documentation 10
LinUCB, bound of an arm without data, l2_lambda 1: 1, by the documentation 1
LinUCB, bound of an arm without data, l2_lambda 100: 10, by the documentation 0.1
LinUCB, l2_lambda 0.01, reward 0.5 of an arm with data, 0.9 of one without: tried in 0 of 1000 rounds" <<'PY'
import numpy as np
from mabwiser.mab import MAB, LearningPolicy, NeighborhoodPolicy

ARMS = [1, 2]
CALLS = 1000
QUERY = np.array([[0.5, 0.5]])


def samples(bandit):
    """What predict() compares: a row for each call, a column for each arm."""
    return np.array([list(bandit.predict_expectations(QUERY).values()) for _ in range(CALLS)])


def correlation(drawn):
    return np.corrcoef(drawn.T)[0, 1]


rng = np.random.default_rng(0)
half = rng.standard_normal((20, 2))
contexts = np.vstack([half, half])
decisions = np.repeat(ARMS, 20)
rewards = contexts.sum(axis=1) + np.where(decisions == 1, 0.02, 0.0) * contexts.sum(axis=1)

bandit = MAB(ARMS, LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0), seed=0)
bandit.fit(decisions, rewards, contexts)
drawn = samples(bandit)
second = sum(bandit.predict(QUERY) == 2 for _ in range(CALLS))
print(
    f"LinTS, arms with the same contexts: correlation of their samples {correlation(drawn):.2f};"
    f" the second arm is chosen in {second} of {CALLS} predictions"
)

drawn = np.empty((CALLS, 2))
for column, arm in enumerate(ARMS):
    x, y = contexts[decisions == arm], rewards[decisions == arm]
    covariance = np.linalg.inv(x.T @ x + np.eye(2))
    drawn[:, column] = rng.multivariate_normal(covariance @ x.T @ y, covariance, CALLS) @ QUERY[0]
print(
    "by numpy, with the covariance of the documentation: correlation below 0.1"
    f" {abs(correlation(drawn)) < 0.1}; the second arm in more than 400"
    f" {np.sum(drawn[:, 1] > drawn[:, 0]) > 400}"
)

bandit = MAB(ARMS, LearningPolicy.LinTS(), seed=0)
bandit.fit(decisions, rewards, rng.standard_normal((40, 2)))
print("LinTS, arms with other contexts: correlation above 0.95", correlation(samples(bandit)) > 0.95)

bandit = MAB(ARMS, LearningPolicy.LinTS(), NeighborhoodPolicy.Clusters(2), seed=0)
bandit.fit(decisions, rewards, contexts)
different = len(set(samples(bandit)[:, 0]))
print(f"LinTS in two clusters: different samples of an arm in {CALLS} calls: {different}")

for strength in (0.01, 1, 100):
    bandit = MAB(ARMS, LearningPolicy.LinUCB(alpha=1.0, l2_lambda=strength), seed=0)
    bandit.fit([1], [0.5], [[1.0]])
    bound = bandit.predict_expectations([[1.0]])[2]
    print(
        f"LinUCB, bound of an arm without data, l2_lambda {strength}: {bound:g},"
        f" by the documentation {strength**-0.5:g}"
    )

bandit = MAB(ARMS, LearningPolicy.LinUCB(alpha=1.0, l2_lambda=0.01), seed=0)
bandit.fit([1], [0.5], [[1.0]])
tried = 0
for _ in range(CALLS):
    arm = bandit.predict([[1.0]])
    tried += arm == 2
    bandit.partial_fit([arm], [0.9 if arm == 2 else 0.5], [[1.0]])
print(
    "LinUCB, l2_lambda 0.01, reward 0.5 of an arm with data, 0.9 of one without:"
    f" tried in {tried} of {CALLS} rounds"
)
PY
