"""Graham's anomalies: less to do, or more to do it with, and yet it takes longer (``docs/background``)."""

from small_machines import RowCosts, gpus, spans_of

from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


def overtaken(first):
    """Two kernels, X and Y, need the whole gpu. X is earlier in the plan, and comes when row 0 has ended."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    if first == "kernel":
        builder.compute(builder.work("W"), s0)
    else:
        builder.copy(builder.buffer(3, host), builder.buffer(3, gpu), s0)
    for name, stream in (("X", s0), ("Y", s1), ("Z", s1)):
        builder.compute(builder.work(name), stream)
    return builder.build()


NEEDS = [0.0, 1.0, 1.0, 0.0]


def test_shortening_a_kernel_can_lengthen_the_step(engine):
    """W of 3 s ends when Y does; W of 2 s lets X in before, and Z, which nothing holds up, waits for Y.

    s0  WWWXXX         s0  WWXXX
    s1  YYYZZZZ        s1  YY...YZZZZ
    """
    plan = overtaken("kernel")

    long = simulate(plan, gpus(), RowCosts(seconds=[3.0, 3.0, 3.0, 4.0], sm_share=NEEDS), engine=engine)
    short = simulate(plan, gpus(), RowCosts(seconds=[2.0, 3.0, 3.0, 4.0], sm_share=NEEDS), engine=engine)

    assert spans_of(long) == [(0.0, 3.0), (3.0, 6.0), (0.0, 3.0), (3.0, 7.0)]
    assert spans_of(short) == [(0.0, 2.0), (2.0, 5.0), (0.0, 6.0), (6.0, 10.0)]


def test_a_faster_link_can_lengthen_the_step(engine):
    """The same with a copy of 3 bytes for W: at 1.5 bytes per second it ends at 2."""
    plan, costs = overtaken("copy"), RowCosts(seconds=[0.0, 3.0, 3.0, 4.0], sm_share=NEEDS)

    slow = simulate(plan, gpus(), costs, engine=engine)
    fast = simulate(plan, gpus(bandwidth_bytes_per_s=1.5), costs, engine=engine)

    assert (slow.makespan_s, fast.makespan_s) == (7.0, 10.0)


def test_another_copy_engine_can_lengthen_the_step(engine):
    """The copy that the kernel waits for no longer has the link for itself.

    s0  AAAAKKKK           s0  AAAAAAAAKKKK
    s1  ....BBBBBB         s1  BBBBBBBBBB
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    for stream, size_bytes in ((s0, 4), (s1, 6)):
        builder.copy(builder.buffer(size_bytes, host), builder.buffer(size_bytes, gpu), stream)
    builder.compute(builder.work("K"), s0)
    plan, costs = builder.build(), RowCosts(seconds=4.0)

    one = simulate(plan, gpus(copy_engines=1), costs, engine=engine)
    two = simulate(plan, gpus(copy_engines=2), costs, engine=engine)

    assert spans_of(one) == [(0.0, 4.0), (4.0, 10.0), (4.0, 8.0)]
    assert spans_of(two) == [(0.0, 8.0), (0.0, 10.0), (8.0, 12.0)]
