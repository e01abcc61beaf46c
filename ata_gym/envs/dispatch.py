"""The env whose steps are decisions within a round, single and vector."""

from typing import Any

import gymnasium.vector
from numpy.typing import NDArray

from ata_gym.envs.interface.interface import Observation
from ata_gym.envs.single import SingleEnv
from ata_gym.envs.spaces import Dispatch
from ata_gym.envs.states.dispatch import DispatchState
from ata_gym.envs.vector import VectorEnv


class TaskDispatchEnv(SingleEnv):
    """A round needs B results; at each result the action starts tasks on idle workers.

    ## Description

    Each idle worker that the action names starts one task now. Then time passes until the next
    result. Of results at the same moment the lowest worker's comes first, in a step of its own. At
    the B-th result the round ends. Tasks that are still running are cancelled, their time so far
    counts as worker time and is seen as ``elapsed``, and all workers are idle. A step is one
    result, so that a round takes B steps.

    ``TaskAllocationEnv`` and ``TaskRaceEnv`` are the special case "1 while ``started`` is below the
    allocation", with the same task times, round times and worker times, bit for bit.

    ## Action Space

    ``Dispatch(n)``: a vector of n zeros and ones; it batches and flattens as ``MultiDiscrete``
    does. The entry of a worker that is running a task has no effect, and neither has a 1 for a dead
    worker. If no worker would be running a task, all start one. Anything else raises ValueError,
    and leaves the env as it was.

    ## Observation Space

    A ``Dict`` of the last result, and of the state of the round:

    | key | shape | dtype | meaning |
    |---|---|---|---|
    | ``worker`` | (1,) | int64 | the worker of the result; -1 after a reset |
    | ``duration`` | (1,) | float64 | how long its task took; 0 after a reset |
    | ``elapsed`` | (n,) | float64 | at a round's end, the time of cancelled or lost tasks, else 0 |
    | ``missing`` | (1,) | int64 | results that the round still needs; B at its start |
    | ``started`` | (n,) | int64 | tasks that each worker has started in the round |
    | ``running`` | (n,) | int8 | whether each worker is running a task, 0 or 1 |
    | ``age`` | (n,) | float64 | for how long that task has been running |

    The keys ``latency``, ``signal`` and ``present`` are as in ``TaskAllocationEnv``. A worker pays
    its latency once in a round, with its first start. ``latency`` shows it beside the worker's
    first result of the round, or at the round's end for a worker that has none. While a worker pays
    it, the worker is running. ``age`` counts from the start of a task, with a latency before it.

    ## Rewards

    The reward of a step is -(time that passed + price * worker time in it). The rewards of a round
    add up to -(round time + price * worker time).

    ## Starting State

    There is no feedback, all workers are idle, and all B results are missing.

    ## Episode End

    Truncation at the end of the round with the number ``horizon``, which counts rounds. The limit
    ``max_episode_steps`` of ``gymnasium.make`` counts steps, B in each round.

    ## Information

    The keys of ``TaskAllocationEnv``, where the times and ``lost`` count the round, and the
    episode, so far. The key ``round_over`` says whether this result was the B-th.

    ## Arguments

    ``gymnasium.make("ata_gym/TaskDispatch-v0", scenario="five-workers", price=0.1)``. The arguments
    are the same as in ``TaskAllocationEnv``, without ``unit_costs`` and ``delay`` (within a round a
    decision needs to know who is running), and but for these:

    - ``backend``: what runs the tasks in place of the simulation. Its method ``dispatch`` is called
      as ``ata_gym.simulation.dispatch.dispatch_step`` is, with one row.
    - ``changes``: all but ``ShareTime``, as the tasks of a worker are not known before the round.
    - ``action``: "dispatch" is the vector above. With "start" one worker at a time starts a task;
      the number n, or a worker that is not idle, lets time pass. It has masks.

    ## Reset options

    ``pool``, ``changes``, ``price`` and ``horizon``, as in ``TaskAllocationEnv``.

    ## Notes

    A worker that dies (`ata_gym.changes.Spot` and `Crash`) is no longer running. The time of the
    task that it lost is its ``elapsed`` at the round's end.

    ## Example

    >>> import gymnasium as gym, numpy as np, ata_gym
    >>> pool = {"family": "deterministic", "scale": [2.0, 3.0]}
    >>> env = gym.make("ata_gym/TaskDispatch-v0", pool=pool, budget=2)
    >>> observation, _ = env.reset(seed=0)
    >>> observation, reward, _, _, info = env.step(np.array([1, 1]))
    >>> observation["worker"], observation["missing"], observation["running"], observation["age"]
    (array([0]), array([1]), array([0, 1], dtype=int8), array([0., 2.]))
    >>> observation, reward, _, _, info = env.step(np.array([0, 1]))
    >>> reward, info["round_time"], info["worker_time"], info["round_over"]
    (-1.0, 3.0, 5.0, True)

    ## Version History

    v0: the first version.
    """

    _state_class = DispatchState
    action_space: Dispatch


class TaskDispatchVectorEnv(
    VectorEnv,
    gymnasium.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]],
):
    """E rows of ``TaskDispatchEnv``, with the arguments of ``TaskAllocationVectorEnv``.

    The rows take their steps together, but each row is at its own place in its round.
    """

    _state_class = DispatchState
