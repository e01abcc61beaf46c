#!/usr/bin/env bash
# smpybandits 0.9.7, scipy 1.13.1, numpy 1.26.4; Python 3.11 or 3.12, as it takes no later scipy
#
# Three policies of SMPyBandits are others than their documentation says. DiscountedUCB keeps its discounted numbers of pulls
# as integers, so that each is cut off to 1 for ever, while its discounted rewards are floats and add up. So the arm that is
# played first counts for up to 1 / (1 - gamma) rewards, and is not left, even where another one becomes better: a policy that is
# there to follow changes follows none. DiscountedUCBPlus and DiscountedklUCB inherit it.
# DiscountedThompson discounts the arm that was played once for each other arm, and the others never: it forgets what it plays,
# the faster the more arms there are, and remembers what it does not play as if it were of today.
# TsallisInf looks for the root of its equation by minimising the square of it, and often finds one between the losses of two
# arms, which gives most of the probability to the worse arm: here its regret is three times that by definition.
# It concerns comparisons in which these policies are baselines: take SWUCB, whose window is right, or the classes below.
. "$(dirname "$0")/fresh.bash"
install scipy==1.13.1 numpy==1.26.4
install_alone smpybandits==0.9.7

expect "five pulls of the first arm with the reward 1, gamma 0.95
DiscountedUCB: discounted pulls 1.00
by definition: discounted pulls 4.52
DiscountedUCB: index 4.52, where all rewards are at most 1 and there is no bonus
then 20 rounds without a pull of the first of three arms
DiscountedThompson: successes 3.40 and then 3.40
by definition: successes 4.52 and then 1.62
2000 rounds, chances 0.6 and 0.2 in the first half, 0.6 and 0.9 in the second
DiscountedUCB: mean regret 340, one arm has 99% of the rounds in 10 of 10 games
by definition: mean regret 135, one arm has 99% of the rounds in 0 of 10 games
SWUCB, the last 100 rounds: mean regret 103, one arm has 99% of the rounds in 0 of 10 games
2000 rounds, chances 0.4 and 0.6
TsallisInf: mean regret above 75 True; by definition: below 40 True
TsallisInf: the arm of the larger losses is the likelier one in more than a tenth of the rounds True" <<'PY'
import contextlib
import io
import sys
from unittest.mock import MagicMock

import numpy as np
from scipy.optimize import brentq

for name in ("matplotlib", "matplotlib.pyplot", "seaborn"):
    sys.modules[name] = MagicMock()  # nothing is plotted
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    from SMPyBandits.Policies import DiscountedThompson, DiscountedUCB, SWUCB, TsallisInf

GAMMA, ROUNDS, SEEDS = 0.95, 2000, 10


class ByDefinition:
    """What a policy keeps of two arms; all begins with 0."""

    def __init__(self):
        self.t, self.pulls, self.rewards, self.losses = 0, np.zeros(2), np.zeros(2), np.zeros(2)
        self.trusts = np.full(2, 0.5)

    def startGame(self):
        pass

    def getReward(self, arm, reward):
        self.t += 1
        self.pulls, self.rewards = GAMMA * self.pulls, GAMMA * self.rewards
        self.pulls[arm] += 1
        self.rewards[arm] += reward
        self.losses[arm] += (1 - reward) / self.trusts[arm]


class UCB(ByDefinition):
    def choice(self):
        if self.t < 2:
            return self.t
        return np.argmax(self.rewards / self.pulls + np.sqrt(np.log(self.pulls.sum()) / (2 * self.pulls)))


class Thompson(ByDefinition):
    def choice(self):
        return np.argmax(np.random.beta(1 + self.rewards, 1 + self.pulls - self.rewards))


class Tsallis(ByDefinition):
    def choice(self):
        return np.random.choice(2, p=self.trusts)

    def getReward(self, arm, reward):
        super().getReward(arm, reward)
        self.trusts = solve(self.losses, self.t)


def solve(losses, t):
    """The weights (eta (losses - x))^-2, where x is below all losses, and makes their sum 1."""
    eta = 1 / np.sqrt(t)
    low, high = losses.min() - 2 / eta, losses.min() - 0.5 / eta
    x = brentq(lambda x: np.sum((eta * (losses - x)) ** -2.0) - 1, low, high)
    weights = (eta * (losses - x)) ** -2.0
    return weights / weights.sum()


def play(make, seed, first, second):
    np.random.seed(seed)
    policy = make()
    policy.startGame()
    regret, choices = 0.0, np.zeros(2, int)
    for t in range(ROUNDS):
        chances = first if t < ROUNDS // 2 else second
        arm = policy.choice()
        policy.getReward(arm, float(np.random.random() < chances[arm]))
        regret += max(chances) - chances[arm]
        choices[arm] += 1
    return regret, choices


def show(name, make, first, second):
    games = [play(make, seed, first, second) for seed in range(SEEDS)]
    alone = sum(choices.max() > 0.99 * ROUNDS for _, choices in games)
    regret = np.mean([regret for regret, _ in games])
    print(f"{name}: mean regret {regret:.0f}, one arm has 99% of the rounds in {alone} of {SEEDS} games")


print("five pulls of the first arm with the reward 1, gamma 0.95")
policy, right = DiscountedUCB(2, gamma=GAMMA), ByDefinition()
policy.startGame()
for _ in range(5):
    policy.getReward(0, 1.0)
    right.getReward(0, 1.0)
for name, one in (("DiscountedUCB", policy.discounted_pulls), ("by definition", right.pulls)):
    print(f"{name}: discounted pulls {one[0]:.2f}")
print(f"DiscountedUCB: index {policy.computeIndex(0):.2f}, where all rewards are at most 1 and there is no bonus")
print("then 20 rounds without a pull of the first of three arms")
policy = DiscountedThompson(3, gamma=GAMMA)
policy.startGame()
for _ in range(5):
    policy.getReward(0, 1.0)
before = policy.posterior[0].N[1]
for _ in range(20):
    policy.getReward(1, 1.0)
print(f"DiscountedThompson: successes {before:.2f} and then {policy.posterior[0].N[1]:.2f}")
print(f"by definition: successes {right.rewards[0]:.2f} and then {right.rewards[0] * GAMMA**20:.2f}")

BETTER = (0.6, 0.2), (0.6, 0.9)
print("2000 rounds, chances 0.6 and 0.2 in the first half, 0.6 and 0.9 in the second")
show("DiscountedUCB", lambda: DiscountedUCB(2, gamma=GAMMA), *BETTER)
show("by definition", UCB, *BETTER)
show("SWUCB, the last 100 rounds", lambda: SWUCB(2, tau=100), *BETTER)

print("2000 rounds, chances 0.4 and 0.6")
regrets = [
    np.mean([play(make, seed, (0.4, 0.6), (0.4, 0.6))[0] for seed in range(SEEDS)])
    for make in (lambda: TsallisInf(2), Tsallis)
]
print(f"TsallisInf: mean regret above 75 {regrets[0] > 75}; by definition: below 40 {regrets[1] < 40}")
np.random.seed(0)
policy, reversed_rounds = TsallisInf(2), 0
policy.startGame()
for _ in range(ROUNDS):
    arm = policy.choice()
    policy.getReward(arm, float(np.random.random() < (0.4, 0.6)[arm]))
    reversed_rounds += policy.trusts[policy.cumulative_losses.argmax()] > 0.51
print(f"TsallisInf: the arm of the larger losses is the likelier one in more than a tenth of the rounds {reversed_rounds > 200}")
PY
