"""Closed forms: host threads that launch, work, wait, and are held."""

import pytest
from small_machines import RowCosts, gpus, spans_of

from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


@pytest.mark.parametrize("num_kernels", [1, 2, 10])
@pytest.mark.parametrize(
    ("launch_s", "kernel_s"), [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0)], ids=["launch-bound", "kernel-bound", "balanced"]
)
def test_a_step_is_bound_by_its_launches_or_by_its_kernels(num_kernels, launch_s, kernel_s, engine):
    """Makespan is n * L + k where L >= k, and L + n * k where k >= L.

    thread   LLLLLLLLL              LLL
    stream   ...K..K..K             .KKKKKKKKK
    """
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    for _ in range(num_kernels):
        builder.compute(builder.work("F"), stream)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=kernel_s, launch_s=launch_s), engine=engine)

    launches_bind = num_kernels * launch_s + kernel_s
    kernels_bind = launch_s + num_kernels * kernel_s
    assert timeline.makespan_s == pytest.approx(launches_bind if launch_s >= kernel_s else kernels_bind, rel=1e-12)


def test_a_blocking_copy_holds_its_thread_until_it_has_ended(engine):
    """Makespan is 2 * L + m + k: the second launch begins when the copy is done.

    thread   L.....L
    h2d      .MMMMM
    compute  .......KK
    """
    launch_s, copy_s, kernel_s = 1.0, 5.0, 2.0
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, h2d = builder.stream("compute", gpu), builder.stream("h2d", gpu, role="h2d")
    source, target = builder.buffer(5, host), builder.buffer(5, gpu)
    builder.copy(source, target, h2d, blocks_thread=True)
    builder.compute(builder.work("F"), compute)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=kernel_s, launch_s=launch_s), engine=engine)

    assert timeline.makespan_s == pytest.approx(2 * launch_s + copy_s + kernel_s, rel=1e-12)


def test_a_copy_that_does_not_block_lets_its_thread_launch_on(engine):
    """Makespan is max(L + m, 2 * L + k).

    thread   LL
    h2d      .MMMMM
    compute  ..KK
    """
    launch_s, copy_s, kernel_s = 1.0, 5.0, 2.0
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, h2d = builder.stream("compute", gpu), builder.stream("h2d", gpu, role="h2d")
    source, target = builder.buffer(5, host), builder.buffer(5, gpu)
    builder.copy(source, target, h2d)
    builder.compute(builder.work("F"), compute)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=kernel_s, launch_s=launch_s), engine=engine)

    assert timeline.makespan_s == pytest.approx(max(launch_s + copy_s, 2 * launch_s + kernel_s), rel=1e-12)


def test_host_work_delays_launches_and_a_synchronisation_delays_host_work(engine):
    """Makespan is h + L + k + h: the synchronisation is host work of no length that waits for the kernel.

    thread   HHHHL...|HHHH
    stream   .....KKK
    """
    host_s, launch_s, kernel_s = 4.0, 1.0, 3.0
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    gap = builder.host(builder.work("gap"))
    kernel = builder.compute(builder.work("F"), stream)
    sync = builder.host(builder.work("synchronize"), after=[kernel])
    last = builder.host(builder.work("gap"))
    costs = RowCosts(seconds=[host_s, kernel_s, 0.0, host_s], launch_s=launch_s)

    timeline = simulate(builder.build(), gpus(), costs, engine=engine)

    assert timeline.span(gap).end_s == host_s
    assert timeline.span(sync).start_s == timeline.span(sync).end_s == host_s + launch_s + kernel_s
    assert timeline.span(last).start_s == timeline.span(sync).end_s
    assert timeline.makespan_s == pytest.approx(host_s + launch_s + kernel_s + host_s, rel=1e-12)


def test_host_work_and_releases_pay_no_launch(engine):
    """Makespan is L + k + h.

    thread   LLr..|HH
    stream   ..KKr
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    stream = builder.stream("compute", gpu)
    x = builder.buffer(1, gpu, owner=stream)
    builder.compute(builder.work("F"), stream, writes=[x], allocates=[x])
    released = builder.release([x], stream)
    builder.host(builder.work("gap"), after=[released])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=[2.0, 0.0, 5.0], launch_s=2.0), engine=engine)

    assert timeline.makespan_s == 2.0 + 2.0 + 5.0


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_threads_launch_beside_each_other(num_threads, engine):
    """n kernels of k over t threads and t streams, launch-bound: n / t * L + k.

    thread 0   LLLLLL
    thread 1   LLLLLL
    stream 0   ...K..K
    stream 1   ...K..K
    """
    num_kernels, launch_s, kernel_s = 8, 3.0, 1.0
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    threads = [builder.thread(f"thread {i}") for i in range(num_threads)]
    streams = [builder.stream(f"s{i}", gpu) for i in range(num_threads)]
    for row in range(num_kernels):
        lane = row % num_threads
        builder.compute(builder.work("F"), streams[lane], thread=threads[lane])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=kernel_s, launch_s=launch_s), engine=engine)

    assert timeline.makespan_s == pytest.approx(num_kernels / num_threads * launch_s + kernel_s, rel=1e-12)


def test_two_threads_that_share_a_stream_keep_the_order_of_the_plan(engine):
    """Row 1 was issued at 1, but its stream runs row 0 of the slow thread first.

    slow     LLLLL
    quick    L
    stream   .....0011
    """
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    slow, quick = builder.thread("slow"), builder.thread("quick")
    builder.compute(builder.work("F"), stream, thread=slow)
    builder.compute(builder.work("F"), stream, thread=quick)

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=2.0, launch_s=[5.0, 1.0]), engine=engine)

    assert spans_of(timeline) == [(5.0, 7.0), (7.0, 9.0)]


def test_a_thread_waits_for_another_through_a_host_row(engine):
    """
    main       HH...|HH
    autograd   ..HHH
    """
    builder = PlanBuilder()
    main, autograd = builder.thread("main"), builder.thread("autograd")
    forward = builder.host(builder.work("forward"), thread=main)
    backward = builder.host(builder.work("backward"), thread=autograd, after=[forward])
    builder.host(builder.work("step"), thread=main, after=[backward])

    timeline = simulate(builder.build(), gpus(), RowCosts(seconds=[2.0, 3.0, 2.0]), engine=engine)

    assert spans_of(timeline) == [(0.0, 2.0), (2.0, 5.0), (5.0, 7.0)]
