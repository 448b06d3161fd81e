"""What SuperNeurons moves, recomputes and keeps, in which order, and that it recomputes as often as its paper says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import small_networks
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import MACHINE, count, decisions, peak_bytes, propose
from random_workloads import workloads
from small_networks import without_saving
from small_workloads import accumulated, op, tensor

from stepsim.costmodels import GivenCosts
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.strategies.memory.prices import Prices, prices_of
from stepsim.strategies.memory.rows import Row
from stepsim.strategies.memory.schedule import Action
from stepsim.strategies.memory.superneurons import Offload, SuperNeurons
from stepsim.workloads import Phase, Role, Workload
from stepsim.workloads.shipped import load_workload
from stepsim.workloads.storage import every_output_kept

CONV, NORM, RELU, POOL = "aten.convolution", "norm", "aten.relu", "pool"
LINEAR, JOIN, CONCAT = "aten.addmm", "aten.add", "aten.cat"

PLENTY_BYTES = 10**12


def network(*kinds: str, size_bytes: Sequence[int] = (), joins: Mapping[int, int] | None = None) -> Workload:
    """A layer for each kind, then the loss; the backward op of a layer reads what the layer read and made.

    Tensors: 0 the input, i the output of layer i, counted from 1, then the loss, then the gradients from the last layer
    to that of the input. A layer in ``joins`` reads the output of the layer given there too.
    """
    n, sizes = len(kinds), size_bytes or [10] * len(kinds)
    reads = {layer: (layer - 1,) for layer in range(1, n + 1)} | {
        layer: (layer - 1, other) for layer, other in (joins or {}).items()
    }
    made = [tensor(f"x{i}", Role.ACTIVATION, size, saved=True) for i, size in enumerate(sizes, 1)]
    gradients = [tensor(f"g{i}", Role.GRADIENT, size) for i, size in reversed([*enumerate([0, *sizes])])]
    loss = tensor("loss", Role.ACTIVATION, 1, saved=True)
    forward = [replace(op(f"F{i}", Phase.FORWARD, reads[i], (i,)), kind=kind) for i, kind in enumerate(kinds, 1)]
    backward = [
        replace(op(f"B{i}", Phase.BACKWARD, (2 * n + 2 - i, i, *reads[i]), (2 * n + 3 - i,)), kind=f"{kind}_backward")
        for i, kind in reversed([*enumerate(kinds, 1)])
    ]
    return Workload(
        name="network",
        batch=1,
        tensors=(tensor("input", Role.INPUT, 0), *made, loss, *gradients),
        ops=(
            *forward,
            op("L", Phase.FORWARD, (n,), (n + 1,)),
            op("BL", Phase.BACKWARD, (n, n + 1), (n + 2,)),
            *backward,
        ),
        loss=n + 1,
    )


def prices(workload: Workload, op_s: float = 1.0) -> Prices:
    return prices_of(workload, MACHINE, GivenCosts(seconds={op.kind: op_s for op in workload.ops}))


def rows(strategy: SuperNeurons, workload: Workload, memory_bytes: int = PLENTY_BYTES) -> list[Row]:
    return strategy.rows(workload, prices(workload), memory_bytes)


def story(workload: Workload, found: list[Row]) -> str:
    """Computing by name of the op, recomputing as ``again``, and copies as ``out`` and ``in`` with the layer."""
    words = {TaskKind.SWAP_OUT: "out", TaskKind.SWAP_IN: "in", TaskKind.RECOMPUTE: "again"}
    return " ".join(
        workload.ops[row.subject].name
        if row.kind is TaskKind.COMPUTE
        else f"{words[row.kind]}{row.subject + (row.kind is TaskKind.RECOMPUTE)}"
        for row in found
        if row.kind is not TaskKind.RELEASE
    )


def backward_story(strategy: SuperNeurons, workload: Workload) -> str:
    return story(workload, rows(strategy, workload)).partition("BL ")[2]


def moved(strategy: SuperNeurons, workload: Workload, memory_bytes: int = PLENTY_BYTES, op_s: float = 1.0) -> list[int]:
    found = strategy.rows(workload, prices(workload, op_s), memory_bytes)
    return [row.subject for row in found if row.kind is TaskKind.SWAP_OUT]


def test_convolutions_are_moved_other_checkpoints_kept_and_the_rest_is_recomputed() -> None:
    """Layer 3 is read by 4 and 5, which joins; 6 concatenates."""
    workload = network(CONV, RELU, POOL, RELU, JOIN, CONCAT, RELU, LINEAR, joins={5: 3})

    found = decisions(propose(SuperNeurons(offload="all"), workload, PLENTY_BYTES).plan)

    assert found == {1: Action.SWAP, 2: Action.RECOMPUTE, 4: Action.RECOMPUTE, 7: Action.RECOMPUTE}


def test_a_speed_centric_segment_is_recomputed_once_and_stays() -> None:
    workload = network(CONV, NORM, RELU, POOL, CONV)

    found = backward_story(SuperNeurons(segments="speed"), workload)

    assert found == "again2 again3 again4 B5 B4 B3 B2 B1"


def test_a_memory_centric_segment_is_recomputed_for_every_layer_from_its_checkpoint() -> None:
    """n (n + 1) / 2 times: what the layer above read is still there for the layer that made it."""
    workload = network(CONV, NORM, RELU, POOL, CONV)

    found = backward_story(SuperNeurons(segments="memory"), workload)

    assert found == "again2 again3 again4 B5 again2 again3 B4 again2 B3 B2 B1"


def test_a_memory_centric_segment_takes_less_memory_and_more_time() -> None:
    workload = network(CONV, *[NORM] * 6, CONV)

    speed, memory = (propose(SuperNeurons(segments=kind), workload, PLENTY_BYTES) for kind in ("speed", "memory"))

    assert speed.predicted_peak_bytes > memory.predicted_peak_bytes
    assert (speed.predicted_s, memory.predicted_s) == (len(workload.ops) + 6, len(workload.ops) + 6 * 7 / 2)


@pytest.mark.parametrize(("pool_bytes", "expected"), [(10, 2), (11, 3)])
def test_a_segment_stays_if_it_takes_no_more_than_the_largest_layer(pool_bytes: int, expected: int) -> None:
    """20 + 10 + pool of data and 10 + pool of gradients, against 20 + 10 of data and as much of gradients."""
    workload = network(CONV, NORM, POOL, CONV, size_bytes=[20, 10, pool_bytes, 1])

    found = propose(SuperNeurons(), workload, PLENTY_BYTES)

    assert count(found, TaskKind.RECOMPUTE) == expected


ALEXNET = (
    *((CONV, 96 * 55**2), (RELU, 96 * 55**2), (NORM, 96 * 55**2), (POOL, 96 * 27**2)),
    *((CONV, 256 * 27**2), (RELU, 256 * 27**2), (NORM, 256 * 27**2), (POOL, 256 * 13**2)),
    *((CONV, 384 * 13**2), (RELU, 384 * 13**2), (CONV, 384 * 13**2), (RELU, 384 * 13**2)),
    *((CONV, 256 * 13**2), (RELU, 256 * 13**2), (POOL, 256 * 6**2)),
    *((LINEAR, 4096), (RELU, 4096), ("dropout", 4096), (LINEAR, 4096), (RELU, 4096), ("dropout", 4096)),
    (LINEAR, 1000),
)


@pytest.mark.parametrize(("segments", "expected"), [("speed", 14), ("memory", 23), ("cost-aware", 17)])
def test_alexnet_recomputes_as_often_as_in_the_paper(segments, expected: int) -> None:
    """Table 1 of the paper; only the segment of the first local normalisation is memory-centric by cost."""
    workload = network(*(kind for kind, _ in ALEXNET), size_bytes=[size for _, size in ALEXNET])

    found = rows(SuperNeurons(segments=segments), workload)

    assert sum(row.kind is TaskKind.RECOMPUTE for row in found) == expected


@pytest.mark.parametrize(("segments", "in_the_paper"), [("speed", 84), ("memory", 118), ("cost-aware", 85)])
def test_resnet_50_recomputes_as_often_as_in_the_paper(segments, in_the_paper: int) -> None:
    """Table 1 of the paper, whose count leaves no room for the four norms of the projections: one each."""
    workload = every_output_kept(load_workload("resnet50").at_batch(16))

    found = rows(SuperNeurons(segments=segments), workload)

    assert sum(row.kind is TaskKind.RECOMPUTE for row in found) == in_the_paper + 4


def test_an_output_leaves_when_it_was_made_and_is_asked_for_one_convolution_ahead() -> None:
    """The last two are needed at once when the way back begins."""
    workload = network(CONV, RELU, CONV, RELU, CONV, RELU, CONV)

    found = story(workload, rows(SuperNeurons(offload="all"), workload))

    assert found == (
        "F1 out1 F2 F3 out3 F4 F5 out5 F6 F7 out7 L in7 BL in5 again6 in3 B7 B6 again4 in1 B5 B4 again2 B3 B2 B1"
    )


def test_what_is_written_in_place_leaves_after_that() -> None:
    workload = network(CONV, RELU, CONV)
    in_place = replace(workload.ops[1], mutates=(1,))
    workload = replace(workload, ops=(workload.ops[0], in_place, *workload.ops[2:]))

    found = story(workload, rows(SuperNeurons(offload="all"), workload))

    assert found.startswith("F1 F2 out1 F3 out3 L")


def test_where_nobody_saves_the_output_of_a_convolution_what_is_made_of_it_leaves_instead() -> None:
    workload = without_saving(small_networks.network(CONV, RELU, CONV), 0)

    assert moved(SuperNeurons(offload="all"), workload) == [2, 3]


@pytest.mark.parametrize("op_s", [1.0, 4.0])
def test_copies_that_are_no_longer_than_layers_cost_only_what_is_needed_at_the_turn(op_s: float) -> None:
    """Nothing waits for the way out, and what came one convolution ahead is there; of 1 s each, two were not ahead."""
    workload = network(*[CONV] * 5)

    proposal = propose(SuperNeurons(offload="all"), workload, PLENTY_BYTES, op_s=op_s)

    assert proposal.predicted_s == len(workload.ops) * op_s + 2


def test_what_would_still_be_on_its_way_out_can_be_left_in() -> None:
    """Layers of 0.5 s, copies of 1 s: they are out at 1.5, 2.5, 3.5 and 4.5 s, and needed at 4.5, 3.5, 3 and 2.5 s."""
    workload = network(*[CONV] * 4)

    assert moved(SuperNeurons(offload="all"), workload, op_s=0.5) == [1, 2, 3, 4]
    assert moved(SuperNeurons(offload="in-time"), workload, op_s=0.5) == [1, 2]


@pytest.mark.parametrize("kind", [CONV, LINEAR])
def test_a_cache_moves_what_was_used_least_recently_and_only_as_much_as_room_is_lacking(kind: str) -> None:
    workload = network(*[kind] * 6)
    enough = peak_bytes(workload, {})

    found = [moved(SuperNeurons(), workload, enough - less) for less in (0, 1, 10, 11)]

    assert found == [[], [1], [1], [1, 2]]


def test_where_it_does_not_fit_all_segments_are_recomputed_for_every_layer() -> None:
    workload = network(CONV, *[NORM] * 6, CONV)
    least = propose(SuperNeurons(segments="memory"), workload, PLENTY_BYTES)

    found = propose(SuperNeurons(segments="speed"), workload, least.predicted_peak_bytes)

    assert found.feasible
    assert found.plan == least.plan


@pytest.mark.parametrize("offload", ["all", "in-time"])
def test_where_gradients_accumulate_each_pass_moves_what_one_alone_does_and_when(offload: Offload) -> None:
    """What a pass moves comes back one convolution ahead in its own backward pass, not in that of the pass before."""
    workload = network(CONV, RELU, CONV, RELU, CONV, RELU, CONV)
    strategy = SuperNeurons(offload=offload)

    alone, twice = (rows(strategy, accumulated(workload, passes)) for passes in (1, 2))

    def kinds(found: list[Row]) -> list[TaskKind]:
        return [row.kind for row in found if row.kind not in (TaskKind.RELEASE, TaskKind.RECOMPUTE)]

    assert kinds(twice) == 2 * kinds(alone)


def test_a_cache_moves_in_each_pass_what_lacks_room_there() -> None:
    """What the first pass made is gone by the second, so that moving it makes no room there."""
    workload = network(*[CONV] * 6)
    twice = accumulated(workload, 2)
    enough, again = peak_bytes(twice, {}), len(workload.tensors)

    found = [moved(SuperNeurons(), twice, enough - less) for less in (0, 1, 11)]

    assert found == [[], [1, again], [1, 2, again, again + 1]]


@st.composite
def networks(draw: st.DrawFn) -> Workload:
    """Random graphs of random kinds, run once or twice before the update."""
    workload = draw(workloads())
    kinds = st.sampled_from([CONV, NORM, RELU, LINEAR])
    ops = [replace(op, kind=draw(kinds)) if op.phase is Phase.FORWARD else op for op in workload.ops]
    return accumulated(replace(workload, ops=tuple(ops)), draw(st.integers(1, 2), label="passes"))


OPTIONS = st.builds(
    SuperNeurons,
    segments=st.sampled_from(["cost-aware", "speed", "memory"]),
    offload=st.sampled_from(["cache", "all", "in-time"]),
)


@settings(max_examples=100, deadline=None)
@given(workload=networks(), strategy=OPTIONS, share=st.floats(0, 1.2))
def test_any_graph_has_a_plan_that_keeps_its_word(workload: Workload, strategy: SuperNeurons, share: float) -> None:
    limit_bytes = int(share * peak_bytes(workload, {}))

    proposal = propose(strategy, workload, limit_bytes)

    assert proposal.predicted_peak_bytes == memory_profile(proposal.plan).peak_bytes("gpu0")
    assert proposal.feasible == (proposal.predicted_peak_bytes <= limit_bytes)


@settings(max_examples=100, deadline=None)
@given(workload=networks(), strategy=OPTIONS, share=st.floats(0, 1.2))
def test_more_room_never_makes_a_plan_infeasible(workload: Workload, strategy: SuperNeurons, share: float) -> None:
    limit_bytes = int(share * peak_bytes(workload, {}))
    proposal = propose(strategy, workload, limit_bytes)

    if proposal.feasible:
        assert propose(strategy, workload, limit_bytes + 10).feasible


@settings(max_examples=50, deadline=None)
@given(workload=networks(), share=st.floats(0, 1.2))
def test_with_a_cache_fits_what_fits_when_every_convolution_is_moved(workload: Workload, share: float) -> None:
    limit_bytes = int(share * peak_bytes(workload, {}))

    if propose(SuperNeurons(offload="all"), workload, limit_bytes).feasible:
        assert propose(SuperNeurons(), workload, limit_bytes).feasible
