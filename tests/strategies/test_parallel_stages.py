"""How a step is cut into stages, what crosses, and what tensor-parallel teams reduce."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parallel_steps import WIDTH, graphs, rows_of, tower
from small_machines import gpus

from stepsim.errors import PlanError
from stepsim.plan import TaskKind
from stepsim.strategies.parallel import Layout, lay_out
from stepsim.strategies.parallel.sharding import Shares, reduced_tensors
from stepsim.strategies.parallel.stages import cuts, stages_of_ops
from stepsim.strategies.parallel.traffic import stages_of
from stepsim.workloads import Phase
from stepsim.workloads.shapes import transformer
from stepsim.workloads.tape import Tape


def names(workload, tensors):
    return [workload.tensors[tensor].name for tensor in tensors]


def with_flop(workload, flop):
    """``workload`` whose forward ops have ``flop`` each."""
    ops = list(workload.ops)
    for index, count in enumerate(flop):
        ops[index] = replace(ops[index], flop=count)
    return replace(workload, ops=tuple(ops))


@pytest.mark.parametrize(
    ("flop", "begins"),
    [((1, 1, 1, 1), [0, 2]), ((1, 1, 1, 3), [0, 3]), ((5, 1, 1, 1), [0, 1]), ((9, 0, 0, 1), [0, 1])],
)
def test_stages_are_cut_where_the_flop_come_closest_to_their_share(flop, begins):
    assert cuts(with_flop(tower(len(flop)), flop), 2) == begins


def test_every_stage_has_an_op_however_the_flop_lie():
    assert cuts(with_flop(tower(4), (100, 0, 0, 0)), 4) == [0, 1, 2, 3]
    assert cuts(with_flop(tower(4), (0, 0, 0, 100)), 4) == [0, 1, 2, 3]


def test_a_transformer_is_cut_between_layers():
    """Behind the residual sum, where one tensor crosses, not behind the linear, where two do."""
    workload = transformer(layers=4, hidden=16, sequence=8, batch=2, vocabulary=1)

    stages = stages_of(workload, 4)

    first_ops = [workload.ops[stage.ops[Phase.FORWARD][0]].name for stage in stages[1:]]
    assert first_ops == [f"layer{i}.norm1" for i in (1, 2, 3)]
    for lower, upper in pairwise(stages):
        assert len(upper.receives[Phase.FORWARD]) == len(lower.receives[Phase.BACKWARD]) == 1


def test_backward_and_update_go_where_the_parameter_is():
    workload = transformer(layers=4, hidden=16, sequence=8, batch=2, vocabulary=1)

    placed = stages_of_ops(workload, 4)

    for op, stage in zip(workload.ops, placed, strict=True):
        if op.name.startswith("layer"):
            assert stage == int(op.name[len("layer")])


@given(graphs(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_every_op_finds_what_it_reads_on_its_stage(workload, num_stages):
    num_forward = sum(op.phase is Phase.FORWARD for op in workload.ops)
    made_somewhere = set(workload.producer)

    for stage in stages_of(workload, min(num_stages, num_forward)):
        here = {tensor for tensors in stage.receives.values() for tensor in tensors}
        for phase in Phase:
            for index in stage.ops[phase]:
                assert set(workload.ops[index].inputs) & made_somewhere <= here
                here |= set(workload.ops[index].outputs)


def test_what_skips_stages_is_passed_on_by_those_between():
    """x goes from the first of three stages to the last; the stage between does not touch it."""
    tape = Tape()
    x = tape.linear("first", tape.tokens("tokens", (4, WIDTH)), WIDTH)
    y = tape.linear("second", x, WIDTH)
    z = tape.linear("fourth", tape.linear("third", y, WIDTH), WIDTH)
    total = tape.call("add", "sum", [x, z], (4, WIDTH))
    tape.call("loss", "loss", [total], ())
    workload = tape.step("skip", 4)

    first, middle, last = stages_of(workload, 3)

    assert names(workload, first.sends[Phase.FORWARD][0]) == ["first"]
    assert "first" in names(workload, last.receives[Phase.FORWARD])
    assert names(workload, middle.sends[Phase.FORWARD][middle.ops[Phase.FORWARD][0]])[0] == "first"


def test_a_weight_of_two_stages_is_refused():
    workload = tower(2)
    shared = workload.ops[0].inputs[1]
    tied = replace(workload.ops[1], inputs=(workload.ops[1].inputs[0], shared))

    with pytest.raises(PlanError) as refusal:
        stages_of_ops(replace(workload, ops=(workload.ops[0], tied, *workload.ops[2:])), 2)

    assert str(refusal.value) == "op 'layer1' of stage 1 reads 'layer0.weight', which stays on stage 0"


def test_an_update_over_all_weights_is_refused_across_stages():
    workload = tower(2)
    first, second = (op for op in workload.ops if op.phase is Phase.UPDATE)
    both = replace(first, name="clip", inputs=(*first.inputs, second.inputs[1]))

    with pytest.raises(PlanError, match=r"op 'clip' of stage 0 reads .* stays on stage 1"):
        stages_of_ops(replace(workload, ops=(*workload.ops[:-2], both, second)), 2)


def test_an_update_that_reads_gradients_of_activations_is_refused():
    workload = tower(2)
    gradient = next(op.outputs[0] for op in workload.ops if op.kind == "linear_input")
    update = replace(workload.ops[-1], inputs=(*workload.ops[-1].inputs, gradient))

    with pytest.raises(
        PlanError, match=r"op 'layer0\.weight update' runs once a step, and reads 'd layer0 from layer1'"
    ):
        stages_of_ops(replace(workload, ops=(*workload.ops[:-1], update)), 1)


def test_an_update_from_activations_runs_in_every_forward_pass():
    """As that of the statistics of a batch norm."""
    workload = tower(2)
    statistics = replace(workload.ops[-1], name="statistics", inputs=(workload.ops[0].outputs[0],), mutates=())
    workload = replace(workload, ops=(*workload.ops, statistics))

    plan = lay_out(workload, gpus(2), Layout(pipeline=2, microbatches=4))

    of_first = [plan.task(row) for row in range(len(plan)) if plan.tasks.device[row] == 0]
    updates = [task.reads for task in of_first if task.work == "adam"]
    assert updates[:4] == [("layer0",)] * 4
    assert [reads[0] for reads in updates[4:]] == ["layer0.weight"]


def test_ops_on_optimizer_state_alone_follow_the_weight_of_that_state():
    """As SGD with momentum: first the momentum fades, then the gradient is added to it."""
    workload = tower(2)
    ops = []
    for op in workload.ops:
        if op.phase is Phase.UPDATE:
            state = op.inputs[2]
            ops.append(replace(op, name=f"fade {op.name}", inputs=(state,), mutates=(state,)))
        ops.append(op)

    placed = stages_of_ops(replace(workload, ops=tuple(ops)), 2)

    stage_of = {op.name: stage for op, stage in zip(ops, placed, strict=True)}
    assert stage_of["fade layer1.weight update"] == stage_of["layer1.weight update"] == 1
    assert stage_of["fade layer0.weight update"] == stage_of["layer0.weight update"] == 0


def test_a_transformer_reduces_twice_a_layer_forward_and_twice_backward():
    """And once for the gradient that the head, split by columns, gives its input."""
    workload = transformer(layers=1, hidden=16, sequence=8, batch=2, vocabulary=32)

    reduced = names(workload, sorted(reduced_tensors(workload)))

    assert reduced == [
        "layer0.project",
        "layer0.contract",
        "d norm from head",
        "d layer0.norm2 from layer0.expand",
        "d layer0.norm1 from layer0.qkv",
    ]


def test_products_of_one_input_reduce_the_sum_of_their_gradients_once():
    """Query and key as two linears: both are split by columns, and their gradients are added before the all-reduce."""
    tape = Tape()
    x = tape.call("embed", "x", [tape.tokens("tokens", (4,))], (4, WIDTH), weight=(5, WIDTH))
    query, key = tape.linear("query", x, WIDTH), tape.linear("key", x, WIDTH)
    mixed = tape.call("add", "mixed", [query, key], (4, WIDTH))
    tape.linear("out", mixed, WIDTH)
    tape.call("loss", "loss", [len(tape.tensors) - 1], ())
    workload = tape.step("attention", 4)

    assert names(workload, sorted(reduced_tensors(workload))) == ["out", "d x from all readers"]


def test_shares_round_up():
    shares = Shares(tower(1, batch=6), parts=4, tensor=3)
    weight, output = (shares.workload.ops[0].inputs[1], shares.workload.ops[0].outputs[0])

    assert (shares.whole_bytes(output), shares.device_bytes(output)) == (12, 4)
    assert (shares.whole_bytes(weight), shares.device_bytes(weight)) == (32, 11)


def test_what_is_sent_away_belongs_to_the_stream_that_sends_it():
    """And is released by the send; what has come belongs to the compute stream."""
    plan = lay_out(tower(2), gpus(2), Layout(pipeline=2))

    owners = {"layer0": [], "d layer0 from layer1": []}
    for name, owner in zip(plan.buffers.name, plan.buffers.owner.tolist(), strict=True):
        owners.get(name, []).append(plan.lane_names()[owner])

    assert owners == {
        "layer0": ["gpu0 to next", "gpu1 compute"],
        "d layer0 from layer1": ["gpu0 compute", "gpu1 to previous"],
    }
    for row in rows_of(plan, TaskKind.SEND):
        assert plan.tasks.releases[row].tolist() == plan.tasks.reads[row].tolist()
