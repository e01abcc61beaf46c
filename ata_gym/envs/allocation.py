"""The envs whose steps are rounds: allocation and race, each single and vector."""

from typing import Any

import gymnasium.vector
from numpy.typing import NDArray

from ata_gym.envs.interface.interface import Observation
from ata_gym.envs.single import SingleEnv
from ata_gym.envs.spaces import Allocation
from ata_gym.envs.states.backend import Backend
from ata_gym.envs.states.rounds import AllocationState, RaceState
from ata_gym.envs.vector import VectorEnv
from ata_gym.typing import Ints


class TaskAllocationEnv(SingleEnv):
    """A round needs B results; the action gives each of n workers a number of tasks.

    ## Description

    A task is one stochastic gradient, the unit of work. In each round every worker runs its tasks
    one after the other, all workers at the same time, each after its latency, if workers pay one
    (a fixed cost of a worker and round, such as the transfer of the model). The round ends when the
    B-th result is in.
    The time of a task is random. Each worker has a distribution, which is not known to the agent
    and may change from round to round. The j-th task of a worker in an episode has the same noise
    for every policy. Where workers follow the load (``ata_gym.changes.Throttling`` and others),
    their distributions depend on what the policy asked of them.

    ## Action Space

    ``Allocation(n, B)``: a vector of n integers a_i >= 0 that sum to B, dtype int64; a_i is the
    number of tasks of worker i. A step with anything else (shape, dtype, a negative number, the
    sum), or before a reset or after the end, raises ValueError. The error says what was wrong, and
    the env stays as it was.

    ## Observation Space

    A ``Dict`` of the feedback of the last round, one entry for each result, ordered by worker, then
    by start:

    | key | shape | dtype | meaning |
    |---|---|---|---|
    | ``worker`` | (B,) | int64 | the worker of the result, from 0 to n - 1; -1 after a reset |
    | ``duration`` | (B,) | float64 | how long its task took, in units of time; 0 after a reset |
    | ``elapsed`` | (n,) | float64 | the time of each worker's cancelled or lost task, else 0 |
    | ``latency`` | (n,) | float64 | if workers pay one: the time before each one's first task |
    | ``signal`` | (n, 2) | float64 | with ``signals=True``: next loads of cpu and memory, 0 to 1 |
    | ``present`` | (n,) | int8 | if fewer workers may be drawn: 1 at places with a worker, else 0 |
    | ``allocation`` | (n,) | int64 | with a ``delay``: the tasks of the round of this feedback |

    Here ``elapsed`` is 0 unless a worker died. ``latency`` is 0 for workers without tasks;
    ``duration`` and ``elapsed`` do not hold it.

    ## Rewards

    -(round time + price * worker time). The round time runs until the B-th result; the worker time
    is the time that all workers were busy, with their latencies.

    ## Starting State

    There is no feedback. Workers are as at the start of the scenario; where they are drawn anew in
    each episode, they are drawn now.

    ## Episode End

    Truncation after ``horizon`` rounds; without a horizon there is no end. An episode is never
    terminated.

    ## Information

    | key | meaning |
    |---|---|
    | ``round_time``, ``worker_time`` | the times of the round |
    | ``runtime``, ``total_worker_time`` | these times, added up over the episode |
    | ``lost`` | where workers may die: tasks that were lost in the round |
    | ``action_mask`` | with ``action="assign"``: which actions are of use |

    The keys are the same after each reset and step. Where no round was played, the numbers of the
    round are 0.

    ## Arguments

    ``gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-cifar100", price=0.1)``, and
    the same for ``gymnasium.make_vec`` with ``num_envs``. An argument that is not legal raises
    ValueError.

    - ``scenario``: a scenario or its name (see ``ata-gym scenarios``), without a pool by default
      ``five-workers``.
    - ``pool``: in place of a scenario, the workers, as a ``Pool`` or as plain data. A
      ``PoolDistribution`` draws workers anew in each episode.
    - ``budget``: the results B that a round needs; by default the scenario's. A pool needs it.
    - ``changes``: how the workers change from round to round, applied in this order (see
      ``ata_gym.changes``); by default the scenario's, or none.
    - ``horizon``: rounds in an episode; by default the scenario's, or no end.
    - ``price``: what one unit of worker time costs in units of runtime; by default the scenario's,
      or 0.
    - ``unit_costs``: n numbers, the cost of a unit of each worker's time in worker time (watts, or
      dollars an hour, over the cost of a usual worker); by default the scenario's, or 1 each.
      Policies know them; the features of ``observation`` do not show them.
    - ``latency``: what a worker pays in a round before its first task begins: numbers, or a pool of
      as many workers that has the distributions (``Pool.with_latency``); by default the pool's, or
      none.
    - ``signals``: whether the observation has the key ``signal``. The loads drive the speed under
      ``ata_gym.changes.Load``; without that change they are 0.
    - ``delay``: a number d of rounds, by default 0, by which feedback is late, as where a round is
      planned while earlier rounds still run. The observation after round t is the feedback of round
      t - d, its ``signal`` included, with the ``allocation`` that it is of. For the first d rounds
      it is the same as after the reset, and what is late at the end of an episode is lost.
      ``present``, rewards and info are not late, and neither is what ``render`` shows.
    - ``backend``: what runs the tasks of a round in place of the simulation, such as tasks on real
      devices; called as ``ata_gym.simulation.rounds.race_round`` is, with one row. An error that it
      raises leaves the env as it was. With a backend the env's ``spec`` is no JSON.
    - ``observation``: "feedback" is the dict above. "workers" gives float32 features, shape
      (n, 20), from -10 to 10, the same in any unit of time; their names are in
      ``ata_gym.envs.interface.worker_features``. Where workers pay a latency there are two more,
      its mean and the last one: (n, 22). "flat" gives these features in one row.
    - ``action``: "allocation" is the vector above. "shares" is a number from -1 to 1 for each
      worker, rounded by the method of largest remainders; in a race one more number gives the
      total. A number outside is played as the nearer bound, as some RL libraries do not clip; NaN
      and infinity raise ValueError. "assign" names one worker at a time, B times, and then the
      round is played; it has masks (``action_masks()``, ``info["action_mask"]``).
    - ``reward_unit``: "time", or "even round". With "even round" rewards are divided by the cost of
      an even round. In it the workers at the episode's start have all the harmonic mean of their
      mean task times, share the budget evenly, and pay the mean of their latencies. So agents learn
      from workers of any speed. The agent does not see this unit, and no action changes it.
    - ``render_mode``: how ``render`` shows the last round. "ansi" gives a text, "rgb_array" pixels,
      and "human" a window that is drawn after each reset and step. With None nothing is shown.

    ## Reset options

    ``reset(options={"pool": ..., "changes": ..., "price": ..., "horizon": ...})`` goes on with
    another pool of as many workers, other changes, another price or horizon. Other options raise
    ValueError.

    ## Notes

    Where workers may die (`ata_gym.changes.Spot` and `Crash`), a round still gives exactly B
    results: tasks that dead workers leave undone are handed on.

    Under `ata_gym.changes.ShareTime` task times depend on the allocation of the round itself.

    Workers have no features, such as a type, a memory or a distance (contexts), as no rule of the
    policies uses any: they learn from the times of each worker and of all workers together.

    ## Example

    >>> import gymnasium as gym, numpy as np, ata_gym
    >>> pool = {"family": "exponential", "scale": [1.0, 2.0]}
    >>> env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, budget=3)
    >>> blank, _ = env.reset(seed=0)
    >>> feedback, reward, terminated, truncated, info = env.step(np.array([2, 1]))
    >>> feedback["worker"], reward == -info["round_time"]
    (array([0, 0, 1]), True)

    ## Version History

    v0: the first version.
    """

    _state_class = AllocationState
    _state: AllocationState
    action_space: Allocation

    @property
    def backend(self) -> Backend:
        """The function that runs the tasks of a round."""
        return self._state.backend

    @property
    def result_workers(self) -> Ints:
        """The worker of each result of the last round, shape (B,).

        Before the first round the shape is (0,).
        """
        return self._state.result_workers.ravel()


class TaskRaceEnv(TaskAllocationEnv):
    """More tasks may be started than needed, and the round ends at the B-th result.

    ## Description

    This env is as ``TaskAllocationEnv``, but the action may ask for more tasks than the round needs
    results. Of results at the same moment the lowest worker's counts first. The rest is cancelled;
    its time so far counts as worker time and is seen as ``elapsed``. A worker that is cancelled
    before its first task begins has paid a part of its latency, which is seen as ``latency``. A
    worker that has finished all its a_i tasks is idle. GTA is a = (B, ..., B). Where the sum is B,
    ``TaskAllocationEnv`` gives the same round and the same observation, bit for bit.

    ## Action Space

    ``RaceAllocation(n, B)``: a vector of n integers, 0 <= a_i <= B, that sum to B or more, dtype
    int64. Anything else raises ValueError, and leaves the env as it was.

    ## Observation Space

    The space is the same as in ``TaskAllocationEnv``. It has the B results that counted, and in
    ``elapsed`` how long each worker's cancelled task had run. Without ``elapsed`` a learner that
    sees only finished tasks would think slow workers fast.

    ## Rewards

    -(round time + price * worker time); the time of cancelled tasks counts as worker time.

    ## Starting State

    There is no feedback.

    ## Episode End

    Truncation after ``horizon`` rounds.

    ## Information

    The keys are the same as in ``TaskAllocationEnv``.

    ## Arguments

    The arguments are the same as in ``TaskAllocationEnv``, such as
    ``gymnasium.make("ata_gym/TaskRace-v0", scenario="five-workers")``. The forms of ``action`` are
    "allocation" and "shares". The change ``ShareTime`` is refused, since the tasks that a worker
    has in a round are not known before the round.

    ## Reset options

    ``pool``, ``changes``, ``price`` and ``horizon``.

    ## Example

    >>> import gymnasium as gym, numpy as np, ata_gym
    >>> pool = {"family": "deterministic", "scale": [2.0, 3.0]}
    >>> env = gym.make("ata_gym/TaskRace-v0", pool=pool, budget=3)
    >>> _ = env.reset(seed=0)
    >>> feedback, _, _, _, info = env.step(np.array([3, 3]))
    >>> feedback["worker"], feedback["elapsed"], info["round_time"], info["worker_time"]
    (array([0, 0, 1]), array([0., 1.]), 4.0, 8.0)

    ## Version History

    v0: the first version.
    """

    _state_class = RaceState


class TaskAllocationVectorEnv(
    VectorEnv,
    gymnasium.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]],
):
    """E rows of ``TaskAllocationEnv`` in one call.

    Row e, seeded s + e, gives the same bits as a single env seeded s + e. The arguments of the
    single env are arguments here, too, without ``backend`` and without windows.

    Args:
        num_envs: The number of rows, E.
        autoreset_mode: ``NEXT_STEP`` (the step after an episode's end ignores the row's action and
            resets it), ``SAME_STEP`` or ``DISABLED`` (``reset(options={"reset_mask": ...})`` resets
            the rows of the mask).

    Example:
        >>> import gymnasium as gym, ata_gym
        >>> envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, scenario="icml2025-regret")
        >>> _ = envs.reset(seed=0)
        >>> envs.step(envs.action_space.sample())[1].shape
        (4,)
    """

    _state_class = AllocationState


class TaskRaceVectorEnv(
    VectorEnv,
    gymnasium.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]],
):
    """E rows of ``TaskRaceEnv``, with the arguments of ``TaskAllocationVectorEnv``."""

    _state_class = RaceState
