"""Steps to lay out: towers whose time and bytes can be added up on paper, and random graphs."""

from hypothesis import strategies as st

from stepsim.costmodels import GivenCosts
from stepsim.plan import Plan, TaskKind
from stepsim.workloads import Workload
from stepsim.workloads.tape import Tape

WIDTH = 4

FREE = 1e30
"""Bytes a second of a link that takes no time."""


def tower(num_layers: int, batch: int = 24) -> Workload:
    """``num_layers`` linears of equal width, one after the other; the last gives the loss.

    Each is an op forward, two backward (for its input, for its weight) and one of the update.
    """
    tape = Tape()
    x = tape.tokens("tokens", (batch, WIDTH))
    for layer in range(num_layers):
        x = tape.linear(f"layer{layer}", x, WIDTH)
    return tape.step("tower", batch)


def tower_costs(*, linear: float = 1.0, linear_input: float = 2.0, linear_weight: float = 0.0) -> GivenCosts:
    seconds = {"linear": linear, "linear_input": linear_input, "linear_weight": linear_weight, "adam": 0.0}
    return GivenCosts(seconds=seconds)


def unit_costs(plan: Plan) -> GivenCosts:
    """One second for each op."""
    return GivenCosts(seconds=dict.fromkeys(plan.work.kind, 1.0))


def rows_of(plan: Plan, kind: TaskKind) -> list[int]:
    return [row for row in range(len(plan)) if plan.tasks.kind[row] == kind]


@st.composite
def graphs(draw: st.DrawFn, batch: int = 12) -> Workload:
    """Ops of all kinds on any earlier value, so that what one reads may come from far away."""
    tape, shape = Tape(), (batch, WIDTH)
    values = [tape.call("embed", "embed", [tape.tokens("tokens", (batch,))], shape, weight=(5, WIDTH))]
    for number in range(draw(st.integers(1, 9), label="ops")):
        kind = draw(st.sampled_from(["linear", "gelu", "add", "norm"]))
        x, name = draw(st.sampled_from(values[-3:])), f"{kind}{number}"
        if kind == "linear":
            values.append(tape.linear(name, x, WIDTH))
        else:
            inputs = [x, draw(st.sampled_from(values))] if kind == "add" else [x]
            values.append(tape.call(kind, name, inputs, shape, weight=(WIDTH,) if kind == "norm" else None))
    tape.call("loss", "loss", [values[-1]], ())
    return tape.step("graph", batch)
