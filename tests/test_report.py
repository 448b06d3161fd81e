import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels import RecordedCosts
from stepsim.costmodels.given import GivenCosts
from stepsim.errors import StepsimError
from stepsim.machines import Device, DeviceKind, Link, Machine, Route
from stepsim.plan import CostTable, Origin, TaskCosts
from stepsim.plan.builder import PlanBuilder
from stepsim.report import critical_path, report, trust
from stepsim.simulator import simulate
from stepsim.timeline import Timeline, end_mark
from stepsim.traces.kineto import read_kineto
from stepsim.traces.replay import machine_of, rebuild

INVENTED = {"memory_bytes": "invented"}
LINK_SOURCES = {"latency_s": "invented", "bandwidth_bytes_per_s": "invented"}


def machine(kind=DeviceKind.GPU):
    """One device ``d`` with a link of 1 byte a second to its host."""
    return Machine(
        name="example",
        devices=(
            Device(name="d", kind=kind, memory_bytes=10**6, sources=INVENTED),
            Device(name="host", kind=DeviceKind.HOST, memory_bytes=10**6, sources=INVENTED),
        ),
        links=(Link(name="out", latency_s=0.0, bandwidth_bytes_per_s=1.0, sources=LINK_SOURCES),),
        routes=(Route(source="d", destination="host", links=("out",)),),
    )


class Step:
    """A builder with device, host, two compute streams and a copy stream at hand."""

    def __init__(self):
        self.builder = PlanBuilder()
        self.d, self.host = self.builder.device("d"), self.builder.device("host")
        self.s0, self.s1 = self.builder.stream("s0", self.d), self.builder.stream("s1", self.d)
        self.d2h = self.builder.stream("d2h", self.d, role="d2h")

    def compute(self, kind="F", stream=None, **columns):
        return self.builder.compute(self.builder.work(kind), self.s0 if stream is None else stream, **columns)

    def copy(self, size_bytes, **columns):
        source, target = self.builder.buffer(size_bytes, self.d), self.builder.buffer(size_bytes, self.host)
        return self.builder.copy(source, target, self.d2h, **columns)

    def sync(self, kind="sync", **columns):
        return self.builder.host(self.builder.work(kind), **columns)

    def ran(self, *times_s):
        """The plan, and a measured timeline with a (start, end) for each row."""
        plan = self.builder.build()
        start_s, end_s = np.array(times_s, np.float64).reshape(-1, 2).T
        return Timeline.of(plan, start_s, end_s, "measured"), plan


def test_a_lane_is_busy_for_its_share_of_the_makespan_and_an_idle_lane_for_none():
    step = Step()
    step.compute()
    step.compute()
    step.compute(stream=step.s1)

    timeline, plan = step.ran((0, 1), (3, 4), (1, 8))

    assert report(timeline, plan).busy == {"d s0": 0.25, "d s1": 0.875, "d d2h": 0.0, "main": 0.0}


def test_recorded_spans_that_overlap_on_a_lane_keep_it_busy_once():
    """
    s0  0000
          1111
           2
    """
    step = Step()
    for _ in range(3):
        step.compute()

    timeline, plan = step.ran((0, 4), (2, 6), (3, 4))

    assert report(timeline, plan).busy["d s0"] == 1.0


def test_a_lane_that_never_rests_is_busy_for_no_more_than_all_of_the_time():
    """These 50 seconds, summed, come to 1 + 2e-16 of the makespan."""
    step = Step()
    ends_s = np.cumsum(np.random.default_rng(5).random(50))
    for _ in ends_s:
        step.compute()

    timeline, plan = step.ran(*zip([0, *ends_s], ends_s, strict=False))

    assert report(timeline, plan).busy["d s0"] == 1.0


def test_a_transfer_is_exposed_while_nothing_computes_on_any_stream():
    """
    s0   FFFF      GG
    s1     HHH
    d2h    CCCCCCCCCCCC    of 12 seconds 3 are behind F and H, 2 behind G
    """
    step = Step()
    step.compute()
    step.compute(stream=step.s1)
    step.copy(1)
    step.compute()

    timeline, plan = step.ran((0, 4), (2, 5), (2, 14), (10, 12))

    assert report(timeline, plan).exposed_transfer_s == 7.0


def test_two_transfers_at_once_are_exposed_once():
    step = Step()
    step.copy(1)
    step.copy(1)

    timeline, plan = step.ran((0, 4), (1, 6))

    assert report(timeline, plan).exposed_transfer_s == 6.0


def test_samples_per_second_need_a_batch():
    step = Step()
    step.compute()

    timeline, plan = step.ran((0, 0.5))

    assert report(timeline, plan, batch=32).samples_per_s == 64.0
    assert report(timeline, plan).samples_per_s is None


def in_steps(*steps):
    """A kernel for each (start, end); those of a step follow its mark."""
    step = Step()
    for number, times_s in enumerate(steps):
        rows = [step.compute() for _ in times_s]
        step.builder.mark(f"step {number}", rows[0])
    return step.ran(*(pair for times_s in steps for pair in times_s))


def test_the_period_is_the_mean_over_the_later_half_of_the_steps():
    """
    step  0     1   2 3
    s0    000000111122333     steps end at 6, 10, 12 and 15: the later half takes 2 and 3
    """
    timeline, plan = in_steps([(0, 4), (4, 6)], [(6, 10)], [(10, 12)], [(12, 15)])

    assert report(timeline, plan).period_s == 2.5


def test_of_two_steps_the_period_is_what_the_second_adds():
    timeline, plan = in_steps([(0, 4)], [(4, 7)])

    assert report(timeline, plan).period_s == 3.0


def test_a_step_ends_when_all_rows_up_to_then_have_ended():
    """The first row of step 0 outlives step 1, which adds nothing; step 2 adds 2."""
    timeline, plan = in_steps([(0, 9), (0, 1)], [(1, 2)], [(2, 11)])

    assert report(timeline, plan).period_s == 2.0


@pytest.mark.parametrize("steps", [[], [[(0, 4)]]], ids=["no mark", "one mark"])
def test_less_than_two_steps_have_no_period(steps):
    timeline, plan = in_steps(*steps)

    assert report(timeline, plan).period_s is None


def test_marks_may_come_in_any_order_and_those_of_one_row_are_one_after_the_other():
    step = Step()
    rows = [step.compute() for _ in range(3)]
    for name, row in (("c", rows[2]), ("a", rows[0]), ("b", rows[2])):
        step.builder.mark(name, row)
    timeline, plan = step.ran((0, 1), (1, 3), (3, 7))

    assert report(timeline, plan).period_s == 4.0


def test_what_lies_between_recorded_steps_counts_and_their_ends_are_no_steps_of_their_own():
    """Two profiler steps of 4 with a gap of 3 before the second and of 5 before the third: 9 is the later half.

    mark    1    end     2    end        3    end
    s0      1111   gap   2222    gap     3333
    """
    step = Step()
    for number in (1, 2, 3):
        step.builder.mark(f"ProfilerStep#{number}", step.sync("begin"))
        step.compute()
        step.builder.mark(end_mark(f"ProfilerStep#{number}"), step.sync("end"))
        step.compute("gap")

    timeline, plan = step.ran(
        *[(0, 0), (0, 4), (4, 4), (4, 7)],
        *[(7, 7), (7, 11), (11, 11), (11, 16)],
        *[(16, 16), (16, 20), (20, 20), (20, 29)],
    )

    assert report(timeline, plan).period_s == 9.0


def test_the_period_of_a_recording_is_the_mean_of_its_last_steps(data_dir):
    """Six profiler steps of ResNet-50, of 116 to 182 ms, which follow each other without a pause."""
    trace = read_kineto(data_dir / "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz")
    rebuilt = rebuild(trace)
    costs = RecordedCosts(seconds=rebuilt.seconds, launch_s=rebuilt.launch_s)

    found = report(simulate(rebuilt.plan, machine_of(trace), costs), rebuilt.plan)

    assert found.period_s == pytest.approx(np.mean([step.measured_s for step in rebuilt.steps[3:]]), rel=0.02)


def test_throughput_goes_by_the_period_where_there_is_one():
    timeline, plan = in_steps([(0, 6)], [(6, 8)])

    assert report(timeline, plan, batch=8).samples_per_s == 4.0


def test_steps_that_add_no_time_have_no_throughput():
    timeline, plan = in_steps([(0, 6)], [(0, 1)])

    assert report(timeline, plan, batch=8).samples_per_s is None


def test_peak_bytes_are_those_of_the_plan():
    """A buffer of 40 is swapped out and leaves; the 2 of an input stay on the device from the start."""
    step = Step()
    builder = step.builder
    builder.buffer(2, step.d)
    x = builder.buffer(40, step.d, owner=step.s0)
    there = builder.buffer(40, step.host)
    step.compute(writes=[x], allocates=[x])
    builder.swap_out(x, there, step.d2h)
    builder.release([x], step.s0)

    timeline, plan = step.ran((0, 1), (1, 2), (2, 2))

    assert report(timeline, plan).peak_bytes == {"d": 42, "host": 40}


def test_an_empty_plan_has_a_report_of_zeros():
    timeline, plan = Step().ran()

    found = report(timeline, plan, batch=8)

    assert (found.makespan_s, found.samples_per_s, found.critical_path) == (0.0, None, ())
    assert set(found.busy.values()) == {0.0}


def test_a_timeline_of_another_plan_is_refused():
    step = Step()
    step.compute()
    timeline, _ = step.ran((0, 1))
    _, other = Step().ran()

    with pytest.raises(StepsimError, match="timeline is of plan"):
        report(timeline, other)


def test_the_critical_path_crosses_streams_where_a_dependency_does():
    """
    s0   F0--      F1--
    s1   G
    d2h      copy--
    """
    step = Step()
    first = step.compute()
    step.compute("G", stream=step.s1)
    out = step.copy(3, after=[first])
    last = step.compute(after=[out])
    plan = step.builder.build()

    timeline = simulate(plan, machine(), GivenCosts(seconds={"F": 2.0, "G": 1.0}))

    found = report(timeline, plan)
    assert found.critical_path == (first, out, last)
    assert found.critical_s == {"compute": 4.0, "copy": 3.0}


def test_the_critical_path_follows_a_thread_that_waits():
    """A host row waits for the stream; the next kernel, on a stream of its own, is issued when it is done."""
    step = Step()
    first = step.compute()
    sync = step.sync(after=[first])
    step.copy(1)
    last = step.compute(stream=step.s1)
    plan = step.builder.build()

    timeline = simulate(plan, machine(), GivenCosts(seconds={"F": 2.0, "sync": 1.0}))

    assert critical_path(timeline, plan).tolist() == [first, sync, last]


def test_the_critical_path_of_a_cpu_is_its_issue_order():
    """On a CPU every row runs on the thread that issues it, whatever its stream."""
    step = Step()
    step.compute()
    step.copy(3)
    step.compute(stream=step.s1)
    plan = step.builder.build()

    timeline = simulate(plan, machine(DeviceKind.CPU), GivenCosts(seconds={"F": 2.0}))

    assert critical_path(timeline, plan).tolist() == [0, 1, 2]


def test_the_critical_path_of_a_receive_goes_on_at_what_its_send_waited_for():
    """
    a   F-----S--
    b   G--   R--B---
    """
    builder = PlanBuilder()
    a, b = (builder.device(name, process=process) for process, name in enumerate("ab"))
    for process, name in enumerate(("main a", "main b")):
        builder.thread(name, process=process)
    on_a, on_b = builder.stream("s", a), builder.stream("s", b)
    x, y, group = builder.buffer(2, a, owner=on_a), builder.buffer(2, b, owner=on_b), builder.group()
    early = builder.compute(builder.work("F"), on_a, writes=[x], allocates=[x])
    builder.compute(builder.work("G"), on_b, thread=1)
    builder.send(x, b, on_a, group)
    receive = builder.receive(y, a, on_b, group, allocates=[y], thread=1)
    last = builder.compute(builder.work("B"), on_b, reads=[y], thread=1)
    plan = builder.build()
    times_s = np.array([(0, 6), (0, 3), (6, 9), (6, 9), (9, 13)], np.float64)

    timeline = Timeline.of(plan, *times_s.T, "measured")

    assert critical_path(timeline, plan).tolist() == [early, receive, last]


def test_the_critical_path_ends_even_where_rows_without_duration_wait_in_a_ring():
    """The receive is issued before F, and its send after F; all three begin and end at one instant."""
    builder = PlanBuilder()
    a, b = builder.device("a"), builder.device("b")
    to, compute, back = builder.stream("to", b), builder.stream("s", a), builder.stream("from", a)
    x, y, group = builder.buffer(0, a, owner=compute), builder.buffer(0, b, owner=to), builder.group()
    receive = builder.receive(y, a, to, group, allocates=[y])
    early = builder.compute(builder.work("F"), compute, writes=[x], allocates=[x])
    builder.send(x, b, back, group)
    plan = builder.build()
    instant_s = np.array([5.0, 5.0, 5.0])

    timeline = Timeline.of(plan, instant_s, instant_s, "measured")

    assert critical_path(timeline, plan).tolist() == [early, receive]


def test_what_the_critical_path_lacks_to_the_makespan_is_waiting():
    """
    main  LLLLLLLLL        each launch takes 3, each kernel 1
    s0       F  F  F
    """
    step = Step()
    for _ in range(3):
        step.compute()
    plan = step.builder.build()

    timeline = simulate(plan, machine(), GivenCosts(seconds={"F": 1.0}, launch_s=3.0))

    found = report(timeline, plan)
    assert found.makespan_s == 10.0
    assert found.critical_path == (0, 1, 2)
    assert found.critical_s == {"compute": 3.0}


def test_where_measured_clocks_disagree_each_instant_of_the_path_counts_once():
    """The copy starts at 4 by its clock, before the kernel that it waits for has ended by its own."""
    step = Step()
    first = step.compute()
    out = step.copy(1, after=[first])

    timeline, plan = step.ran((0, 5), (4, 8))

    found = report(timeline, plan)
    assert found.critical_path == (first, out)
    assert found.critical_s == {"compute": 5.0, "copy": 3.0}


def test_trust_is_the_share_of_busy_seconds_by_origin():
    step = Step()
    step.compute("F")
    step.compute("G")
    step.copy(1)
    timeline, plan = step.ran((0, 3), (3, 4), (4, 8))
    zeros = np.zeros(3)
    origin = np.array([Origin.ROOFLINE, Origin.MEASURED, Origin.MEASURED], np.int8)
    table = CostTable(
        seconds=zeros,
        launch_s=zeros,
        latency_s=zeros,
        rate_cap_bytes_per_s=zeros + np.inf,
        fixed=zeros > 0,
        sm_share=zeros,
        bandwidth_share=zeros,
        spread=zeros,
        origin=origin,
    )

    shares = trust(plan, TaskCosts(np.arange(3, dtype=np.int32), table), timeline)

    assert shares == {"measured": 0.625, "roofline": 0.375}
    assert list(shares) == ["measured", "roofline"]


@st.composite
def plans(draw):
    """Kernels on two streams, copies out, and host rows, each after any of the rows before it."""
    step = Step()
    for row in range(draw(st.integers(1, 12))):
        after = draw(st.lists(st.integers(0, row - 1), max_size=2)) if row else []
        match draw(st.sampled_from(["kernel", "side", "copy", "blocking copy", "host"])):
            case "kernel":
                step.compute("F", after=after)
            case "side":
                step.compute("G", stream=step.s1, after=after)
            case "host":
                step.sync(after=after)
            case copy:
                step.copy(draw(st.integers(0, 5)), after=after, blocks_thread=copy != "copy")
    return step.builder.build()


seconds = st.floats(0, 10)
costs = st.builds(
    lambda f, g, sync, launch_s: GivenCosts(seconds={"F": f, "G": g, "sync": sync}, launch_s=launch_s),
    seconds,
    seconds,
    seconds,
    st.sampled_from([0.0, 0.5]),
)


@given(plans(), costs)
def test_shares_and_exposed_time_stay_within_the_run(plan, costs):
    timeline = simulate(plan, machine(), costs)

    found = report(timeline, plan)

    moving_s = found.busy["d d2h"] * found.makespan_s
    assert all(0 <= share <= 1 for share in found.busy.values())
    assert 0 <= found.exposed_transfer_s <= moving_s * (1 + 1e-9)


@given(plans(), costs)
def test_the_critical_path_ends_at_the_makespan_and_never_runs_two_rows_at_once(plan, costs):
    timeline = simulate(plan, machine(), costs)

    found = report(timeline, plan)

    path = list(found.critical_path)
    starts, ends = timeline.spans.start_s[path], timeline.spans.end_s[path]
    assert ends[-1] == found.makespan_s
    assert (ends[:-1] <= starts[1:]).all()
    assert sum(found.critical_s.values()) <= found.makespan_s * (1 + 1e-9)


@given(plans(), costs)
def test_without_launch_costs_the_critical_path_explains_all_of_the_makespan(plan, costs):
    """One copy stream never waits for its engine, so each row starts when something on the path ends."""
    free = GivenCosts(seconds=costs.seconds)

    timeline = simulate(plan, machine(), free)

    found = report(timeline, plan)
    assert sum(found.critical_s.values()) == pytest.approx(found.makespan_s, rel=1e-9)


@given(plans(), st.data())
def test_whatever_was_measured_the_critical_path_is_no_longer_than_the_run(plan, data):
    times_s = data.draw(st.lists(st.tuples(seconds, seconds), min_size=len(plan), max_size=len(plan)))
    start_s, end_s = np.sort(np.array(times_s), axis=1).T

    found = report(Timeline.of(plan, start_s, end_s, "measured"), plan)

    assert len(set(found.critical_path)) == len(found.critical_path)
    assert sum(found.critical_s.values()) <= found.makespan_s * (1 + 1e-9)
    assert all(0 <= share <= 1 for share in found.busy.values())
