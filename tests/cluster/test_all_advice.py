"""Each text of ``ata_gym.cluster`` that advises something names here the test that follows it.

Texts are found by a verb in the imperative, so that a new one has to be entered. Whether a test
does what a text says is for its reader to see.
"""

import ast
import re
from pathlib import Path

import ata_gym.cluster

SOURCES = Path(ata_gym.cluster.__file__).parent
TESTS = Path(__file__).parent

VERBS = (
    "add|build|call|change|convert|do|end|give|install|leave|let|load|look|loop|make|override|pip|"
    "play|put|raise|register|reset|run|save|seed|set|share|start|submit|take|tell|train|use|write"
)
PATTERN = rf"(^|[:;.,] |\bor |\bso )({VERBS})\b|[:;.,] (begin|step)\b"
ADVISES = re.compile(PATTERN, re.IGNORECASE)

FOLLOWED = {
    "test_the_commands_of_the_doctor_bring_what_was_missing_and_pip_takes_them": ["pip install"],
    "test_two_processes_add_numbers_with_gloo_and_each_gpu_computes_right": ["GLOO_SOCKET_IFNAME"],
    "test_kernels_say_where_they_are_kept_or_what_to_set": ["NUMBA_CACHE_DIR"],
    "test_what_does_not_fit_is_refused": ["that the cluster does not run: reset it"],
    "test_values_may_be_not_finite_and_a_worker_that_dies_in_a_row_is_left_out": [
        "this runner is closed: make another one",
        "is set here; leave it out",
    ],
    "test_a_step_that_a_shadow_cannot_take_is_refused_with_the_cure": [
        "make a new Shadow where workers come or go"
    ],
    "test_records_say_how_likely_the_tasks_were": ["or leave propensities out"],
    "test_a_round_in_which_no_worker_has_a_task_says_so_and_goes_on_with_one": [
        "give a worker one first"
    ],
    "test_caches_of_a_rank_are_its_own_and_what_has_no_mean_is_refused_by_name": [
        "let it be a dense tensor",
        "let it have one shape",
    ],
    "test_another_model_is_refused_if_it_is_trained_and_computes_without_communication_if_not": [
        "as one torch.nn.ModuleList",
        "call eval() of a model that is not trained",
    ],
    "test_who_follows_the_errors_goes_on": [
        'as in TorchAllocator(mesh=mesh["dp"])',
        "Give share.backward the weight of the whole batch",
        "give TorchAllocator a group, a mesh or a manager",
        "group and mesh exclude each other",
        "for a training of these ranks alone",
        'such as mesh["replicate"]',
        "make the mesh of all ranks",
        "make the mesh with init_device_mesh",
    ],
    "test_every_rank_of_every_replica_says_the_same_and_can_begin_the_round_again": [
        "Seed torch alike on the ranks of a replica"
    ],
    "test_gradients_that_a_schedule_sets_itself_count_and_a_schedule_needs_a_loss": [
        "make it with loss_fn"
    ],
    "test_weights_in_replicas_have_the_mean_of_one_process_over_the_rounds_of_a_step": [
        "make it with scale_grads=False"
    ],
    "test_what_a_round_cannot_respect_is_refused_by_name": [
        "step after the block of the round",
        "give Manager(replica_id=...)",
        "so give the plain optimizer",
        "give Manager(load_state_dict=..., state_dict=...)",
        "Manager(use_async_quorum=False)",
        "world_size_mode=WorldSizeMode.DYNAMIC",
        "start each replica with one process",
        "make a new Manager",
        "which steps if share.committed",
    ],
    "test_what_a_round_would_leave_out_is_refused_by_name_and_the_cure_trains": [
        "use BatchNorm",
        "let the model compute one batch",
        "leave sparse out",
        "leave static_graph out",
        "register none",
        "use fully_shard, or the plain module",
        "leave reduce_dtype out",
        "set none",
    ],
    "test_deepspeed_is_refused_by_its_engine_and_by_what_that_leaves_in_the_module": [
        "as it was before deepspeed.initialize"
    ],
    "test_who_follows_the_error_of_equal_batches_goes_on_with_unequal_ones": [
        "Share the samples out"
    ],
    "test_a_sampler_that_cannot_be_followed_is_refused_with_the_cure": [
        "let it follow from the sampler's set_epoch",
        "give it a __len__",
        "give the sampler inside of it",
    ],
    "test_a_sampler_gives_the_order_that_tasks_are_cut_from": ["give sampler or shuffle, not both"],
    "test_what_ray_train_prepares_gives_tasks_with_the_option_that_the_error_names": [
        "add_dist_sampler=False"
    ],
    "test_a_loader_of_accelerate_that_waits_for_other_ranks_is_refused": [
        "give the loader that accelerator.prepare was given"
    ],
    "test_another_loader_goes_on_where_it_stopped_and_starts_over": [
        "TaskStream(allocator, loader) around a loader without TaskSampler"
    ],
    "test_who_follows_an_error_goes_on": [
        "a DataLoader with batch_sampler=TaskSampler(...)",
        "leave TaskStream out",
        "give TorchAllocator(name=...)",
        "Load the same state on every rank",
        "Seed torch alike on every rank",
        "Give TaskSampler the same dataset",
        "let it through with TorchAllocator(allow_nonfinite=True)",
        "change it after share.reduce()",
        "call share.backward(loss) in place of loss.backward()",
        "end the last one first",
        "call {method} inside the loop over share.take(loader)",
        "a weight in every pass of a round, or in none",
        "loop over share.take(loader) to its end",
        "save the state between rounds",
        "load the state between rounds",
    ],
    "test_without_a_process_group_one_is_started_as_the_error_says": [
        "start the script with torchrun, and call"
    ],
    "test_a_rank_that_changes_alone_is_named_by_all_and_all_go_on_once_they_are_alike": [
        "Build, convert and freeze the model alike"
    ],
    "test_ranks_with_gradients_of_different_rounds_are_refused_and_the_advice_works": [
        "Set all gradients to None on every rank"
    ],
    "test_sparse_gradients_of_other_parameters_are_refused_by_name": [
        "use one of them, or leave sparse out"
    ],
    "test_every_rank_names_the_worker_and_nothing_has_changed": [
        "begin the round again, in which nothing is sent before share.reduce()"
    ],
    "test_weights_without_a_mean_are_refused_on_all_ranks_and_the_advice_works": [
        "Give weight=... on every rank, or on none",
        "Give weight=... in every round of an optimizer step",
        "make tasks or the budget larger",
    ],
    "test_the_others_hear_of_an_error_and_all_begin_the_round_again": [
        "so that the gradient has a part too many: begin the round again",
        "call share.reduce() inside the round",
        "end it before the next one begins",
    ],
    "test_outside_a_round_there_is_no_share_and_inside_no_state": ["no round is open"],
    "test_a_recorder_refuses_them_too_and_writes_nothing": [
        "give RoundRecord(propensities=allocator.propensities())",
        "give one of each worker that is there",
    ],
    "test_another_file_is_left_alone": ["give another file"],
    "test_each_option_that_is_refused_is_named_and_the_cure_trains": [
        "TaskStrategy does not take",
        "torch.utils.data.Subset(dataset, range(n))",
        "since running statistics of BatchNorm become the means",
        "take 'group_by_length'",
        "leave it out, and choose the number of tasks",
        "each rank loads the samples of its own tasks: leave it out",
        "told apart by their order: leave it out",
        "leave it out, and lower per_device_train_batch_size",
        "leave it out, and count them in data_collator",
        "would send gradients by itself: leave it out",
        "25 MB at a time: leave it out",
        "such as 'adamw_torch'",
    ],
    "test_what_waits_for_other_ranks_is_refused_in_a_task": ["call it in on_train_batch_end"],
    "test_what_a_module_may_not_do_is_refused_and_the_cure_trains": [
        "write a loop of your own with allocator.round(model)",
        "write training_step(batch, batch_idx)",
        "change the loss in training_step",
    ],
    "test_hooks_of_the_transfer_get_batches": ["do the same in on_after_batch_transfer"],
    "test_several_loaders_are_refused_and_one_of_stacked_datasets_trains": ["StackDataset"],
    "test_each_form_of_a_replica_trains_as_one_process_with_unequal_shares": [
        "train in a loop of your own over allocator.round(model)",
        "train with TorchAllocator(mesh=...) in a loop of your own",
    ],
    "test_a_stream_has_one_task_in_a_pass": ["give a larger per_device_train_batch_size"],
    "test_a_loader_of_ones_own_is_refused_and_a_sampler_of_ones_own_trains": [
        "override _get_train_sampler"
    ],
    "test_engines_of_others_are_refused": ["fsdp_config={'version': 2}", "or take fsdp"],
}
"""Parts of texts, by the test that does what they advise."""

NOT_FOLLOWED = [
    "built for the driver of this machine",
    "NCCL_DEBUG=INFO",
    "`ray start --head`",
    "the port of Ray Client",
    "the cluster's versions of Ray and Python",
    "install the same versions there",
    "ray job submit",
    "`ray status`",
]
"""Parts of texts that advise something for drivers, or for clusters of several machines."""


def texts():
    """The texts of the code, with the places of values as their source; no docstrings."""
    for path in sorted(SOURCES.rglob("*.py")):
        waiting = [ast.parse(path.read_text("utf-8"))]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.JoinedStr):
                # Without the f and the quotation marks.
                yield ast.unparse(node)[2:-1]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            else:
                is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                waiting += [] if is_docstring else ast.iter_child_nodes(node)


def test_each_text_that_advises_something_is_followed_in_a_test():
    advice = [text for text in texts() if " " in text and ADVISES.search(text)]
    assert len(advice) > 100
    parts = [part for entries in FOLLOWED.values() for part in entries] + NOT_FOLLOWED
    assert [text for text in advice if not any(part in text for part in parts)] == []
    # Nothing is entered that no text says.
    assert [part for part in parts if not any(part in text for text in advice)] == []


def test_the_tests_that_follow_advice_are_there():
    there = {
        name
        for path in (*TESTS.rglob("test_*.py"), *(TESTS.parent / "bench").rglob("test_*.py"))
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert FOLLOWED.keys() <= there
