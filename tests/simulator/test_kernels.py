"""Closed forms: kernels that share a device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_machines import RowCosts, gpus, spans_of

from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate
from stepsim.simulator.reference.kernels import DISCIPLINES, Kernel


def kernels(num, *, priorities=None):
    """A kernel on each of ``num`` streams of one gpu, all ready at 0."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    for number in range(num):
        stream = builder.stream(f"s{number}", gpu, priority=priorities[number] if priorities else 0)
        builder.compute(builder.work("F"), stream)
    return builder.build()


@pytest.mark.parametrize("need", ["sm_share", "bandwidth_share"])
@pytest.mark.parametrize(
    ("sharing", "ends_s"), [("leftover", [6.0, 10.0]), ("fair", [9.0, 9.0])], ids=["leftover", "fair"]
)
def test_two_kernels_whose_demands_add_to_one_and_a_half(need, sharing, ends_s, engine):
    """Each of 6 s at 0.75. Leftover: A at 1, B at 1/3 until A is done. Fair: both at 2/3.

    leftover  A  000000                fair  A  000000000
              B  1111111111                  B  111111111
    """
    costs = RowCosts(seconds=6.0, **{need: 0.75})

    timeline = simulate(kernels(2), gpus(), costs, engine=engine, sharing=sharing)

    assert timeline.spans.end_s.tolist() == pytest.approx(ends_s, rel=1e-12)


@pytest.mark.parametrize("sharing", ["leftover", "fair"])
@pytest.mark.parametrize("need", ["sm_share", "bandwidth_share"])
def test_kernels_that_fit_run_at_full_speed(need, sharing, engine):
    """0.2 + 0.4 + 0.3 + 0.1, which is a last place more than 1 in this order."""
    shares, seconds = [0.2, 0.4, 0.3, 0.1], [1.0, 2.0, 3.0, 4.0]
    assert shares[0] + shares[1] + shares[2] + shares[3] > 1
    costs = RowCosts(seconds=seconds, **{need: shares})

    timeline = simulate(kernels(4), gpus(), costs, engine=engine, sharing=sharing)

    assert timeline.spans.end_s.tolist() == seconds


@pytest.mark.parametrize("sharing", ["leftover", "fair"])
def test_a_kernel_of_higher_priority_goes_first_though_the_plan_has_it_later(sharing, engine):
    """Both need all SMs; the low one has what is left, nothing.

    low      ....0000         started at 0, and waits
    high     1111
    """
    costs = RowCosts(seconds=4.0, sm_share=1.0)

    timeline = simulate(kernels(2, priorities=[0, 1]), gpus(), costs, engine=engine, sharing=sharing)

    assert spans_of(timeline) == [(0.0, 8.0), (0.0, 4.0)]


def test_fair_shares_among_one_priority_what_the_higher_ones_leave(engine):
    """High takes 1/2; the two low ones, of 1/2 each, have 1/2 together until it is done, and all after that.

    low      00000000         2 s of work by 4, and 4 by 6
    low      11111111
    high     2222
    """
    costs, plan = RowCosts(seconds=4.0, sm_share=0.5), kernels(3, priorities=[0, 0, 1])

    timeline = simulate(plan, gpus(), costs, engine=engine, sharing="fair")

    assert timeline.spans.end_s.tolist() == [6.0, 6.0, 4.0]


def test_an_earlier_row_that_comes_later_takes_the_device_from_the_one_that_runs(engine):
    """Row 1 stands behind a kernel of 1 that needs nothing, row 2 starts at once.

    s0       0 1111
    s1       2 .... 222
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    for stream in (s0, s0, s1):
        builder.compute(builder.work("F"), stream)
    costs = RowCosts(seconds=[1.0, 4.0, 4.0], sm_share=[0.0, 1.0, 1.0])

    timeline = simulate(builder.build(), gpus(), costs, engine=engine)

    assert spans_of(timeline) == [(0.0, 1.0), (1.0, 5.0), (0.0, 8.0)]


def test_the_scarcer_of_the_two_needs_says_how_fast_a_kernel_runs(engine):
    """A takes 1/2 of the SMs and 3/4 of the bandwidth. B of 1 and 1/2 gets half of either need: rate 1/2."""
    costs = RowCosts(seconds=[8.0, 4.0], sm_share=[0.5, 1.0], bandwidth_share=[0.75, 0.5])

    timeline = simulate(kernels(2), gpus(), costs, engine=engine)

    assert timeline.spans.end_s.tolist() == [8.0, 8.0]


def test_fair_lets_those_rise_on_who_do_not_need_what_is_used_up(engine):
    """A and B of 3/4 SM stop at 2/3; C needs no SM but all of the bandwidth, of which B takes 1/2 * 2/3: rate 2/3.

    D needs nothing, and runs at 1.
    """
    costs = RowCosts(seconds=4.0, sm_share=[0.75, 0.75, 0.0, 0.0], bandwidth_share=[0.0, 0.5, 1.0, 0.0])

    timeline = simulate(kernels(4), gpus(), costs, engine=engine, sharing="fair")

    assert timeline.spans.end_s.tolist() == pytest.approx([6.0, 6.0, 6.0, 4.0], rel=1e-12)


@pytest.mark.parametrize("sharing", ["leftover", "fair"])
def test_empty_kernels_share_with_nobody(sharing, engine):
    costs = RowCosts(seconds=[0.0, 3.0, 0.0], sm_share=1.0)

    timeline = simulate(kernels(3), gpus(), costs, engine=engine, sharing=sharing)

    assert timeline.spans.end_s.tolist() == [0.0, 3.0, 0.0]


@pytest.mark.parametrize("sharing", ["leftover", "fair"])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_the_share_of_a_copy_is_taken_off_before_any_kernel(share, sharing, engine):
    """A kernel of w that needs all runs at 1 - s beside a copy of c: it ends at c + w - (1 - s) * c.

    d2h      0000
    compute  11111 111111
    """
    kernel_s, copy_s = 6.0, 4.0
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    builder.copy(builder.buffer(4, gpu), builder.buffer(4, host), builder.stream("d2h", gpu))
    builder.compute(builder.work("F"), builder.stream("compute", gpu, priority=9))
    costs = RowCosts(seconds=kernel_s, sm_share=[share, 1.0])

    timeline = simulate(builder.build(), gpus(), costs, engine=engine, sharing=sharing)

    assert timeline.spans.end_s.tolist() == [copy_s, copy_s + kernel_s - (1 - share) * copy_s]


def test_devices_are_shared_apart(engine):
    builder = PlanBuilder()
    for name in ("gpu0", "gpu1"):
        builder.compute(builder.work("F"), builder.stream("compute", builder.device(name)))

    timeline = simulate(builder.build(), gpus(2), RowCosts(seconds=3.0, sm_share=1.0), engine=engine)

    assert timeline.spans.end_s.tolist() == [3.0, 3.0]


SHARES = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.7, 1.0])


@pytest.mark.parametrize("sharing", ["leftover", "fair"])
@given(st.data())
def test_kernels_never_take_more_than_is_left_and_leave_nothing_that_one_of_them_could_use(sharing, data):
    """Who is slower than 1 needs something that is used up by those that come before it, or are of its priority."""
    taken = data.draw(st.tuples(SHARES, SHARES))
    drawn = data.draw(st.lists(st.tuples(st.integers(0, 2), st.tuples(SHARES, SHARES)), max_size=6))
    drawn.sort(key=lambda entry: -entry[0])
    kernels_ = [Kernel(row, priority, needs, None) for row, (priority, needs) in enumerate(drawn)]

    rates = DISCIPLINES[sharing](list(taken), kernels_)

    used = [list(taken)]
    for kernel, rate in zip(kernels_, rates, strict=True):
        used.append([before + need * rate for before, need in zip(used[-1], kernel.needs, strict=True)])
    for place, (kernel, rate) in enumerate(zip(kernels_, rates, strict=True)):
        alike = [n for n, other in enumerate(kernels_) if other.priority == kernel.priority]
        seen = used[place + 1] if sharing == "leftover" else used[alike[-1] + 1]
        assert 0 <= rate <= 1
        assert all(part <= 1 + 1e-9 for part in seen)
        assert rate == 1 or any(need > 0 and part > 1 - 1e-9 for need, part in zip(kernel.needs, seen, strict=True))
