"""A tiny trace is written as a machine would have recorded it; its replay must meet the closed form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import V100, KinetoFile
from replayed import US, replay, replay_trace

from stepsim.plan import TaskKind
from stepsim.traces import explained, machine_of, read_kineto
from stepsim.traces.handover import ENGINE
from stepsim.traces.rows import STAGED_BYTES


def gpu_bound(tmp_path):
    """
    step     0-----------------------------------64
    thread   .LL.LLSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS..      L from 5 and from 11, sync from 13 to 62
    stream       ..1111111111222222222222222222          10..30, 30..60
    """
    file = KinetoFile()
    file.step(1, 0, 64)
    file.launched(5, 5, 10, 20, correlation=1)
    file.launched(11, 2, 30, 30, correlation=2)
    file.sync(13, 49)
    return file.write(tmp_path / "t.json")


def test_a_serial_stream_ends_with_the_sum_of_its_kernels(tmp_path):
    replayed = replay(gpu_bound(tmp_path))

    assert replayed.kernels_us() == [(10, 30), (30, 60)]
    assert replayed.steps_us == pytest.approx([64])


@pytest.mark.parametrize("slower", [0.25, 0.5, 2, 10])
def test_the_wait_of_a_synchronisation_is_simulated_not_copied(tmp_path, slower):
    """Issued at 10 and 13, synchronised from 13 on, 4 of host work behind the wait."""
    replayed = replay(gpu_bound(tmp_path), slower=slower)

    first_ends = 10 + 20 * slower
    second_ends = max(first_ends, 13) + 30 * slower
    assert replayed.steps_us == pytest.approx([max(13, second_ends) + 4])


@pytest.mark.parametrize("launch", [0.5, 1, 3])
def test_a_launch_bound_step_takes_its_launches_and_gaps(tmp_path, launch):
    """
    thread   .LLLL.LLLL.LLLL.      each launch 4, each gap 1
    stream       1    1    1       each kernel 1
    """
    file = KinetoFile()
    file.step(1, 0, 16)
    for number in range(3):
        begin = 1 + 5 * number
        file.launched(begin, 4, begin + 4, 1, correlation=number + 1)

    replayed = replay(file.write(tmp_path / "t.json"), launch=launch)

    issued = [1 + 4 * launch, 2 + 8 * launch, 3 + 12 * launch]
    assert replayed.kernels_us() == [pytest.approx((at, at + 1)) for at in issued]
    assert replayed.steps_us == pytest.approx([4 + 12 * launch])


@pytest.mark.parametrize(
    ("ends", "call", "size_bytes"),
    [
        ("HtoD (Pageable -> Device)", "cudaMemcpyAsync", STAGED_BYTES + 1),
        ("DtoH (Device -> Pageable)", "cudaMemcpyAsync", 8),
        ("DtoH (Device -> Pinned)", "cudaMemcpy", 8),
        ("HtoD (Host -> Device)", "hipMemcpyWithStream", 8),
        ("DtoD (Device -> Device)", "hipMemcpyWithStream", 8),
    ],
)
@pytest.mark.parametrize("slower", [1, 3])
def test_a_blocking_copy_holds_its_thread_until_it_has_ended(tmp_path, ends, call, size_bytes, slower):
    """
    step     0-------------------------------64
    thread   LLLLCCCCCCCCCCCCCCCCCCCCCCCCCC....      call from 4 to 52: wait to 34, 2 to start, 14 to copy, 2 to return
    stream       kkkkkkkkkkkkkkkkkkkk..cccc
    """
    file = KinetoFile()
    file.step(1, 0, 64)
    file.launched(0, 4, 4, 30, correlation=1)
    file.call(4, 48, correlation=2, name=call)
    file.copy(36, 14, correlation=2, size_bytes=size_bytes, ends=ends)

    replayed = replay(file.write(tmp_path / "t.json"), slower=slower)

    ends_us = 4 + (30 + 14) * slower
    assert replayed.kernels_us()[-1][1] == pytest.approx(ends_us)
    assert replayed.steps_us == pytest.approx([ends_us + 64 - 50])


@pytest.mark.parametrize(
    ("ends", "call", "size_bytes"),
    [
        ("HtoD (Pageable -> Device)", "cudaMemcpyAsync", STAGED_BYTES),
        ("HtoD (Pinned -> Device)", "cudaMemcpyAsync", 10**8),
        ("DtoH (Device -> Pinned)", "cudaMemcpyAsync", 10**8),
        ("DtoD (Device -> Device)", "cudaMemcpyAsync", 10**8),
        ("DtoD (Device -> Device)", "cudaMemcpy", 10**8),
    ],
)
def test_other_copies_let_their_thread_go_on(tmp_path, ends, call, size_bytes):
    file = KinetoFile()
    file.step(1, 0, 64)
    file.launched(0, 4, 4, 30, correlation=1)
    file.call(4, 5, correlation=2, name=call)
    file.copy(34, 14, correlation=2, size_bytes=size_bytes, ends=ends)

    replayed = replay(file.write(tmp_path / "t.json"), slower=100)

    assert replayed.steps_us == pytest.approx([64])


def test_copies_between_host_and_device_have_a_route_and_their_bytes(tmp_path):
    file = KinetoFile()
    file.launched(0, 4, 4, 30, correlation=1)
    for correlation, ends in ((2, "HtoD (Pinned -> Device)"), (3, "DtoH (Device -> Pinned)")):
        file.call(4 * correlation, 4, correlation=correlation, name="cudaMemcpyAsync")
        file.copy(40 + 10 * correlation, 5, correlation=correlation, size_bytes=4096, ends=ends)

    plan = replay(file.write(tmp_path / "t.json")).rebuilt.plan

    copies = plan.tasks.kind == TaskKind.COPY
    assert plan.tasks.size_bytes[copies].tolist() == [4096, 4096]
    routes = [(plan.routes.source[route], plan.routes.destination[route]) for route in plan.tasks.route[copies]]
    named = [(plan.devices.name[source], plan.devices.name[destination]) for source, destination in routes]
    assert named == [("host", "gpu0"), ("gpu0", "host")]


MAIN, AUTOGRAD = 1, 2


@pytest.mark.parametrize("slower", [1, 2])
def test_the_main_thread_waits_for_the_autograd_thread_and_back(tmp_path, slower):
    """
    step       0--------------------------------------100
    main       op LLL op.......................op LLL op       forward from 10 to 15, update from 85 to 90
    autograd                  op LLL SSSSSSS op                woken at 30, launch 35..40, waits to 70, done at 75
    stream           11111111111     22222222                  15..25, 40..70
    """
    file = KinetoFile()
    file.step(1, 0, 100)
    file.op(0, 20, thread=MAIN)
    file.launched(10, 5, 15, 10, correlation=1, thread=MAIN)
    file.op(30, 45, thread=AUTOGRAD)
    file.launched(35, 5, 40, 30, correlation=2, thread=AUTOGRAD)
    file.sync(45, 25, thread=AUTOGRAD)
    file.op(80, 20, thread=MAIN)
    file.launched(85, 5, 90, 5, correlation=3, thread=MAIN)

    replayed = replay(file.write(tmp_path / "t.json"), slower=slower)

    autograd_waited = 40 + 30 * slower
    assert replayed.kernels_us()[1] == pytest.approx((40, autograd_waited))
    assert replayed.kernels_us()[2][0] == pytest.approx(autograd_waited + 5 + 10 + 5)
    assert replayed.steps_us == pytest.approx([autograd_waited + 30])


@pytest.mark.parametrize("slower", [1, 2])
def test_what_the_engine_accumulates_on_the_main_thread_does_not_end_its_wait(tmp_path, slower):
    """The gradient of a parameter in host memory is added on the main thread, while the other thread goes on.

    step       0-------------------------------100
    main       op LLL ......|ee|..............op       the engine's op from 45 to 50
    autograd          op LLL SSSSSSSSSS op             woken at 20, launch 25..30, waits to 70, done at 75
    stream                  222222222222               30..70
    """
    file = KinetoFile()
    file.step(1, 0, 100)
    file.launched(0, 5, 5, 5, correlation=1, thread=MAIN)
    file.op(20, 55, thread=AUTOGRAD)
    file.launched(25, 5, 30, 40, correlation=2, thread=AUTOGRAD)
    file.sync(30, 40, thread=AUTOGRAD)
    file.op(45, 5, thread=MAIN, name=f"{ENGINE}: torch::autograd::AccumulateGrad")
    file.op(47, 2, thread=MAIN, name="torch::autograd::AccumulateGrad")
    file.op(80, 20, thread=MAIN)

    replayed = replay(file.write(tmp_path / "t.json"), slower=slower)

    assert replayed.steps_us == pytest.approx([30 + 40 * slower + 30])


def test_a_call_of_the_engine_on_the_main_thread_ends_its_wait(tmp_path):
    file = KinetoFile()
    file.step(1, 0, 100)
    file.op(20, 55, thread=AUTOGRAD)
    file.launched(25, 5, 30, 40, correlation=2, thread=AUTOGRAD)
    file.sync(30, 40, thread=AUTOGRAD)
    file.op(40, 12, thread=MAIN, name=f"{ENGINE}: SumBackward0")
    file.launched(45, 5, 50, 5, correlation=3, thread=MAIN, stream=8)

    replayed = replay(file.write(tmp_path / "t.json"), slower=2)

    assert replayed.steps_us == pytest.approx([100])


def test_threads_that_run_beside_each_other_keep_their_own_pace(tmp_path):
    """A copying thread whose call lasts while the main thread launches does not hold it."""
    file = KinetoFile()
    file.step(1, 0, 60, thread=MAIN)
    for number in range(5):
        file.launched(10 * number, 4, 10 * number + 4, 2, correlation=number + 1, thread=MAIN)
    file.call(5, 40, correlation=9, thread=AUTOGRAD, name="cudaMemcpyAsync")
    file.copy(6, 38, correlation=9, size_bytes=10**6, stream=8)

    replayed = replay(file.write(tmp_path / "t.json"), slower=20)

    assert replayed.steps_us == pytest.approx([60])
    assert max(end for _, end in replayed.kernels_us()) == pytest.approx(6 + 20 * 38)


def two_streams(synchronise):
    """A long kernel on stream 7, then a short one on stream 8, and a synchronisation from 10 to 20."""
    file = KinetoFile()
    file.step(1, 0, 200)
    file.launched(0, 4, 4, 100, correlation=1, stream=7)
    file.launched(4, 4, 8, 10, correlation=2, stream=8)
    synchronise(file)
    return file


@pytest.mark.parametrize(
    ("call", "told", "awaited_us"),
    [
        ("cudaStreamSynchronize", None, 18),
        ("cudaStreamSynchronize", 8, 18),
        ("cudaStreamSynchronize", 7, 104),
        ("cudaDeviceSynchronize", None, 104),
        ("cudaEventSynchronize", None, 18),
    ],
)
def test_a_synchronisation_waits_for_its_stream_or_for_all_of_the_device(tmp_path, call, told, awaited_us):
    """Where the trace does not tell the stream, it is the one that the thread used last. 1 of host work follows."""

    def synchronise(file):
        file.sync(10, awaited_us + 1 - 10, correlation=3, name=call)
        if told is not None:
            file.add("cuda_sync", "Stream Sync", 10, 1, 0, stream=told, correlation=3)

    path = two_streams(synchronise).write(tmp_path / "t.json")

    assert replay(path).steps_us == pytest.approx([200])
    on_long_kernel = awaited_us == 104
    assert replay(path, slower=10).steps_us == pytest.approx([200 - awaited_us + (1004 if on_long_kernel else 108)])


def test_an_event_is_one_recorded_behind_what_had_ended_when_the_call_returned(tmp_path):
    """
    thread   LLLLLLLLSSSSSS      the event lies between the two kernels: the call returns at 31
    stream      111111222222
    """
    file = KinetoFile()
    file.step(1, 0, 40)
    file.launched(0, 4, 4, 26, correlation=1)
    file.launched(4, 4, 30, 50, correlation=2)
    file.sync(8, 23, name="cudaEventSynchronize")

    replayed = replay(file.write(tmp_path / "t.json"), slower=2)

    assert replayed.steps_us == pytest.approx([4 + 2 * 26 + 10])


def test_what_was_launched_before_the_recording_starts_when_it_did_or_behind_what_is_before_it(tmp_path):
    """
    thread        .LLLSSSSSSSSSSS     the step begins at 5 and synchronises with all of it
    stream   000000..111|22222
    """
    file = KinetoFile()
    file.kernel(0, 20, correlation=98)
    file.kernel(30, 10, correlation=99)
    file.step(1, 5, 60)
    file.launched(6, 4, 40, 20, correlation=100)
    file.sync(10, 50)
    path = file.write(tmp_path / "t.json")

    assert replay(path).kernels_us() == [(0, 20), (30, 40), (40, 60)]
    assert replay(path).steps_us == pytest.approx([60])
    assert replay(path, slower=2).kernels_us() == [(0, 40), (40, 60), (60, 100)]


def test_a_row_whose_launch_was_dropped_follows_its_predecessor(tmp_path):
    file = KinetoFile()
    file.launched(0, 4, 4, 10, correlation=1)
    file.kernel(14, 10, correlation=77)
    file.launched(4, 4, 24, 10, correlation=2)

    replayed = replay(file.write(tmp_path / "t.json"))

    assert replayed.kernels_us() == [(4, 14), (14, 24), (24, 34)]


def test_a_graph_launch_issues_all_its_kernels_at_the_price_of_one(tmp_path):
    file = KinetoFile()
    file.call(0, 4, correlation=1, name="cudaGraphLaunch")
    for number in range(3):
        file.kernel(4 + 10 * number, 10, correlation=1)

    replayed = replay(file.write(tmp_path / "t.json"))

    assert replayed.kernels_us() == [(4, 14), (14, 24), (24, 34)]
    assert replayed.rebuilt.launch_s.sum() == pytest.approx(4 * US)


def test_a_call_within_a_call_is_not_paid_twice(tmp_path):
    """The runtime's launch goes through the driver's, and both are recorded."""
    file = KinetoFile()
    file.step(1, 0, 20)
    file.call(2, 10, correlation=1)
    file.launched(4, 6, 12, 2, correlation=2)
    file.kernel(14, 2, correlation=1)

    replayed = replay(file.write(tmp_path / "t.json"))

    assert replayed.steps_us == pytest.approx([20])


def test_a_collective_is_a_group_of_one(tmp_path):
    file = KinetoFile()
    file.launched(0, 4, 4, 10, correlation=1, name="ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork)")

    plan = replay(file.write(tmp_path / "t.json")).rebuilt.plan

    collectives = plan.tasks.kind == TaskKind.COLLECTIVE
    assert collectives.sum() == 1
    assert plan.collectives.team.to_lists() == [[plan.devices.name.index("gpu0")]]


@pytest.mark.parametrize("last", ["kernel", "host"])
def test_without_profiler_steps_the_whole_trace_is_one_step(tmp_path, last):
    file = KinetoFile()
    file.launched(0, 4, 4, 50 if last == "kernel" else 5, correlation=1)
    file.op(20, 10)

    (step,) = replay(file.write(tmp_path / "t.json")).steps

    expected = 54 if last == "kernel" else 30
    assert step.measured_s / US == pytest.approx(expected)
    assert step.predicted_s / US == pytest.approx(expected)


def test_a_trace_of_kernels_alone_keeps_the_gaps_that_nothing_explains(tmp_path):
    file = KinetoFile()
    file.kernel(0, 10, correlation=1)
    file.kernel(15, 5, correlation=2)

    (step,) = replay(file.write(tmp_path / "t.json")).steps

    assert (step.measured_s / US, step.predicted_s / US) == pytest.approx((20, 20))


def test_steps_are_measured_on_their_thread_one_by_one(tmp_path):
    file = KinetoFile()
    file.step(7, 0, 10)
    file.launched(1, 4, 5, 100, correlation=1)
    file.step(8, 12, 30)
    file.launched(13, 4, 105, 10, correlation=2)

    steps = replay(file.write(tmp_path / "t.json")).steps

    assert [step.name for step in steps] == ["ProfilerStep#7", "ProfilerStep#8"]
    assert [step.measured_s / US for step in steps] == pytest.approx([10, 30])
    assert [step.relative for step in steps] == pytest.approx([0, 0])


TIMES = st.integers(0, 40)


@given(
    kernels=st.lists(st.tuples(TIMES, TIMES, TIMES, st.booleans()), min_size=1, max_size=8),
    tail=st.integers(1, 9),
)
def test_a_run_that_obeys_the_contract_is_replayed_exactly(tmp_path_factory, kernels, tail):
    """One thread, one stream: gap, launch, kernel, perhaps a synchronisation; recorded as the recursion gives it."""
    file, now, stream_free = KinetoFile(), 0, 0
    for correlation, (gap, launch, runs, synchronises) in enumerate(kernels, start=1):
        issued = now + gap + launch
        starts = max(issued, stream_free)
        file.launched(now + gap, launch, starts, runs, correlation)
        now, stream_free = issued, starts + runs
        if synchronises:
            file.sync(now, max(0, stream_free - now))
            now = max(now, stream_free)
    file.step(1, 0, now + tail)

    replayed = replay(file.write(tmp_path_factory.mktemp("run") / "t.json"))

    assert replayed.steps_us == pytest.approx([now + tail])
    recorded = [(event["ts"], event["ts"] + event["dur"]) for event in file.events if event["cat"] == "kernel"]
    assert replayed.kernels_us() == [pytest.approx(span) for span in recorded]


def test_the_machine_of_a_trace_has_its_gpus_with_the_memory_they_report(tmp_path):
    file = KinetoFile()
    file.launched(0, 4, 4, 10, correlation=1)
    file.launched(4, 4, 8, 10, correlation=2, device=1)

    machine = machine_of(read_kineto(file.write(tmp_path / "t.json")))

    assert {device.name for device in machine.devices} == {"host", "gpu0", "gpu1"}
    assert machine.device("gpu0").memory_bytes == V100["totalGlobalMem"]
    assert machine.device("gpu0").model == V100["name"]
    assert len(machine.route("host", "gpu1")) == len(machine.route("gpu1", "host")) == 1


RESNETS = [
    "resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz",
    "resnet50_num_workers_0/worker0_2d19c63423.pt.trace.json.gz",
    "resnet50_num_workers_0/worker0_d3fb4076d7.pt.trace.json.gz",
    "resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
]

STEP_ERROR_LIMIT = 0.05
"""Of the median step, against real recordings."""


@pytest.mark.parametrize("name", RESNETS)
def test_real_resnet_steps_are_rebuilt(data_dir, name):
    path = data_dir / "kineto" / name
    if not path.exists():
        pytest.skip(f"no {path}")

    trace = read_kineto(path)
    replayed = replay_trace(trace)

    assert len(replayed.steps) == 6
    assert np.median([abs(step.relative) for step in replayed.steps]) <= STEP_ERROR_LIMIT
    assert sum(explained(trace).values()) == pytest.approx(1)
