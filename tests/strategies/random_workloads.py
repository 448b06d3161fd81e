"""Random training steps without torch, and random policies for them.

Ops have one to three outputs and read anything that is there, across layers too; some draw random numbers, and some of
what the forward pass makes nobody ever reads. Weights are updated in place at the end, as the capture of a module has
it.
"""

from dataclasses import replace

from hypothesis import strategies as st
from small_workloads import op, tensor

from stepsim.strategies.memory.schedule import Action, Policy, can_recompute, candidates
from stepsim.workloads import Op, Phase, Role, Tensor, Workload

SIZES = st.sampled_from([0, 1, 4, 4, 9, 30])


@st.composite
def workloads(draw: st.DrawFn, max_layers: int = 6) -> Workload:
    tensors: list[Tensor] = []
    ops: list[Op] = []

    def new(name: str, role: Role) -> int:
        tensors.append(tensor(name, role, draw(SIZES, label=name)))
        return len(tensors) - 1

    def some(pool: list[int], least: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.sampled_from(pool), min_size=least, max_size=3, unique=True)))

    num_layers = draw(st.integers(1, max_layers), label="layers")
    weights = [new(f"w{layer}", Role.PARAMETER) for layer in range(num_layers)]
    made = [new("input", Role.INPUT)]
    for layer, weight in enumerate(weights):
        inputs = (*some(made, 1), weight)
        outputs = [new(f"x{layer}.{i}", Role.ACTIVATION) for i in range(draw(st.integers(1, 3)))]
        is_random = draw(st.integers(0, 5), label="random") == 0
        ops.append(op(f"F{layer}", Phase.FORWARD, inputs, tuple(outputs), random=is_random))
        made += outputs
    loss = new("loss", Role.ACTIVATION)
    ops.append(op("L", Phase.FORWARD, some(made[1:], 1), (loss,)))
    gradient, gradients = loss, {}
    for layer, weight in reversed([*enumerate(weights)]):
        outputs = (new(f"dx{layer}", Role.GRADIENT), new(f"dw{layer}", Role.GRADIENT))
        ops.append(op(f"B{layer}", Phase.BACKWARD, (gradient, *some(made, 0), weight), outputs))
        gradient, gradients[weight] = outputs
    for layer, (weight, its_gradient) in enumerate(gradients.items()):
        ops.append(replace(op(f"U{layer}", Phase.UPDATE, (weight, its_gradient), ()), mutates=(weight,)))
    read_late = {index for each in ops if each.phase is Phase.BACKWARD for index in each.inputs}
    saved = tuple(
        replace(each, saved=each.role is Role.ACTIVATION and index in read_late) for index, each in enumerate(tensors)
    )
    return Workload(name="random", batch=1, tensors=saved, ops=tuple(ops), loss=loss, gradients=gradients)


def policies(workload: Workload, *actions: Action) -> st.SearchStrategy[Policy]:
    """Each tensor with one of ``actions`` (any, when none is named) that it can take, or kept."""
    allowed = {
        tensor: [
            action
            for action in dict.fromkeys((Action.KEEP, *(actions or Action)))
            if action is not Action.RECOMPUTE or can_recompute(workload, tensor)
        ]
        for tensor in candidates(workload)
    }
    return st.fixed_dictionaries({tensor: st.sampled_from(choices) for tensor, choices in allowed.items()})


@st.composite
def steps(draw: st.DrawFn, *actions: Action) -> tuple[Workload, Policy, int]:
    """A workload, a policy for it, and a memory limit from far too little to more than enough."""
    workload = draw(workloads())
    total = sum(each.size_bytes for each in workload.tensors)
    return workload, draw(policies(workload, *actions)), draw(st.integers(0, total), label="memory_bytes")
