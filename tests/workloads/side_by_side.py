"""One training step, done twice: op by op from its program, and by eager PyTorch on a module of its own."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from stepsim.workloads.capture import capture_program
from stepsim.workloads.factory import Factory, build_step
from stepsim.workloads.program import Program
from stepsim.workloads.step_function import microbatches_of
from stepsim.workloads.updates import initial_state

Values = dict[int, torch.Tensor]


class SideBySide:
    """Two modules with equal weights; ``step`` trains one with the program and one without."""

    def __init__(self, factory: Factory, batch: int = 2) -> None:
        self.ours, self.eager = (_seeded(factory, batch) for _ in range(2))
        self.program = capture_program(
            self.ours.module, self.ours.inputs, self.ours.optimizer, name="side by side", batch=batch
        )
        self.states: Values = {
            tensor: initial_state(attrgetter(name)(self.ours.module).detach(), key)
            for tensor, (name, key) in self.program.states.items()
        }
        self.values: Values = {}
        self.eager_loss = torch.zeros(())
        self.steps = 0

    def outside(self) -> Values:
        """What the first op may read."""
        held = {**self.program.parameters, **self.program.buffers}
        leaves = tree_leaves(tuple(self.ours.inputs))
        return {
            **{tensor: attrgetter(name)(self.ours.module).detach() for tensor, name in held.items()},
            **{tensor: leaves[place] for tensor, place in self.program.inputs.items()},
            **self.program.constants,
            **self.states,
        }

    def step(self) -> None:
        self.steps += 1
        torch.manual_seed(self.steps)
        self.values = run_ops(self.program, self.outside())
        torch.manual_seed(self.steps)
        self._eager_step()

    def _eager_step(self) -> None:
        self.eager.module.zero_grad()
        losses = []
        for inputs in microbatches_of(self.eager.inputs):
            returned = self.eager.module(*inputs)
            losses.append(returned[0] if isinstance(returned, tuple) else returned)
            losses[-1].backward()
        if self.eager.optimizer is not None:
            self.eager.optimizer.step()
        self.eager_loss = sum(losses).detach()

    def unequal(self) -> list[str]:
        """What differs in any bit: the loss, gradients, parameters, buffers, optimizer states."""
        return [name for name, ours, eager in self._pairs() if not _equal(ours, eager)]

    def _pairs(self) -> Iterator[tuple[str, Any, Any]]:
        program, theirs = self.program, self.eager.module
        yield "loss", program.loss_view(self.values[program.workload.loss]), self.eager_loss
        gradients = {
            program.parameters[parameter]: program.gradient_views[parameter](self.values[gradient])
            for parameter, gradient in program.workload.gradients.items()
        }
        for name, parameter in theirs.named_parameters():
            yield f"gradient of {name}", gradients.get(name), parameter.grad
        for name in (*program.parameters.values(), *program.buffers.values()):
            yield name, attrgetter(name)(self.ours.module), attrgetter(name)(theirs)
        for tensor, (name, key) in program.states.items():
            assert self.eager.optimizer is not None
            yield f"{key} of {name}", self.states[tensor], self.eager.optimizer.state[attrgetter(name)(theirs)][key]


def run_ops(program: Program, outside: Values) -> Values:
    """Run all ops in order and keep everything."""
    values = dict(outside)
    for op, op_program in zip(program.workload.ops, program.ops, strict=True):
        outputs = op_program.run([values[tensor] for tensor in op.inputs])
        values.update(zip(op.outputs, outputs, strict=True))
    return values


def _seeded(factory: Factory, batch: int) -> Any:
    torch.manual_seed(0)
    return build_step(factory, batch)


def _equal(ours: torch.Tensor | None, eager: torch.Tensor | None) -> bool:
    if ours is None or eager is None:
        return ours is eager
    return ours.shape == eager.shape and ours.dtype == eager.dtype and torch.equal(ours, eager)
