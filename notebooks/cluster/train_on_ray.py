"""SGD on a Ray cluster, as a race: each round needs 8 gradients, and the slow half of the workers
may come too late.

python notebooks/cluster/train_on_ray.py                             # on this machine alone
python notebooks/cluster/train_on_ray.py --address auto --workers 8   # the cluster of this node
"""

import argparse
import time

import numpy as np

from ata_gym.cluster import RayRunner, cancelled, connect_ray


def make_task(worker):
    """Called once in each actor: here the data are made, and the task function is returned."""
    features = np.random.default_rng(0).normal(size=(1000, 20))
    targets = features @ np.linspace(-1.0, 1.0, 20)

    def gradient(weights, index):
        """The loss and the gradient of one sample; odd workers take three times as long."""
        for _ in range(3 if worker % 2 else 1):
            if cancelled():  # the round is over, and nobody waits for this result
                return None
            time.sleep(0.01)
        row = index * 7919 % 1000  # another sample in each task
        error = features[row] @ weights - targets[row]
        return error**2, 2.0 * error * features[row]

    return gradient


parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument(
    "--address",
    help="of a Ray cluster; without it, one is started here, on loopback only",
)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--rounds", type=int, default=100)
given = parser.parse_args()

connect_ray(given.address)
weights = np.zeros(20)
with RayRunner(make_task, given.workers, budget=8, mode="race", deadline=30.0) as runner:
    for step in range(given.rounds):
        done = runner.round(weights)
        losses, gradients = zip(*done.values, strict=True)
        weights = weights - 0.02 * np.mean(gradients, axis=0)
        if step % 10 == 0:
            print(f"loss {np.mean(losses):.4f}; {done.record}")
