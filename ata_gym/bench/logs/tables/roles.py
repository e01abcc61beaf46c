"""Usual names of the columns of workers and steps."""

from collections.abc import Sequence

from ata_gym.bench.logs.tables.words import is_rate, is_strictly_evaluation, name_and_unit, plain

RANKS = (
    *("rank", "global_rank", "world_rank", "rank_id", "worker", "worker_id", "worker_rank"),
    *("worker_name", "process_rank", "process_index", "process", "process_id", "proc", "proc_id"),
    *("gpu_rank", "replica", "replica_id", "trainer", "trainer_id", "learner", "learner_id"),
    *("client", "client_id", "dp_rank", "data_parallel_rank", "pid"),
    *("slurm_procid", "slurm_proc_id", "ompi_comm_world_rank", "pmi_rank", "horovod_rank"),
)
"""Usual names of columns in which a worker has a name of its own in the whole job."""
HOSTS = (
    *("host", "hostname", "host_name", "host_id", "node", "node_id", "node_name", "node_rank"),
    *("machine", "machine_id", "server", "instance", "pod"),
    *("pod_name", "ip", "host_ip", "slurm_nodeid", "slurm_node_id"),
)
"""Usual names of columns of machines, each of which may have several workers."""
SLOTS = (
    *("local_rank", "gpu", "gpu_id", "gpu_index", "gpu_idx", "local_gpu", "device", "device_id"),
    *("device_index", "cuda_device", "slot", "local_id", "card", "accelerator", "slurm_localid"),
)
"""Usual names of columns of the place of a worker in its machine."""
EPOCHS = (
    *("epoch", "ep", "epochs", "epoch_id", "epoch_idx", "epoch_index", "epoch_num"),
    *("epoch_number", "current_epoch", "trainer_epoch", "cycle", "cycle_id", "phase_number"),
)
"""Usual names of columns of passes, in each of which steps may begin again."""
STEPS = (
    ("global_step", "trainer_global_step", "train_global_step", "global_iteration", "global_iter"),
    (
        *("step", "round", "iteration", "iter", "itr", "steps", "step_id", "step_idx", "it"),
        *("step_index", "step_number", "step_num", "iteration_id", "iteration_number", "iter_id"),
        *("iter_num", "iter_idx", "round_id", "train_step", "training_step", "current_step"),
        *("update", "num_updates", "n_iter", "num_steps", "time_step", "timestep"),
    ),
    (
        *("batch", "batch_idx", "batch_id", "batch_index", "batch_num", "minibatch", "mini_batch"),
        *("step_in_epoch", "epoch_step", "local_step"),
    ),
    ("time",),
)
"""Usual names of columns of steps; a table with one of the first kind needs none of the next."""

SIZES = (
    *("tasks", "num_tasks", "n_tasks", "samples", "num_samples", "n_samples", "examples"),
    *("num_examples", "n_examples", "batch_size", "local_batch_size", "per_device_batch_size"),
    *("rank_batch_size", "micro_batches", "num_micro_batches", "num_microbatches", "images"),
    *("num_images", "batchsize", "bs", "local_bs"),
)
"""Usual names of columns of how much work the share of a worker in a step is."""


def place_in(name: str, usual_names: Sequence[str]) -> int:
    """Return the place of a name among usual names, or their number if it is none of them.

    A usual name may follow the path of what it belongs to, such as "meta.rank".

    Args:
        name: The name of a column.
        usual_names: Usual names, in small letters.
    """
    # "sec/iter" is no path
    name_in_path, unit = name_and_unit(name)
    for one in (plain(name), name_in_path):
        if unit is None and one in usual_names:
            return usual_names.index(one)
    return len(usual_names)


def is_named(name: str, usual_names: Sequence[str]) -> bool:
    """Whether a name is a usual one, such as "Global Rank" for "global_rank".

    The steps of an evaluation are none of the job, and "TFLOP/s/GPU" is no device.

    Example:
        >>> [is_named(name, RANKS) for name in ("meta.rank", "Global Rank", "rank_of")]
        [True, True, False]
    """
    usual = place_in(name, usual_names) < len(usual_names)
    return usual and not is_strictly_evaluation(name) and not is_rate(name)


def is_worker(name: str) -> bool:
    """Whether a column of this name usually holds workers."""
    return is_named(name, (*RANKS, *HOSTS, *SLOTS))


def is_place(name: str) -> bool:
    """Whether a column of workers names a machine or a device, of which several may be alike."""
    return is_named(name, (*HOSTS, *SLOTS))


def is_round(name: str) -> bool:
    """Whether a column of this name usually holds the numbers of steps, or of what they are in."""
    return is_named(name, (*STEPS[0], *STEPS[1], *STEPS[2], *EPOCHS))
