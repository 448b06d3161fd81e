import weakref
from functools import partial

import pytest
import torch
from side_by_side import SideBySide, run_ops

from stepsim.workloads import Phase
from stepsim.workloads.models import small_resnet, small_transformer

FAMILIES = {
    "resnet": partial(small_resnet, width=8),
    "transformer": partial(small_transformer, width=32, length=16, vocabulary=50),
}


@pytest.fixture(params=FAMILIES)
def both(request: pytest.FixtureRequest) -> SideBySide:
    return SideBySide(FAMILIES[request.param])


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_of_the_program_equal_eager_steps_bit_for_bit(both: SideBySide, steps: int) -> None:
    for _ in range(steps):
        both.step()

    assert both.unequal() == []


def test_every_tensor_is_a_storage_of_its_own_of_the_predicted_size(both: SideBySide) -> None:
    tensors = both.program.workload.tensors

    values = run_ops(both.program, both.outside())

    found = [
        (values[i].untyped_storage().nbytes(), tuple(values[i].shape), values[i].dtype) for i in range(len(tensors))
    ]
    assert found == [(t.size_bytes, t.shape, getattr(torch, t.dtype)) for t in tensors]
    assert len({value.untyped_storage().data_ptr() for value in values.values()}) == len(tensors)


def test_a_tensor_dies_with_its_last_reader(both: SideBySide) -> None:
    program, values = both.program, both.outside()
    outside, ops = set(values), program.workload.ops
    last = {tensor: index for index, op in enumerate(ops) for tensor in (*op.outputs, *op.inputs)}
    overdue = []

    for index, op in enumerate(ops):
        values.update(zip(op.outputs, program.ops[index].run([values[tensor] for tensor in op.inputs]), strict=True))
        for tensor in {tensor for tensor in (*op.outputs, *op.inputs) if last[tensor] == index} - outside:
            storage = weakref.ref(values.pop(tensor).untyped_storage())
            overdue += [op.name] if storage() is not None else []

    assert overdue == []


def test_a_forward_op_gives_the_same_again_on_copies_of_its_inputs(both: SideBySide) -> None:
    program, values = both.program, both.outside()
    forward = [index for index, op in enumerate(program.workload.ops) if op.phase is Phase.FORWARD]
    unequal = []

    for index in forward:
        op, inputs = program.workload.ops[index], [values[tensor] for tensor in program.workload.ops[index].inputs]
        outputs = program.ops[index].run(inputs)
        again = program.ops[index].run([value.clone() for value in inputs])
        unequal += [op.name for one, two in zip(outputs, again, strict=True) if not torch.equal(one, two)]
        values.update(zip(op.outputs, outputs, strict=True))

    assert unequal == []
