"""The four cases that the types must carry, written by hand and simulated against makespans worked out on paper.

A link moves 1 byte per second unless a test says otherwise.
"""

from collections import deque

import numpy as np
import pytest
from small_machines import RowCosts, gpus

from stepsim.costmodels.given import GivenCosts
from stepsim.errors import OutOfMemoryError
from stepsim.memory import check_memory, memory_profile
from stepsim.plan import TaskKind
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate


class Home:
    """HOME's policy for a chain of layers on one compute stream and one copy stream a direction.

    ``used_bytes`` counts the device; `room` writes the paper's first-in first-out wait for swapped-out tensors.
    """

    def __init__(self, limit_bytes, size_bytes):
        self.builder = builder = PlanBuilder()
        self.gpu, self.cpu = builder.device("gpu0"), builder.device("host")
        self.compute = builder.stream("compute", self.gpu)
        self.d2h = builder.stream("d2h", self.gpu, role="d2h")
        self.h2d = builder.stream("h2d", self.gpu, role="h2d")
        self.limit_bytes, self.size_bytes = limit_bytes, size_bytes
        self.used_bytes = 0
        self.outstanding = deque()
        self.on_host = {}

    def given(self, name):
        """A tensor that is there from the start."""
        self.used_bytes += self.size_bytes
        return self.builder.buffer(self.size_bytes, self.gpu, role="input", name=name)

    def room(self):
        """Room for one more tensor: wait for swap-outs, oldest first. IndexError: nothing outstanding, infeasible."""
        while self.used_bytes + self.size_bytes > self.limit_bytes:
            self.builder.release([self.outstanding.popleft()], self.compute)
            self.used_bytes -= self.size_bytes

    def new(self, name, role="activation"):
        self.room()
        self.used_bytes += self.size_bytes
        return self.builder.buffer(self.size_bytes, self.gpu, owner=self.compute, name=name, role=role)

    def run(self, kind, work, reads, output, releases=()):
        self.last_row = self.builder.add(
            kind,
            stream=self.compute,
            work=self.builder.work(work),
            reads=reads,
            writes=[output],
            allocates=[output],
            releases=releases,
        )
        self.used_bytes -= self.size_bytes * len(releases)
        return output

    def swap_out(self, x):
        """Behind the last reader of ``x``, which is the last row that ran."""
        self.on_host[x] = self.builder.buffer(self.size_bytes, self.cpu, name="on host")
        self.builder.swap_out(x, self.on_host[x], self.d2h, after=[self.last_row])
        self.outstanding.append(x)

    def swap_in(self, x, name):
        again = self.new(name)
        self.builder.swap_in(self.on_host[x], again, self.h2d)
        return again


def home(limit_bytes):
    """Four layers of 2-byte tensors: swap y0, recompute y1, keep y2 and y3."""
    step = Home(limit_bytes, size_bytes=2)
    forward, again, gradient = TaskKind.COMPUTE, TaskKind.RECOMPUTE, "gradient"
    x = step.given("x")
    y0 = step.run(forward, "F", [x], step.new("y0"))
    y1 = step.run(forward, "F", [y0], step.new("y1"))
    step.swap_out(y0)
    y2 = step.run(forward, "F", [y1], step.new("y2"), releases=[y1])
    y3 = step.run(forward, "F", [y2], step.new("y3"))
    g3 = step.run(forward, "B", [y3], step.new("g3", gradient), releases=[y3])
    y0 = step.swap_in(y0, "y0'")
    g2 = step.run(forward, "B", [y2, g3], step.new("g2", gradient), releases=[y2, g3])
    y1 = step.run(again, "F", [y0], step.new("y1'"))
    g1 = step.run(forward, "B", [y1, g2], step.new("g1", gradient), releases=[y1, g2])
    step.run(forward, "B", [y0, g1], step.new("g0", gradient), releases=[y0, g1])
    return step.builder.build()


def test_home_swaps_recomputes_and_waits_for_room():
    """F = 1, B = 2, a copy takes 8. The release before B2 waits for the swap-out; F1 is recomputed behind the swap-in.

    compute  F0 F1 F2 F3 B3 ......... r B2 ....... F1 B1    B0
             0  1  2  3  4            10           18 19    21 -> 23
    d2h            out y0 [2, 10]
    h2d                                 in y0 [10, 18]
    """
    plan = home(limit_bytes=10)

    timeline = simulate(plan, gpus(bandwidth_bytes_per_s=0.25), GivenCosts(seconds={"F": 1.0, "B": 2.0}))

    starts_s = [(span.name, span.start_s) for span in timeline]
    assert starts_s == [
        ("F y0", 0.0),
        ("F y1", 1.0),
        ("swap out on host", 2.0),
        ("F y2", 2.0),
        ("F y3", 3.0),
        ("B g3", 4.0),
        ("swap in y0'", 10.0),
        ("release y0", 10.0),
        ("B g2", 10.0),
        ("recompute F y1'", 18.0),
        ("B g1", 19.0),
        ("B g0", 21.0),
    ]
    assert timeline.makespan_s == 23.0


def test_home_keeps_the_limit_that_it_was_given_and_not_a_byte_less():
    plan = home(limit_bytes=10)

    check_memory(plan, {"gpu0": 10})

    with pytest.raises(OutOfMemoryError):
        check_memory(plan, {"gpu0": 9})


def test_home_has_no_room_left_when_nothing_is_outstanding():
    with pytest.raises(IndexError):
        home(limit_bytes=8)


class Rank:
    """A process with one gpu: a compute stream, and a stream for each peer and direction."""

    def __init__(self, builder, number, peers):
        self.builder, self.number = builder, number
        self.thread = builder.thread(f"rank {number}", process=number)
        self.gpu = builder.device(f"gpu{number}", process=number)
        self.compute = builder.stream("compute", self.gpu)
        self.to = {peer: builder.stream(f"to {peer}", self.gpu, role="send") for peer in peers}
        self.from_ = {peer: builder.stream(f"from {peer}", self.gpu, role="receive") for peer in peers}
        self.spent = {}

    def buffer(self, size_bytes, name, owner=None, **columns):
        owner = self.compute if owner is None else owner
        return self.builder.buffer(size_bytes, self.gpu, owner=owner, name=f"{name}@{self.number}", **columns)

    def run(self, work, reads=(), writes=(), allocates=(), releases=()):
        return self.builder.compute(
            self.builder.work(work),
            self.compute,
            thread=self.thread,
            reads=reads,
            writes=writes,
            allocates=allocates,
            releases=releases,
        )

    def send(self, buffer, other, group, **columns):
        self.builder.send(buffer, other.gpu, self.to[other.number], group, thread=self.thread, **columns)

    def receive(self, size_bytes, name, other, group):
        """Into a buffer of the receiving stream, so that it does not wait for what is computed meanwhile."""
        stream = self.from_[other.number]
        buffer = self.buffer(size_bytes, name, owner=stream)
        self.builder.receive(buffer, other.gpu, stream, group, thread=self.thread, allocates=[buffer])
        return buffer

    def spend(self, buffer, stream):
        """Release what was spent on ``stream`` before; at once, the stream would stand until the last user is done."""
        self.release(stream)
        self.spent[stream] = buffer

    def release(self, stream):
        if stream in self.spent:
            self.builder.release([self.spent.pop(stream)], stream, thread=self.thread)


def one_f_one_b(num_microbatches=4):
    """Two stages; the first is replicated on ranks 0 and 1, each takes half of a microbatch; rank 2 is the second.

    ranks 0, 1   F0 F1 B0 F2 B1 F3 B2 B3
    rank 2       F0 B0 F1 B1 F2 B2 F3 B3
    """
    builder = PlanBuilder()
    firsts = [Rank(builder, 0, [2]), Rank(builder, 1, [2])]
    last = Rank(builder, 2, [0, 1])
    ranks = (*firsts, last)
    weights = {rank: builder.buffer(1, rank.gpu, role="parameter", name=f"W@{rank.number}") for rank in ranks}
    sums = {rank: rank.buffer(1, "sum", role="gradient") for rank in ranks}
    activations, halves, gradients = {}, {}, {}

    def forward(k):
        for rank in firsts:
            y = activations[rank, k] = rank.buffer(1, f"y{k}", microbatch=k)
            rank.run("F first", [weights[rank]], [y], [y])
            group = builder.group()
            rank.send(y, last, group)
            halves[rank, k] = last.receive(1, f"half{k} of {rank.number}", rank, group)

    def both_of_last(k):
        """Concatenate what arrived, forward, backward, and send each half of the gradient back."""
        x, dx = last.buffer(2, f"x{k}", microbatch=k), last.buffer(2, f"dx{k}", role="gradient", microbatch=k)
        last.run("concat", [halves[rank, k] for rank in firsts], [x], [x])
        for rank in firsts:
            last.spend(halves[rank, k], last.from_[rank.number])
        z = last.buffer(2, f"z{k}", microbatch=k)
        last.run("F last", [x, weights[last]], [z], [z])
        dw = last.buffer(1, f"dW{k}", role="gradient", microbatch=k)
        last.run("B last", [x, z, weights[last]], [dx, dw], [dx, dw], [x, z])
        add(last, dw)
        last.spend(dx, last.compute)
        for part, rank in enumerate(firsts):
            group = builder.group()
            last.send(dx, rank, group, work=builder.work("narrow", shapes=f"half {part}"), size_bytes=1)
            gradients[rank, k] = rank.receive(1, f"dy{k}", last, group)

    def backward(k):
        for rank in firsts:
            dy, y = gradients[rank, k], activations[rank, k]
            dw = rank.buffer(1, f"dW{k}", role="gradient", microbatch=k)
            rank.run("B first", [dy, y, weights[rank]], [dw], [dw], [y])
            add(rank, dw)
            rank.spend(dy, rank.from_[last.number])

    def add(rank, gradient):
        rank.run("add", [sums[rank], gradient], [sums[rank]], releases=[gradient])

    for rank in ranks:
        rank.run("fill", writes=[sums[rank]], allocates=[sums[rank]])
    forward(0)
    forward(1)
    for k in range(num_microbatches):
        both_of_last(k)
        backward(k)
        if k + 2 < num_microbatches:
            forward(k + 2)
    group = builder.group()
    for rank in firsts:
        builder.collective(
            "all_reduce",
            [rank.gpu for rank in firsts],
            rank.compute,
            group,
            size_bytes=1,
            reads=[sums[rank]],
            writes=[sums[rank]],
            thread=rank.thread,
        )
    for rank in ranks:
        rank.run("update", [weights[rank], sums[rank]], [weights[rank]], releases=[sums[rank]])
        for stream in list(rank.spent):
            rank.release(stream)
    return builder.build()


ONE_F_ONE_B_S = {
    "F first": 1.0,
    "B first": 2.0,
    "F last": 1.0,
    "B last": 1.0,
    "concat": 0.0,
    "narrow": 0.0,
    "fill": 0.0,
    "add": 0.0,
    "all_reduce": 2.0,
    "update": 1.0,
}


def order_on(plan, device, kinds):
    tasks = [plan.task(row) for row in range(len(plan))]
    return [task.work for task in tasks if task.device == device and task.work in kinds]


def test_two_stages_with_a_replicated_first_one_run_one_forward_one_backward():
    """F = 1, B = 2 on the first stage; F = B = 1 on the last; a message takes 1, the all-reduce 2, an update 1.

    first    F0 F1 .  .  .  B0    F2 B1    F3 B2    .  B3    A     U
             0  1           5     7  8     10 12       15    17    19 -> 20
    to last     0  1                 2        3
                1  2                 8        11
    last           F0 B0 F1 B1          F2 B2    F3 B3 U
                   2  3  4  5           9  10    12 13 14
    to first             0     1              2        3
                         4     6              11       14
    """
    plan = one_f_one_b()

    timeline = simulate(plan, gpus(3), GivenCosts(seconds=ONE_F_ONE_B_S))

    def starts_s(lane, work):
        return [span.start_s for span in timeline if span.lane == lane and span.name.startswith(work)]

    assert order_on(plan, "gpu0", ("F first", "B first")) == [f"{each} first" for each in "FFBFBFBB"]
    assert order_on(plan, "gpu2", ("F last", "B last")) == [f"{each} last" for each in "FBFBFBFB"]
    for rank in (0, 1):
        assert starts_s(f"gpu{rank} compute", "F first") == [0.0, 1.0, 7.0, 10.0]
        assert starts_s(f"gpu{rank} compute", "B first") == [5.0, 8.0, 12.0, 15.0]
        assert starts_s(f"gpu{rank} to 2", "send") == [1.0, 2.0, 8.0, 11.0]
        assert starts_s(f"gpu2 to {rank}", "send") == [4.0, 6.0, 11.0, 14.0]
        assert starts_s(f"gpu{rank} compute", "update") == [19.0]
    assert starts_s("gpu2 compute", "F last") == [2.0, 4.0, 9.0, 12.0]
    assert starts_s("gpu2 compute", "update") == [14.0]
    assert timeline.makespan_s == 20.0


def test_the_pipeline_gives_back_all_but_its_weights():
    profile = memory_profile(one_f_one_b())

    assert profile.resident.initial.tolist() == [1, 1, 1]
    assert [profile.by_row(device)[1][-1] for device in profile.plan.devices.name] == [1, 1, 1]


def test_processes_of_the_pipeline_meet_only_in_groups():
    plan = one_f_one_b()
    process, waits = plan.process_of_rows(), plan.tasks.dependencies

    assert set(process.tolist()) == {0, 1, 2}
    assert np.array_equal(process[waits.owners()], process[waits.values])


def recorded_step():
    """What a profiler recorded of one step on two host threads, with the price of each row beside it."""
    builder, seconds, launch_s = PlanBuilder(), [], []
    main, autograd = builder.thread("main"), builder.thread("autograd")
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, h2d = builder.stream("stream 7", gpu), builder.stream("stream 14", gpu, role="h2d")
    nccl = builder.stream("stream 20", gpu, role="collective")

    def row(number, takes_s, launched_s=0.0):
        seconds.append(takes_s)
        launch_s.append(launched_s)
        return number

    def gap(thread, takes_s, after=()):
        return row(builder.host(builder.work("gap"), thread=thread, after=after), takes_s)

    def kernel(thread, takes_s, launched_s, after=()):
        return row(builder.compute(builder.work("kernel"), compute, thread=thread, after=after), takes_s, launched_s)

    builder.mark("step", gap(main, 2.0))
    copied = row(
        builder.add(TaskKind.COPY, stream=h2d, thread=main, route=(host, gpu), size_bytes=9, blocks_thread=True),
        3.0,
        1.0,
    )
    forward = kernel(main, 4.0, 1.0, after=[copied])
    given = gap(main, 1.0)
    begun = gap(autograd, 0.5, after=[given])
    backward = kernel(autograd, 5.0, 1.0)
    group = builder.group()
    row(
        builder.collective("nccl", [gpu], nccl, group, size_bytes=100, thread=autograd, after=[backward]),
        2.5,
        0.5,
    )
    done = gap(autograd, 0.0)
    gap(main, 1.0, after=[done])
    builder.mark("end", gap(main, 0.0, after=[backward]))
    fixed = RowCosts(seconds=seconds, launch_s=launch_s, fixed=True)
    return builder.build(), fixed, {"forward": forward, "begun": begun, "backward": backward}


def test_a_recorded_step_replays_with_gaps_launches_waits_and_the_autograd_thread():
    """A pageable copy holds the main thread; it waits for autograd; its last row synchronises with stream 7.

    main       gap  L copy      L  gap  ..........  gap ........ |
               0    2 3......6  6  7    8           10  11       16
    autograd                            gap L  L  |
                                        8   8.5 9.5 10
    stream 14         [3, 6]
    stream 7                       kernel [7, 11]  kernel [11, 16]
    stream 20                                              nccl [16, 18.5]
    """
    plan, costs, rows = recorded_step()

    timeline = simulate(plan, gpus(), costs)

    assert timeline.span(rows["forward"]).start_s == 7.0
    assert timeline.span(rows["begun"]).start_s == 8.0
    assert timeline.span(rows["backward"]).start_s == 11.0
    assert dict(zip(timeline.marks.name, timeline.marks.time_s.tolist(), strict=True)) == {"step": 0.0, "end": 16.0}
    assert timeline.makespan_s == 18.5


TENSOR_BYTES, GRADIENT_BYTES, WORKSPACE_BYTES = 10, 1, 4


def turbodl(release_early):
    """Three layers. Data gradients stay on the critical stream s0; filter gradients, with workspace, go to s1.

    What both read is released on s0, its owner: behind the data gradient of its layer (early), or at the end (late).
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu, priority=1), builder.stream("s1", gpu)
    x = [builder.buffer(TENSOR_BYTES, gpu, role="input", name="x0")]
    for layer in (1, 2, 3):
        x.append(builder.buffer(TENSOR_BYTES, gpu, owner=s0, name=f"x{layer}"))
        builder.compute(builder.work("F"), s0, reads=[x[-2]], writes=[x[-1]], allocates=[x[-1]])
    dy = builder.buffer(TENSOR_BYTES, gpu, owner=s0, name="dy3", role="gradient")
    builder.compute(builder.work("loss"), s0, reads=[x[3]], writes=[dy], allocates=[dy], releases=[x[3]])
    left = []
    for layer in (3, 2, 1):
        spent = [dy] if layer == 1 else [x[layer - 1], dy]
        dw = builder.buffer(GRADIENT_BYTES, gpu, owner=s1, name=f"dW{layer}", role="gradient")
        workspace = builder.buffer(WORKSPACE_BYTES, gpu, owner=s1, name=f"workspace{layer}", role="workspace")
        inputs = [x[layer - 1], dy]
        if layer > 1:
            dy = builder.buffer(TENSOR_BYTES, gpu, owner=s0, name=f"dy{layer - 1}", role="gradient")
            builder.compute(builder.work("BD"), s0, reads=inputs[1:], writes=[dy], allocates=[dy])
        builder.compute(
            builder.work(f"BW{layer}"),
            s1,
            reads=inputs,
            writes=[dw, workspace],
            allocates=[dw, workspace],
            releases=[workspace],
        )
        if release_early:
            builder.release(spent, s0)
        else:
            left += spent
    if left:
        builder.release(left, s0)
    return builder.build()


TURBODL_COSTS = GivenCosts(
    seconds={"F": 1.0, "loss": 1.0, "BD": 1.0, "BW3": 3.0, "BW2": 0.5, "BW1": 0.5},
    sm_share={"BD": 0.5, "BW3": 0.5, "BW2": 0.5, "BW1": 0.5},
)


def test_turbodl_releases_late_and_keeps_the_critical_stream_running():
    """
    s0   F  F  F  L  BD3 BD2 .......r
         0  1  2  3  4   5           8
    s1               BW3      BW2 BW1
                     4        7   7.5 -> 8
    """
    timeline = simulate(turbodl(release_early=False), gpus(), TURBODL_COSTS)

    assert [span.start_s for span in timeline if span.lane == "gpu0 s1"] == [4.0, 7.0, 7.5]
    assert timeline.makespan_s == 8.0


def test_turbodl_releases_early_and_stalls_the_critical_stream():
    """The release behind BD3 waits for BW3, and so BD2 and BW1 come later.

    s0   F  F  F  L  BD3 ......r BD2
         0  1  2  3  4         7 7
    s1               BW3         BW2  BW1
                     4           7    8 -> 8.5
    """
    timeline = simulate(turbodl(release_early=True), gpus(), TURBODL_COSTS)

    assert [span.start_s for span in timeline if span.lane == "gpu0 s1"] == [4.0, 7.0, 8.0]
    assert timeline.makespan_s == 8.5


@pytest.mark.parametrize(("release_early", "peak_bytes"), [(False, 67), (True, 55)])
def test_turbodl_pays_with_memory_for_what_it_saves_in_time(release_early, peak_bytes):
    """Resident while each row runs; x0 is there from the start, tensors are 10, dW 1, workspace 4.

           F1 F2 F3 L  BD3 BW3  r  BD2 BW2  r  BW1
    late   20 30 40 50 50  55      61  66      67
    early  20 30 40 50 50  55   51 41  46  42  27
    """
    assert memory_profile(turbodl(release_early)).peak_bytes("gpu0") == peak_bytes


def test_events_of_turbodl_are_the_waits_that_stream_order_does_not_imply():
    plan = turbodl(release_early=False)
    lane, waits = plan.lane_of_rows(), plan.tasks.dependencies

    assert (lane[waits.owners()] != lane[waits.values]).all()
    assert plan.streams.priority.tolist() == [1, 0]
