"""The own time of ranks, in traces whose truth is known by construction."""

import json

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from tests.bench.logs.trace_files import (
    COLLECTIVES,
    GLOO,
    STREAM,
    event,
    gloo,
    kernel,
    nccl,
    operation,
    step,
    write,
    write_ranks,
)


def own(folder):
    """(ranks,) milliseconds, which are the same in each step here."""
    log = read_log(folder)
    np.testing.assert_allclose(log.seconds, log.seconds[:1].repeat(len(log.seconds), 0), atol=1e-7)
    return (1e3 * log.seconds[0]).tolist()


def test_a_rank_that_computes_while_a_collective_runs_was_not_blocked(tmp_path):
    # two stragglers: rank 0 comes late to the first bucket; rank 2 computes on beside it, and comes
    # late to the second; rank 1 waits for both
    def first(k, t):
        return [
            step(k, t, 100),
            operation("aten::mm", t, 50),
            *gloo(t + 50, 2),
            operation("aten::mm", t + 50.5, 0.5),
            *gloo(t + 51, 44),
            operation("aten::add_", t + 95.05, 4.9),
        ]

    def waiting(k, t):
        return [
            step(k, t, 100),
            operation("aten::mm", t, 10),
            *gloo(t + 10, 42),
            operation("aten::mm", t + 10.5, 9.5),
            *gloo(t + 20, 75),
            operation("aten::add_", t + 95.05, 4.9),
        ]

    def second(k, t):
        return [
            step(k, t, 100),
            operation("aten::mm", t, 20),
            *gloo(t + 20, 32),
            operation("MyBackward", t + 20.5, 69.5),
            *gloo(t + 90, 5),
            operation("aten::add_", t + 95.05, 4.9),
        ]

    log = read_log(write_ranks(tmp_path, [first, waiting, second]))
    truth = [100 - 44, 100 - 75, 100 - 5]
    np.testing.assert_allclose(1e3 * log.seconds, [truth] * 3, atol=0.1)
    np.testing.assert_allclose(1e3 * log.rest, [5] * 3, atol=0.1)
    np.testing.assert_allclose(1e3 * log.step_times, [100] * 3)


@pytest.mark.parametrize("child_at", [None, 88.0])
def test_work_that_is_silent_inside_of_an_operation_goes_on_past_the_end_of_a_collective(
    tmp_path, child_at
):
    # an operation that sleeps, with or without another operation at its end
    child = [] if child_at is None else [operation("aten::clone", child_at, 1)]

    def slow(k, t):
        inner = [{**one, "ts": one["ts"] + 1e3 * t} for one in child]
        return [
            step(k, t, 100),
            *gloo(t + 10, 30),
            operation("SlowBackward", t + 11, 79),
            *inner,
            *gloo(t + 90, 5),
            operation("aten::add_", t + 95.02, 4.9),
        ]

    def fast(k, t):
        return [
            step(k, t, 100),
            operation("aten::mm", t, 39),
            *gloo(t + 39, 1),
            *gloo(t + 40, 55),
            operation("aten::add_", t + 95.02, 4.9),
        ]

    assert own(write_ranks(tmp_path, [slow, fast])) == pytest.approx([95, 44], abs=0.1)


def test_a_wait_inside_of_an_operation_ends_with_the_collective(tmp_path):
    # fully sharded: the backward pass of a layer waits for its reduction, inside its own operation
    def rank(work):
        def events(k, t):
            end = 60
            return [
                step(k, t, 80),
                operation("aten::mm", t, work),
                operation("LayerBackward", t + work, end - work + 5),
                *gloo(t + work + 1, end - work - 1, "reduce_scatter"),
                # the thread goes on shortly before the end is recorded
                operation("aten::chunk", t + end - 0.05, 1),
            ]

        return events

    folder = write_ranks(tmp_path, [rank(20), rank(50), rank(35)])
    assert own(folder) == pytest.approx([20 + 21, 50 + 21, 35 + 21], abs=0.1)


def test_a_thread_that_waits_outside_of_operations_waits_until_the_end(tmp_path):
    # afterwards Python works without an operation
    def rank(work):
        def events(k, t):
            return [step(k, t, 100), operation("aten::mm", t, work), *gloo(t + work, 60 - work)]

        return events

    folder = write_ranks(tmp_path, [rank(10), rank(55)])
    assert own(folder) == pytest.approx([50, 95], abs=0.1)


def test_annotations_and_frames_of_python_are_no_work_and_no_communication(tmp_path):
    def rank(work):
        def events(k, t):
            return [
                step(k, t, 100),
                event("train_nccl.py(3): all_reduce_step", "python_function", t, 100),
                event("gloo_forward", "user_annotation", t, 100),
                operation("aten::mm", t, work),
                *gloo(t + work, 90 - work),
                event("train_nccl.py(9): wait", "python_function", t + work + 0.02, 89.985 - work),
                operation("aten::add_", t + 90.01, 5),
            ]

        return events

    folder = write_ranks(tmp_path, [rank(30), rank(80)])
    assert own(folder) == pytest.approx([40, 90], abs=0.1)


def test_what_each_rank_of_several_computes_is_its_own_time_on_devices(tmp_path):
    works = [10.0, 35.0, 22.0, 50.0]

    def rank(work):
        def events(k, t):
            return [
                step(k, t, 80),
                kernel("gemm", t, work),
                # the reduction of the first bucket runs beside the backward pass
                nccl(t + 5, 51 - 5),
                nccl(t + 51, 9),
                kernel("add", t + 60, 20),
            ]

        return events

    folder = write_ranks(tmp_path, [rank(work) for work in works], backend="nccl")
    assert own(folder) == pytest.approx([work + 20 for work in works], abs=0.1)


def test_on_devices_the_launch_says_whether_the_device_or_its_host_was_late(tmp_path):
    # both devices start the last kernels 0.3 ms after the collective; one of them had it queued,
    # the host of the other one launched it then
    def ahead(k, t):
        return [
            step(k, t, 100),
            kernel("gemm", t + 1, 9, t + 0.5),
            nccl(t + 10, 50, t + 0.6),
            kernel("add", t + 60.3, 39.7, t + 0.7),
            event("cudaDeviceSynchronize", "cuda_runtime", t + 1, 98.9),
        ]

    def late(k, t):
        return [
            step(k, t, 100),
            kernel("gemm", t + 1, 9, t + 0.5),
            nccl(t + 10, 50, t + 0.6),
            operation("slow", t + 1, 59),
            kernel("add", t + 60.3, 39.7, t + 60.2),
            event("cudaDeviceSynchronize", "cuda_runtime", t + 60.4, 39.5),
        ]

    folder = write_ranks(tmp_path, [ahead, late], backend="nccl")
    assert own(folder) == pytest.approx([50, 100], abs=0.1)


def test_a_host_that_waits_for_its_device_is_not_late(tmp_path):
    # the loss is read in each step: the next kernels are launched after the collective
    def rank(work, read):
        def events(k, t):
            return [
                step(k, t, 100),
                kernel("gemm", t + 0.02, work - 0.02, t + 0.01),
                nccl(t + work, 60 - work, t + 0.015),
                {**read, "ts": 1e3 * (t + 1), "dur": 59e3},
                kernel("add", t + 65, 35, t + 64.9),
                event("cudaDeviceSynchronize", "cuda_runtime", t + 65, 34.9),
            ]

        return events

    read = event("cudaStreamSynchronize", "cuda_runtime", 0, 0)
    item = operation("aten::item", 0, 0)
    folder = write_ranks(tmp_path, [rank(20, read), rank(50, item)], backend="nccl")
    assert own(folder) == pytest.approx([60, 90], abs=0.1)


def test_without_launches_a_host_is_late_if_an_operation_goes_on(tmp_path):
    def rank(work, late):
        def events(k, t):
            return [
                step(k, t, 100),
                kernel("gemm", t, work),
                nccl(t + work, 60 - work),
                *([operation("slow", t + work, 85 - work)] if late else []),
                nccl(t + 85, 5),
            ]

        return events

    folder = write_ranks(tmp_path, [rank(20, True), rank(50, False)], backend="nccl")
    assert own(folder) == pytest.approx([95, 85], abs=0.1)


def test_a_copy_of_the_next_batch_does_not_end_a_wait(tmp_path):
    def rank(work):
        def events(k, t):
            return [
                step(k, t, 100),
                kernel("gemm", t, work),
                nccl(t + work, 90 - work),
                event("Memcpy HtoD", "gpu_memcpy", t + 60, 2, (0, 30)),
                kernel("add", t + 90, 10),
            ]

        return events

    folder = write_ranks(tmp_path, [rank(20), rank(55)], backend="nccl")
    # the copy is work that the device did
    assert own(folder) == pytest.approx([30 + 2, 65 + 2], abs=0.1)


def test_a_step_lasts_until_its_device_is_done(tmp_path):
    # the hosts run ahead: a step of 100 ms takes 5 ms on them
    for rank, work in enumerate((30, 70)):
        events = [
            part
            for k in range(4)
            for part in (
                step(k, 5 * k, 5),
                kernel("gemm", 1 + 100 * k, work, 5 * k + 0.5),
                nccl(1 + 100 * k + work, 80 - work, 5 * k + 0.6),
                kernel("add", 81 + 100 * k, 20, 5 * k + 0.7),
            )
        ]
        write(tmp_path / f"rank{rank}.json", events, rank, backend="nccl")
    log = read_log(tmp_path)
    np.testing.assert_allclose(1e3 * log.seconds[1:], [[50, 90]] * 3, atol=0.1)
    np.testing.assert_allclose(1e3 * log.seconds[0], [51, 91], atol=0.1)
    np.testing.assert_allclose(1e3 * log.rest, [10] * 4, atol=0.1)


def test_what_a_device_had_to_do_before_the_first_step_is_no_part_of_it(tmp_path):
    for rank, work in enumerate((30.0, 50.0)):
        events = []
        # the host is 80 ms ahead of its device, from before the profiler began on
        for number in range(6):
            start = 60.0 * number
            end = start + 80.0 + work
            events += [
                step(number, start, 60.0),
                kernel("gemm", start + 80.0, work, launch=start + 1.0),
                nccl(end, 60.0 - work, launch=start + 2.0),
            ]
        write(tmp_path / f"rank{rank}.json", events, rank, backend="nccl")
    log = read_log(tmp_path, warmup=0)
    np.testing.assert_allclose(log.seconds, np.tile([0.03, 0.05], (6, 1)), atol=1.5e-3)


def test_gloo_between_devices_blocks_the_host(tmp_path):
    backward = (7, 9)

    def rank(work):
        def events(k, t):
            return [
                step(k, t, 100),
                kernel("gemm", t, work),
                operation("autograd::engine::evaluate_function: MmBackward", t, work, backward),
                operation("c10d::allreduce_", t + work, 0.1, backward),
                event("gloo:all_reduce", "user_annotation", t + work, 80 - work, GLOO),
                kernel("add", t + 80, 10),
                operation("aten::add_", t + 80.01, 10),
            ]

        return events

    folder = write_ranks(tmp_path, [rank(30), rank(60)])
    assert own(folder) == pytest.approx([50, 80], abs=0.3)


def test_clocks_of_hosts_may_differ(tmp_path):
    for rank, work in enumerate((10, 40, 25)):
        shift = 1e6 * rank
        events = [
            one
            for k in range(3)
            for one in (
                step(k, shift + 100 * k, 90),
                operation("aten::mm", shift + 100 * k, work),
                gloo(shift + 100 * k + work, 80 - work),
                operation("aten::add_", shift + 100 * k + 80, 10),
            )
        ]
        write(tmp_path / f"rank{rank}.json", events, rank, 3, host_name=f"host{rank}")
    assert own(tmp_path) == pytest.approx([20, 50, 35], abs=0.1)


def test_waits_that_totals_do_not_show_are_said(tmp_path):
    # ranks 0 and 1 are each late at one of two collectives: the totals are equal
    def rank(first, second):
        def events(k, t):
            return [
                step(k, t, 100),
                operation("aten::mm", t, first),
                gloo(t + first, 41 - first),
                operation("aten::mm", t + 41, second),
                gloo(t + 41 + second, 41 - second),
                operation("aten::add_", t + 82, 18),
            ]

        return events

    hidden = read_log(write_ranks(tmp_path / "hidden", [rank(40, 10), rank(10, 40)]))
    assert "30 ms of a step (30.0%)" in " ".join(hidden.remarks)
    plain = read_log(write_ranks(tmp_path / "plain", [rank(40, 30), rank(10, 15)]))
    assert "Different ranks were last" not in " ".join(plain.remarks)


def test_ranks_with_other_collectives_are_said(tmp_path):
    def rank(count):
        def events(k, t):
            return [
                step(k, t, 100),
                *[operation("aten::mm", t + 30 * j, 20) for j in range(3)],
                *[gloo(t + 20 + 30 * j, 10) for j in range(count)],
            ]

        return events

    log = read_log(write_ranks(tmp_path, [rank(3), rank(2)]))
    assert "In 3 of 3 steps the ranks have different collectives" in " ".join(log.remarks)
    np.testing.assert_allclose(1e3 * log.seconds, [[70, 80]] * 3, atol=0.1)


def test_traces_without_collectives_or_kernels_say_so(tmp_path):
    folder = tmp_path / "none"
    write_ranks(folder, [lambda k, t: [step(k, t, 10)]] * 2, backend="nccl")
    remarks = " ".join(read_log(folder).remarks)
    assert "The traces hold no collective" in remarks
    assert "ProfilerActivity.CUDA" in remarks


def test_kernels_of_the_job_that_communicate_are_told_by_their_names(tmp_path):
    names = {
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": True,
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": True,
        "void vllm::cross_device_reduce_1stage<float, 2>": True,
        "void at::native::reduce_kernel<512, 1>": False,
        "triton_poi_fused_nccl_name_0": False,
        "my_nccl_free_gemm": False,
    }
    for place, (name, communicates) in enumerate(names.items()):
        folder = tmp_path / str(place)

        def rank(k, t, name=name):
            return [
                step(k, t, 100),
                kernel("gemm", t, 20),
                kernel(name, t + 20, 80, None, COLLECTIVES),
            ]

        write_ranks(folder, [rank, rank])
        assert own(folder) == pytest.approx([20 if communicates else 100] * 2, abs=0.1)


def test_old_names_of_categories_and_texts_as_times_are_read(tmp_path):
    def rank(work):
        def events(k, t):
            one = [
                event(f"ProfilerStep#{k}", "Operator", t, 100),
                event("gemm", "Kernel", t, work, STREAM),
                event("ncclKernel_AllReduce", "Kernel", t + work, 100 - work, COLLECTIVES),
            ]
            return [{**part, "ts": str(part["ts"]), "dur": str(part["dur"])} for part in one]

        return events

    def renamed(folder):
        for file in folder.iterdir():
            file.write_text(file.read_text().replace('"Operator"', '"cpu_op"'))

    folder = write_ranks(tmp_path, [rank(20), rank(60)])
    assert own(folder) == pytest.approx([20, 60], abs=0.1)
    renamed(folder)
    assert own(folder) == pytest.approx([20, 60], abs=0.1)


def test_both_forms_of_json_are_read(tmp_path):
    events = [[step(k, 100 * k, 40 + 10 * rank) for k in range(4)] for rank in range(2)]
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(events[rank]))
    log = read_log(tmp_path)
    assert (log.workers, (1e3 * log.seconds.mean(0)).tolist()) == (
        ["0", "1"],
        pytest.approx([40, 50]),
    )
