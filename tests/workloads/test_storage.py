"""What lies in memory between forward and backward: as captured, and as the papers about memory count."""

from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepsim.executor import BoundProgram, Executor
from stepsim.executor.eager import eager_step
from stepsim.machines import this_cpu
from stepsim.memory import memory_profile
from stepsim.strategies.memory.lowering import computing_device, plan_for_policy
from stepsim.strategies.memory.schedule import Action, can_recompute, candidates
from stepsim.workloads import Op, Phase, Role, Tensor, Workload
from stepsim.workloads.families.resnet import resnet18_cifar
from stepsim.workloads.families.squeezenet import squeezenet_cifar
from stepsim.workloads.storage import (
    CONCAT,
    MAX_POOL,
    MAX_POOL_BACKWARD,
    NORM,
    RELU,
    concat_as_view,
    every_output_kept,
    max_pool_without_indices,
    norm_and_relu_merged,
)

UNLIMITED_BYTES = 10**15

FORWARD, BACKWARD, UPDATE = Phase


class Graph:
    """A workload by hand: tensors by their names, ops as they are called."""

    def __init__(self, **outside: Role) -> None:
        self.tensors = [self._tensor(name, role) for name, role in outside.items()]
        self.ops: list[Op] = []

    def add(self, phase: Phase, kind: str, reads: str, *outputs: str, mutates: str = "") -> None:
        names = [tensor.name for tensor in self.tensors]
        role = Role.ACTIVATION if phase is FORWARD else Role.GRADIENT
        self.tensors += [self._tensor(name, role) for name in outputs]
        self.ops.append(
            Op(
                name=f"op{len(self.ops)}",
                phase=phase,
                kind=kind,
                module="",
                inputs=tuple(names.index(name) for name in reads.split()),
                outputs=tuple(range(len(names), len(names) + len(outputs))),
                mutates=tuple(names.index(name) for name in mutates.split()),
                flop=1,
                bytes_read=1,
                bytes_written=1,
                input_shapes=(),
                output_shapes=(),
                dtype="float32",
                arguments="",
                signature=kind,
            )
        )

    def workload(self, loss: str) -> Workload:
        names = [tensor.name for tensor in self.tensors]
        late = {index for op in self.ops if op.phase is BACKWARD for index in op.inputs}
        tensors = (
            replace(tensor, saved=tensor.role is Role.ACTIVATION and index in late)
            for index, tensor in enumerate(self.tensors)
        )
        return Workload(name="by hand", batch=1, tensors=tuple(tensors), ops=tuple(self.ops), loss=names.index(loss))

    def _tensor(self, name: str, role: Role) -> Tensor:
        return Tensor(name=name, role=role, size_bytes=1, shape=(1,), dtype="float32")


def three_layers() -> Workload:
    """Three products with a weight, of which a product needs its input for the weight and the weight for its input.

    F0 F1 F2 L | S B2.w B2.x B1.w B1.x B0.w      a = F0(x, u), b = F1(a, v), c = F2(b, w), loss = L(c)
    """
    graph = Graph(x=Role.INPUT, u=Role.PARAMETER, v=Role.PARAMETER, w=Role.PARAMETER)
    for reads, output in (("x u", "a"), ("a v", "b"), ("b w", "c")):
        graph.add(FORWARD, "product", reads, output)
    graph.add(FORWARD, "sum", "c", "loss")
    graph.add(BACKWARD, "ones_like", "loss", "seed")
    for reads, output in (("b seed", "dw"), ("w seed", "db"), ("a db", "dv"), ("v db", "da"), ("x da", "du")):
        graph.add(BACKWARD, "product", reads, output)
    return graph.workload("loss")


def reads(workload: Workload) -> list[str]:
    return [" ".join(workload.tensors[tensor].name for tensor in op.inputs) for op in workload.ops]


def saved(workload: Workload) -> set[str]:
    return {tensor.name for tensor in workload.tensors if tensor.saved}


def levels(workload: Workload) -> list[int]:
    """Bytes while each op runs, when everything is kept."""
    machine = this_cpu()
    during, _ = memory_profile(plan_for_policy(workload, machine, {}, UNLIMITED_BYTES)).by_row(
        computing_device(machine)
    )
    return [int(level) for level in during[: len(workload.ops)]]


def test_autograd_saves_what_a_backward_op_reads_and_nothing_else() -> None:
    """c is gone once the loss is made: its product needs what went in, not what came out."""
    assert saved(three_layers()) == {"a", "b", "loss"}


def test_every_output_stays_until_the_backward_pass_comes_to_its_op() -> None:
    """c until B2.w, b until B1.w, a until B0.w: the first op of each that tells how far the pass has come.

    ::

        row            F0 F1 F2 L  S  B2.w B2.x B1.w B1.x B0.w
        as captured    a  a  a  a  a  a    a    a
                          b  b  b  b  b
                             c  c
        every output   a  a  a  a  a  a    a    a    a    a
                          b  b  b  b  b    b    b
                             c  c  c  c
    """
    kept = every_output_kept(three_layers())

    *forward, _, w2, x2, w1, x1, w0 = reads(kept)
    assert forward == ["x u", "a v", "b w", "c"]
    assert [w2, x2, w1, x1, w0] == ["b seed c", "w seed", "a db b", "v db", "x da a"]
    assert saved(kept) == {"a", "b", "c", "loss"}


def test_the_bytes_at_each_moment_are_those_of_the_picture() -> None:
    """Behind L always one more, by the picture of the test before: c, then b, then a."""
    captured, kept = levels(three_layers()), levels(every_output_kept(three_layers()))

    outputs_more = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert [more - fewer for fewer, more in zip(captured, kept, strict=True)] == outputs_more


def test_ops_keep_their_cost_and_their_order() -> None:
    workload = three_layers()

    kept = every_output_kept(workload)

    assert [replace(op, inputs=()) for op in kept.ops] == [replace(op, inputs=()) for op in workload.ops]
    assert [replace(tensor, saved=False) for tensor in kept.tensors] == [
        replace(tensor, saved=False) for tensor in workload.tensors
    ]


def test_keeping_every_output_twice_is_keeping_it_once() -> None:
    kept = every_output_kept(three_layers())

    assert every_output_kept(kept) == kept


def test_without_a_backward_pass_nothing_is_kept() -> None:
    graph = Graph(x=Role.INPUT)
    graph.add(FORWARD, "relu", "x", "a")
    graph.add(FORWARD, "sum", "a", "loss")
    workload = graph.workload("loss")

    assert every_output_kept(workload) == workload


def test_new_statistics_that_the_update_reads_are_no_feature_maps() -> None:
    graph = Graph(x=Role.INPUT, mean=Role.BUFFER)
    graph.add(FORWARD, "norm", "x mean", "a", "new_mean")
    graph.add(FORWARD, "sum", "a", "loss")
    graph.add(BACKWARD, "ones_like", "loss", "seed")
    graph.add(UPDATE, "copy_", "mean new_mean", mutates="mean")

    kept = every_output_kept(graph.workload("loss"))

    assert saved(kept) == {"a", "loss"}
    assert reads(kept)[-2:] == ["loss a", "mean new_mean"]


@st.composite
def layered(draw: st.DrawFn) -> Workload:
    """F0 .. Fn L | S Bn .. B0: layers with a weight each, which read some of what is there; the backward of each reads
    its weight and any of the tensors that the forward knew.
    """
    num_layers = draw(st.integers(1, 6))
    graph = Graph(x=Role.INPUT, **{f"w{layer}": Role.PARAMETER for layer in range(num_layers)})
    used = []
    for layer in range(num_layers):
        there = ["x", *(f"y{earlier}" for earlier in range(layer))]
        used.append(draw(st.lists(st.sampled_from(there), min_size=1, max_size=2, unique=True)))
        graph.add(FORWARD, "layer", " ".join([*used[layer], f"w{layer}"]), f"y{layer}")
    graph.add(FORWARD, "sum", f"y{num_layers - 1}", "loss")
    graph.add(BACKWARD, "ones_like", "loss", "d")
    for layer in reversed(range(num_layers)):
        known = [*used[layer], f"y{layer}"]
        chosen = [name for name in known if draw(st.booleans())]
        graph.add(BACKWARD, "layer_backward", " ".join([*chosen, f"w{layer}"]), f"d{layer}")
    return graph.workload("loss")


@given(layered())
def test_an_output_is_last_read_by_the_backward_of_its_op_or_where_it_was_before(workload: Workload) -> None:
    num_layers = sum(op.kind == "layer" for op in workload.ops)
    number = {tensor.name: index for index, tensor in enumerate(workload.tensors)}

    kept = every_output_kept(workload)

    for layer in range(num_layers):
        y = number[f"y{layer}"]
        its_backward = len(workload.ops) - 1 - layer
        assert kept.consumers[y][-1] == max([its_backward, *workload.consumers[y]])
        assert kept.tensors[y].saved


def norm_relu(*readers_of_norm: str) -> Workload:
    """F: norm, relu and what else reads the norm | backward of the relu, then of the norm."""
    graph = Graph(x=Role.INPUT, g=Role.PARAMETER)
    graph.add(FORWARD, NORM, "x g", "n", "statistics")
    graph.add(FORWARD, RELU, "n", "r")
    for reader in readers_of_norm:
        graph.add(FORWARD, reader, "n", reader)
    graph.add(FORWARD, "sum", " ".join(["r", *readers_of_norm]), "loss")
    graph.add(BACKWARD, "ones_like", "loss", "seed")
    graph.add(BACKWARD, "threshold_backward", "seed r", "dn")
    graph.add(BACKWARD, "norm_backward", "dn x g statistics", "dg")
    return graph.workload("loss")


def test_a_merged_norm_writes_what_relu_makes_of_it() -> None:
    merged = norm_and_relu_merged(norm_relu())

    assert [op.kind for op in merged.ops][:2] == [NORM, "sum"]
    assert [merged.tensors[tensor].name for tensor in merged.ops[0].outputs] == ["r", "statistics"]
    assert reads(merged) == ["x g", "r", "loss", "seed r", "dn x g statistics"]
    assert "n" not in {tensor.name for tensor in merged.tensors}


def test_a_norm_that_something_else_reads_is_not_merged() -> None:
    workload = norm_relu("shortcut")

    assert norm_and_relu_merged(workload) == workload


def concats(nested: bool) -> Workload:
    """F: a and b of x, ab, with ``nested`` also ab beside c, then the loss of the whole | its gradient."""
    graph = Graph(x=Role.INPUT)
    for name in ("a", "b", "c"):
        graph.add(FORWARD, "relu", "x", name)
    graph.add(FORWARD, CONCAT, "a b", "ab")
    if nested:
        graph.add(FORWARD, CONCAT, "ab c", "abc")
    whole = "abc" if nested else "ab"
    graph.add(FORWARD, "sum", f"{whole} c", "loss")
    graph.add(BACKWARD, "ones_like", "loss", "seed")
    graph.add(BACKWARD, "square_backward", f"seed {whole}", "d")
    return graph.workload("loss")


def pooled(late: str) -> Workload:
    """a = F0(x), b and the places p of its values = pool(a), loss = L(b); ``late`` is an op that reads something."""
    graph = Graph(x=Role.INPUT)
    graph.add(FORWARD, "product", "x", "a")
    graph.add(FORWARD, MAX_POOL, "a", "b", "p")
    graph.add(FORWARD, "sum", "b", "loss")
    graph.add(BACKWARD, "ones_like", "loss", "db")
    graph.add(BACKWARD, MAX_POOL_BACKWARD, "db a p", "da")
    graph.add(BACKWARD, "product", late, "dx")
    return graph.workload("loss")


def test_a_max_pool_without_indices_has_them_nowhere() -> None:
    changed = max_pool_without_indices(pooled("x da"))

    assert reads(changed) == ["x", "a", "b", "loss", "db a", "x da"]
    assert [tensor.name for tensor in changed.tensors] == ["x", "a", "b", "loss", "db", "da", "dx"]


def test_indices_that_something_else_reads_stay() -> None:
    workload = pooled("p da")

    assert max_pool_without_indices(workload) == workload


@pytest.mark.parametrize(
    ("nested", "of_loss", "late"), [(False, "a b c", "seed a b"), (True, "a b c", "seed a b c")], ids=["flat", "nested"]
)
def test_who_reads_a_whole_reads_its_parts(nested: bool, of_loss: str, late: str) -> None:
    """A part that is named beside the whole, as c is in the nested one, is read once."""
    viewed = concat_as_view(concats(nested))

    assert [op.kind for op in viewed.ops].count(CONCAT) == 0
    assert reads(viewed)[3:] == [of_loss, "loss", late]
    assert saved(viewed) == {*late.split()} - {"seed"} | {"loss"}


@pytest.mark.parametrize("second", ["a c", "x c"], ids=["a part of two wholes", "a part from outside"])
def test_a_whole_of_parts_that_have_their_place_elsewhere_stays_a_copy(second: str) -> None:
    graph = Graph(x=Role.INPUT)
    for name in ("a", "b", "c"):
        graph.add(FORWARD, "relu", "x", name)
    graph.add(FORWARD, CONCAT, "a b", "one")
    graph.add(FORWARD, CONCAT, second, "two")
    graph.add(FORWARD, "sum", "one two", "loss")

    viewed = concat_as_view(graph.workload("loss"))

    assert reads(viewed)[3:] == [second, "a b two"]


def small_step_with_every_output_kept(factory: Any) -> BoundProgram:
    captured = BoundProgram.of(factory, 2, "small")
    return replace(captured, program=replace(captured.program, workload=every_output_kept(captured.workload)))


def in_turns(workload: Workload) -> dict[int, Action]:
    """Keep, swap and recompute by turns, where a tensor can be recomputed."""
    drawn = dict(zip(candidates(workload), cycle(Action), strict=False))
    return {t: action for t, action in drawn.items() if action is not Action.RECOMPUTE or can_recompute(workload, t)}


@pytest.mark.parametrize(
    "factory",
    [partial(resnet18_cifar, width=4, blocks=(1, 1)), partial(squeezenet_cifar, shrink=16)],
    ids=["resnet18_cifar", "squeezenet_cifar"],
)
def test_a_step_that_keeps_every_output_gives_the_same_under_any_plan(factory: Any) -> None:
    bound, machine = small_step_with_every_output_kept(factory), this_cpu()
    cpu = computing_device(machine)

    for policy in ({}, in_turns(bound.workload)):
        plan = plan_for_policy(bound.workload, machine, policy, UNLIMITED_BYTES)
        reference = eager_step(bound)
        execution = Executor(plan, bound).run(metered=True)

        assert all(torch.equal(ours, reference.gradients[name]) for name, ours in execution.gradients.items())
        assert execution.memory.peak_bytes(cpu) == memory_profile(plan).peak_bytes(cpu)
