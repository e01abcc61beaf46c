#!/usr/bin/env bash
# coba 8.1.0
#
# LinTSLearner(seed=s) of Coba does not read its seed where it draws coefficients: that generator always has the seed 1. So runs
# over seeds, as for an interval, are one run; only the environment makes them differ.
# The probability that it returns with an action, which logged() writes, and by which IPS divides, is that after the draw, which
# is 1. So a log of LinTS looks as if nothing had been explored: IPS finds 0.24 and 0.26 for two actions that are worth 0.50 each.
# And v is a variance, where in the paper that it names v^2 is: with v 0.1 it explores as the paper's with 0.32.
# BanditUCBLearner forgets the first reward of each action: its means and variances are those of the others, while its numbers of
# pulls count all. Here both actions have two rewards, and the one with the lower mean is taken.
# It concerns comparisons of learners over seeds, and of policies by logs. For a log take the mean of some hundred calls of
# score() before learn(), as below; for v give v^2; for another seed set learner._nrng after the first predict().
. "$(dirname "$0")/fresh.bash"
install coba==8.1.0 numpy==2.4.6

expect "LinTS, 300 rounds, seeds 0 to 19: 1 kind of run, by definition 20
two actions, the reward is 0 and 1 by turns whichever is taken, so that both are worth 0.50
by IPS from the log of LinTS: 0.24 and 0.26
by IPS from the log of Random: 0.53 and 0.47
with the mean of 300 scores as the probability: 0.52 and 0.51
LinTS with v 0.1, after 99 rewards of 0.50 of one action and 0.55 of the other
coba: the worse action is taken in 14% of the rounds
by definition: the worse action is taken in 0% of the rounds
UCB, after rewards 1 and 0 of a, whose mean is 0.5, and 0 and 0.4 of b, whose mean is 0.2: b is taken" <<'PY'
import numpy as np
from coba import Environments
from coba.learners import BanditUCBLearner, LinTSLearner, RandomLearner

ACTIONS = [(1, 0), (0, 1)]


def play(learner, seed=0, rounds=300):
    """Which of two actions is taken in each round; the rewards are the same for each learner."""
    rng, taken = np.random.default_rng(seed), []
    for _ in range(rounds):
        action, probability = learner.predict(None, ACTIONS)[:2]
        rewards = (rng.random(2) < (0.5, 0.6)).astype(float)
        taken.append(ACTIONS.index(action))
        learner.learn(None, action, rewards[taken[-1]], probability)
    return tuple(taken)


class Thompson:
    """LinTS of two actions without contexts, by its definition."""

    def __init__(self, v, seed):
        self.v, self.rng = v, np.random.default_rng(seed)
        self.precision, self.sums = np.ones(2), np.zeros(2)

    def predict(self, context, actions):
        sampled = self.rng.normal(self.sums / self.precision, self.v / np.sqrt(self.precision))
        return actions[sampled.argmax()], None

    def learn(self, context, action, reward, probability):
        self.precision += action
        self.sums += np.multiply(action, reward)


found = {play(LinTSLearner(features=["a"], seed=seed)) for seed in range(20)}
right = {play(Thompson(1, seed)) for seed in range(20)}
print(f"LinTS, 300 rounds, seeds 0 to 19: {len(found)} kind of run, by definition {len(right)}")

print("two actions, the reward is 0 and 1 by turns whichever is taken, so that both are worth 0.50")
for learner in (LinTSLearner(features=["a"]), RandomLearner()):
    simulation = Environments.from_lambda(2000, lambda i: None, lambda i, c: ACTIONS, lambda i, c, a: float(i % 2))
    estimated = list(simulation.logged(learner).ope_rewards("IPS")[0].read())
    values = [np.mean([row["rewards"](action) for row in estimated]) for action in ACTIONS]
    print(f"by IPS from the log of {learner.params['family']}: {values[0]:.2f} and {values[1]:.2f}")
learner, values = LinTSLearner(features=["a"]), np.zeros(2)
for i in range(600):
    action, _ = learner.predict(None, ACTIONS)
    probability = np.mean([learner.score(None, ACTIONS, action) for _ in range(300)])
    values += np.multiply(action, i % 2 / probability)
    learner.learn(None, action, float(i % 2), probability)
print(f"with the mean of 300 scores as the probability: {values[0] / 600:.2f} and {values[1] / 600:.2f}")

coba, definition = LinTSLearner(v=0.1, features=["a"]), Thompson(0.1, seed=0)
for reward in (0.5, 0.55):
    for learner in (coba, definition):
        for _ in range(99):
            learner.learn(None, ACTIONS[reward == 0.55], reward, 1.0)
print("LinTS with v 0.1, after 99 rewards of 0.50 of one action and 0.55 of the other")
for name, learner in (("coba", coba), ("by definition", definition)):
    worse = np.mean([learner.predict(None, ACTIONS)[0] == ACTIONS[0] for _ in range(2000)])
    print(f"{name}: the worse action is taken in {worse:.0%} of the rounds")

learner = BanditUCBLearner()
for action, reward in (("a", 1.0), ("a", 0.0), ("b", 0.0), ("b", 0.4)):
    learner.learn(None, action, reward, 1.0)
taken = learner.predict(None, ["a", "b"])[0]
print(f"UCB, after rewards 1 and 0 of a, whose mean is 0.5, and 0 and 0.4 of b, whose mean is 0.2: {taken} is taken")
PY
