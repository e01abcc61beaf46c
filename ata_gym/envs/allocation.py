"""The envs whose steps are rounds: allocation and race, each as a single env and as a native vector env."""

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
    """A round needs B results; the action says how many tasks each of n workers runs, and sums to B.

    Description
    -----------
    A task is one stochastic gradient, the unit of work. In each round every worker runs its tasks one after the other,
    all workers at the same time, and the round ends when the B-th result is in. How long a task takes is random; its
    distribution is its worker's, is not known to the agent, and may change from round to round. The j-th task of a
    worker in an episode has the same noise for every policy.

    Action Space
    ------------
    ``Allocation(n, B)``: a vector of n integers a_i >= 0 that sum to B, dtype int64; a_i is the tasks of worker i. A
    step with anything else (shape, dtype, a negative number, the sum), or before a reset or after the end, raises
    ValueError that says what was wrong, and leaves the env as it was.

    Observation Space
    -----------------
    A ``Dict`` of the feedback of the last round, one entry for each result, ordered by worker, then by start:

    | key | shape | dtype | meaning |
    |---|---|---|---|
    | ``worker`` | (B,) | int64 | who computed the result, from 0 to n - 1; -1 after a reset |
    | ``duration`` | (B,) | float64 | how long its task took, in units of time; 0 after a reset |
    | ``elapsed`` | (n,) | float64 | the time of each worker's cancelled or lost task, else 0 |
    | ``signal`` | (n, 2) | float64 | with ``signals=True``: loads of cpu and memory in the coming round, 0 to 1 |
    | ``present`` | (n,) | int8 | where fewer workers may be drawn: which places hold a worker, 0 or 1 |

    Here ``elapsed`` is 0 unless a worker died.

    Rewards
    -------
    -(round time + price * worker time). The round time runs until the B-th result; the worker time is the time that all
    workers were busy.

    Starting State
    --------------
    No feedback. Workers are as at the start of the scenario; where they are drawn anew in each episode, they are drawn
    now.

    Episode End
    -----------
    Truncation after ``horizon`` rounds; without a horizon there is no end. An episode is never terminated.

    Information
    -----------
    | key | meaning |
    |---|---|
    | ``round_time``, ``worker_time`` | of the round |
    | ``runtime``, ``total_worker_time`` | the same, added up over the episode |
    | ``lost`` | where workers may die: tasks that were lost in the round |
    | ``action_mask`` | with ``action="assign"``: which actions are of use |

    The keys are the same after each reset and step. Where no round was played, the numbers of the round are 0.

    Arguments
    ---------
    ``gymnasium.make("ata_gym/TaskAllocation-v0", scenario="icml2025-cifar100", price=0.1)``, and the same for
    ``gymnasium.make_vec`` with ``num_envs``. What is not legal raises ValueError.

    - ``scenario``: a scenario or its name (see ``ata-gym scenarios``), without a pool by default ``five-workers``; or
      else
    - ``pool``, ``budget``: the workers, as a ``Pool`` or as plain data, and the results B that a round needs. A
      ``PoolDistribution`` draws workers anew in each episode.
    - ``changes``: how the workers change from round to round, applied in this order (see ``ata_gym.changes``); by
      default the scenario's, or none.
    - ``horizon``: rounds in an episode; by default the scenario's, or no end.
    - ``price``: what one unit of worker time costs in units of runtime; by default the scenario's, or 0.
    - ``unit_costs``: n numbers, what a unit of each worker's time counts for in worker time (watts, or dollars an hour,
      over those of a usual worker); by default the scenario's, or 1 each. Policies know them; the
      features of ``observation`` do not show them.
    - ``signals``: whether the observation has the key ``signal``. The loads drive the speed under
      ``ata_gym.changes.Load``; without that change they are 0.
    - ``backend``: what runs the tasks of a round in place of the simulation, such as tasks on real devices; called as
      ``ata_gym.simulation.rounds.race_round`` is, with one row. An error that it raises leaves the env as it was. With
      a backend the env's ``spec`` is no JSON.
    - ``observation``: "feedback", the dict above. "workers": float32 features, shape (n, 20), from -10 to 10, the same
      in any unit of time; their names are in ``ata_gym.envs.interface.worker_features``. "flat": the same in one row.
    - ``action``: "allocation". "shares": a number from -1 to 1 for each worker, rounded by the method of largest
      remainders; in a race one more number for the total. A number outside is played as the nearer of the two, as some
      RL libraries do not clip; NaN and infinity raise ValueError. "assign": one worker at a time, B times, then the
      round is played; with masks (``action_masks()``, ``info["action_mask"]``).
    - ``reward_unit``: "time", or "even round": rewards are divided by what a round would cost if the workers at the
      episode's start had all the harmonic mean of their mean task times and shared the budget evenly, so that agents
      learn from workers of any speed. The agent does not see this unit, and no action changes it.
    - ``render_mode``: how ``render`` shows the last round: "ansi", a text; "rgb_array", pixels; "human", a window that
      is drawn after each reset and step. None: not at all.

    Reset options
    -------------
    ``reset(options={"pool": ..., "changes": ..., "price": ..., "horizon": ...})`` goes on with another pool of as many
    workers, other changes, another price or horizon; other options raise ValueError.

    Notes
    -----
    Where workers may die (`ata_gym.changes.Spot` and `Crash`), a round still gives exactly B results: tasks that dead
    workers leave undone are handed on.

    Examples
    --------
    >>> import gymnasium as gym, numpy as np, ata_gym
    >>> env = gym.make("ata_gym/TaskAllocation-v0", pool={"family": "exponential", "scale": [1.0, 2.0]}, budget=3)
    >>> blank, _ = env.reset(seed=0)
    >>> feedback, reward, terminated, truncated, info = env.step(np.array([2, 1]))
    >>> feedback["worker"], reward == -info["round_time"]
    (array([0, 0, 1]), True)

    Version History
    ---------------
    v0: the first version.
    """

    _state_class = AllocationState
    _state: AllocationState
    action_space: Allocation

    @property
    def backend(self) -> Backend:
        """What runs the tasks of a round."""
        return self._state.backend

    @property
    def computed(self) -> Ints:
        """Who computed each result of the last round, shape (B,); before the first round there is none."""
        return self._state.computed.ravel()


class TaskRaceEnv(TaskAllocationEnv):
    """More is started than needed: 0 <= a_i <= B, the sum is at least B, and the round ends at the B-th result.

    Description
    -----------
    As in ``TaskAllocationEnv``, but the action may ask for more tasks than the round needs results. Of results at the
    same moment the lowest worker's counts first. The rest is cancelled; its time so far counts as worker time and is
    seen as ``elapsed``. A worker that has finished all its a_i is idle. GTA is a = (B, ..., B). Where the sum is B, the
    round and the observation are those of ``TaskAllocationEnv``, bit for bit.

    Action Space
    ------------
    ``RaceAllocation(n, B)``: a vector of n integers, 0 <= a_i <= B, that sum to B or more, dtype int64. Anything else
    raises ValueError, and leaves the env as it was.

    Observation Space
    -----------------
    That of ``TaskAllocationEnv``: the B results that counted, and in ``elapsed`` how long the task of each worker had
    run that was cancelled. Without it a learner that sees only finished tasks would think slow workers fast.

    Rewards
    -------
    -(round time + price * worker time); the time of cancelled tasks counts as worker time.

    Starting State
    --------------
    No feedback.

    Episode End
    -----------
    Truncation after ``horizon`` rounds.

    Information
    -----------
    That of ``TaskAllocationEnv``.

    Arguments
    ---------
    Those of ``TaskAllocationEnv``, such as ``gymnasium.make("ata_gym/TaskRace-v0", scenario="five-workers")``; the
    forms of ``action`` are "allocation" and "shares".

    Reset options
    -------------
    ``pool``, ``changes``, ``price`` and ``horizon``.

    Examples
    --------
    >>> import gymnasium as gym, numpy as np, ata_gym
    >>> env = gym.make("ata_gym/TaskRace-v0", pool={"family": "deterministic", "scale": [2.0, 3.0]}, budget=3)
    >>> _ = env.reset(seed=0)
    >>> feedback, _, _, _, info = env.step(np.array([3, 3]))
    >>> feedback["worker"], feedback["elapsed"], info["round_time"], info["worker_time"]
    (array([0, 0, 1]), array([0., 1.]), 4.0, 8.0)

    Version History
    ---------------
    v0: the first version.
    """

    _state_class = RaceState


class TaskAllocationVectorEnv(VectorEnv, gymnasium.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """E rows of ``TaskAllocationEnv`` in one call: row e, seeded s + e, gives the bits of a single env seeded s + e.

    - ``num_envs``: how many rows E; the other arguments are those of the single env, without ``backend`` and without
      windows.
    - ``autoreset_mode``: ``NEXT_STEP`` (the step after an episode's end ignores the row's action and resets it),
      ``SAME_STEP`` or ``DISABLED`` (``reset(options={"reset_mask": ...})`` resets the rows of the mask).

    >>> import gymnasium as gym, ata_gym
    >>> envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, scenario="icml2025-regret")
    >>> _ = envs.reset(seed=0)
    >>> envs.step(envs.action_space.sample())[1].shape
    (4,)
    """

    _state_class = AllocationState


class TaskRaceVectorEnv(VectorEnv, gymnasium.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """E rows of ``TaskRaceEnv``; the arguments are those of ``TaskAllocationVectorEnv``."""

    _state_class = RaceState
