"""Text generation for post-training by RL, on a Ray cluster: a step needs N answers, of lengths
with a long tail.

python notebooks/cluster/rollouts.py                             # on this machine alone
python notebooks/cluster/rollouts.py --address auto --workers 8   # the cluster of this node

Three ways: even shares, where all wait for the longest answer; a race, which starts more than N and
takes the first N; and dispatch, which routes the next prompt to a worker at each answer. The first
N are shorter than a fair sample.
"""

import argparse
import time

import numpy as np

from ata_gym.cluster import RayRunner, cancelled, connect_ray

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument(
    "--address",
    help="of a Ray cluster; without it, one is started here, on loopback only",
)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--answers", type=int, default=16, help="N, the answers of a step")
parser.add_argument("--steps", type=int, default=20)
given = parser.parse_args()


def make_task(worker):
    """Called once in each actor: load the model here.

    The last worker needs twice as long for a token.
    """
    if worker == given.workers - 1:
        seconds = 0.002
    else:
        seconds = 0.001

    def generate(policy, prompt):
        """A token after the other; an answer ends at random, after 40 tokens in the mean, sometimes
        after 400.
        """
        rng = np.random.default_rng([policy, prompt])
        length = int(rng.lognormal(3.2, 1.0)) + 1
        for _ in range(length):
            if cancelled():  # the step has its answers
                return None
            time.sleep(seconds)
        return length

    return generate


connect_ray(given.address)
usual = {}
for name, mode in (("even shares", "allocation"), ("race", "race"), ("dispatch", "dispatch")):
    times = []
    lengths = []
    if mode == "allocation":
        policy = "uta"
    else:
        policy = "default"
    with RayRunner(
        make_task,
        given.workers,
        given.answers,
        policy,
        mode=mode,
        deadline="learned",
    ) as runner:
        for step in range(given.steps):
            done = runner.round(step)
            times.append(done.record.round_time)
            lengths += done.values
    usual[name] = float(np.median(times[2:]))
    print(
        f"{name}: {1000 * usual[name]:.0f} ms a step, {usual[name] / usual['even shares']:.2f} of"
        f" that with even shares; {np.mean(lengths):.0f} tokens an answer",
    )
