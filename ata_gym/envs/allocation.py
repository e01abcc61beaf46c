"""The envs whose steps are rounds: allocation and race, each as a single env and as a native vector env."""

from __future__ import annotations

from ata_gym.envs.batch_state import AllocationState, Backend, RaceState
from ata_gym.envs.single import SingleEnv
from ata_gym.envs.spaces import Allocation
from ata_gym.envs.vector import VectorEnv


class TaskAllocationEnv(SingleEnv):
    """A round needs B results; the action says how many tasks each of n workers runs, and sums to B.

    Parameters
    ----------
    scenario
        A scenario or its name (see ``ata-gym scenarios``), without a pool by default ``five-workers``; or else
    pool, budget
        the workers, as a ``Pool`` or as plain data, and the results B that a round needs. A ``PoolDistribution`` draws
        workers anew in each episode.
    changes
        How the workers change from round to round, applied in this order (see ``ata_gym.changes``); by default the
        scenario's, or none.
    horizon
        Rounds in an episode; by default the scenario's, or no end.
    price
        What one unit of worker time costs in units of runtime; the reward is -(round time + price * worker time).
    signals
        Whether the observation has the key ``signal``, shape (n, 2): each worker's load of cpu and memory in the coming
        round, from 0 to 1. It drives the speed under ``ata_gym.changes.Load``; without that change it is 0.
    backend
        What runs the tasks of a round in place of the simulation, such as tasks on real devices; called as
        ``ata_gym.simulation.rounds.race_round`` is, with one row. An error that it raises leaves the env as it was.
    observation
        "feedback", a dict: the workers and durations of the results, and the times of cancelled tasks. "workers":
        float32 features, shape (n, 15), from -10 to 10, the same in any unit of time; their names are in
        ``ata_gym.envs.interface.worker_features``. "flat": the same in one row.
    action
        "allocation". "shares": a number from -1 to 1 for each worker, rounded by the method of largest remainders; in a
        race one more number for the total. "assign": one worker at a time, B times, then the round is played; with
        masks (``action_masks()``, ``info["action_mask"]``).
    reward_unit
        "time", or "first round": rewards are divided by what an even round would cost with the mean duration of the
        episode's first results, so that agents learn from workers of any speed.
    render_mode
        How ``render`` shows the last round: "ansi", a text; "rgb_array", pixels; "human", a window that is drawn after
        each reset and step. None: not at all.

    Notes
    -----
    Arguments and actions that are not legal raise ValueError, and leave the env as it was.

    ``reset(options={"pool": ..., "changes": ..., "price": ..., "horizon": ...})`` goes on with another pool of as many
    workers, other changes, another price or horizon; other options raise ValueError.

    Where workers may die (`ata_gym.changes.Spot` and `Crash`), a round still gives exactly B results: tasks that dead
    workers leave undone are handed on. The time of a task that was lost is its worker's ``elapsed``, and
    ``info["lost"]`` counts such tasks.

    Examples
    --------
    >>> import gymnasium as gym, numpy as np, ata_gym
    >>> env = gym.make("ata_gym/TaskAllocation-v0", pool={"family": "exponential", "scale": [1.0, 2.0]}, budget=3)
    >>> blank, _ = env.reset(seed=0)
    >>> feedback, reward, terminated, truncated, info = env.step(np.array([2, 1]))
    >>> feedback["worker"]
    array([0, 0, 1])
    >>> reward == -info["round_time"]
    True
    """

    _state_class = AllocationState
    _state: AllocationState
    action_space: Allocation

    @property
    def backend(self) -> Backend:
        """What runs the tasks of a round."""
        return self._state.backend


class TaskRaceEnv(TaskAllocationEnv):
    """More is started than needed: 0 <= a_i <= B, the sum is at least B, and the round ends at the B-th result.

    The rest is cancelled; its time so far counts as worker time and is seen as ``elapsed``. GTA is a = (B, ..., B). The
    arguments are those of ``TaskAllocationEnv``.
    """

    _state_class = RaceState


class TaskAllocationVectorEnv(VectorEnv):
    """E rows of ``TaskAllocationEnv`` in one call: row e, seeded s + e, gives the bits of a single env seeded s + e.

    Parameters
    ----------
    num_envs
        How many rows E; the other parameters are those of the single env, without ``backend`` and without windows.
    autoreset_mode
        ``NEXT_STEP`` (the step after an episode's end ignores the row's action and resets it), ``SAME_STEP`` or
        ``DISABLED`` (``reset(options={"reset_mask": ...})`` resets the rows of the mask).

    Examples
    --------
    >>> import gymnasium as gym, ata_gym
    >>> envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, scenario="icml2025-regret")
    >>> _ = envs.reset(seed=0)
    >>> envs.step(envs.action_space.sample())[1].shape
    (4,)
    """

    _state_class = AllocationState


class TaskRaceVectorEnv(TaskAllocationVectorEnv):
    """E rows of ``TaskRaceEnv``; the arguments are those of ``TaskAllocationVectorEnv``."""

    _state_class = RaceState
