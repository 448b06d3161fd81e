"""The calls by which SGD and Adam update one parameter, one op each: what torch.optim calls without ``foreach``."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

from stepsim.workloads.op import Phase, Role
from stepsim.workloads.program import BiasCorrection
from stepsim.workloads.step_builder import Call, StepBuilder, Value

_aten = torch.ops.aten


class Update:
    """The update of one parameter as it grows; ``states`` are what the optimizer keeps for it, by tensor index."""

    def __init__(self, builder: StepBuilder, group: Mapping[str, Any], name: str, weight: Value) -> None:
        self.group = group
        self.weight = weight
        self.states: dict[int, tuple[str, str]] = {}
        self._builder = builder
        self._name = name

    def state(self, key: str) -> Value:
        base = initial_state(self.weight.fake, key)
        value = self._builder.tensor(f"{self._name}.{key}", Role.OPTIMIZER_STATE, base)
        self.states[value.tensor] = (self._name, key)
        return value

    def write(self, name: str, function: Any, *arguments: Any, **keywords: Any) -> None:
        """A call that changes its first argument."""
        self._builder.add(self._call(name, function, arguments, keywords))

    def make(self, name: str, function: Any, *arguments: Any, like: Value | None = None, **keywords: Any) -> Value:
        """A call that makes a tensor, which looks ``like`` another if that is given."""
        returned = None if like is None else torch.empty_like(like.fake)
        return self._builder.add(self._call(name, function, arguments, keywords, returned))[0]

    def _call(
        self, name: str, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], returned: Any = None
    ) -> Call:
        return Call(
            name=f"{self._name}.{name}",
            phase=Phase.UPDATE,
            module=self._name.rpartition(".")[0],
            function=function,
            arguments=arguments,
            keywords=keywords,
            returned=returned,
        )


def initial_state(parameter: torch.Tensor, key: str) -> torch.Tensor:
    """What an optimizer begins with: zeros like the parameter. The steps of Adam are one number on the host."""
    if key != "step":
        return torch.zeros_like(parameter, memory_format=torch.preserve_format)
    wide = torch.get_default_dtype() == torch.float64
    return torch.zeros((), dtype=torch.float64 if wide else torch.float32)


def _sgd(update: Update, gradient: Value) -> None:
    """As ``_single_tensor_sgd`` of torch/optim/sgd.py.

    There the first step clones the gradient into the momentum buffer. Here the buffer starts at zero, which comes to
    the same: 0 * momentum + gradient is the gradient.
    """
    group, momentum = update.group, update.group["momentum"]
    gradient = _decayed(update, gradient)
    if momentum != 0:
        buffer = update.state("momentum_buffer")
        update.write("fade", _aten.mul_.Tensor, buffer, momentum)
        update.write("gather", _aten.add_.Tensor, buffer, gradient, alpha=1)
        if group["nesterov"]:
            gradient = update.make("ahead", _aten.add.Tensor, gradient, buffer, alpha=momentum)
        else:
            gradient = buffer
    update.write("step", _aten.add_.Tensor, update.weight, gradient, alpha=-group["lr"])


def _adam(update: Update, gradient: Value) -> None:
    """As ``_single_tensor_adam`` of torch/optim/adam.py, which AdamW shares."""
    group, rate = update.group, update.group["lr"]
    beta1, beta2 = group["betas"]
    steps, mean, square = (update.state(key) for key in ("step", "exp_avg", "exp_avg_sq"))
    update.write("count", _aten.add_.Tensor, steps, 1)
    if not group["decoupled_weight_decay"]:
        gradient = _decayed(update, gradient)
    elif group["weight_decay"] != 0:
        update.write("decay", _aten.mul_.Tensor, update.weight, 1 - rate * group["weight_decay"])
    update.write("mean", _aten.lerp_.Scalar, mean, gradient, 1 - beta1)
    update.write("fade", _aten.mul_.Tensor, square, beta2)
    update.write("square", _aten.addcmul_.default, square, gradient, gradient, value=1 - beta2)
    root = update.make("root", _aten.sqrt.default, square)
    divisor = update.make("correct", _aten.div.Tensor, root, BiasCorrection(steps, beta2, power=0.5), like=root)
    update.write("soften", _aten.add_.Tensor, divisor, group["eps"])
    step_size = BiasCorrection(steps, beta1, scale=-rate)
    update.write("step", _aten.addcdiv_.default, update.weight, mean, divisor, value=step_size)


def _decayed(update: Update, gradient: Value) -> Value:
    decay = update.group["weight_decay"]
    if decay == 0:
        return gradient
    return update.make("decay", _aten.add.Tensor, gradient, update.weight, alpha=decay)


UPDATES: Mapping[type[Optimizer], Callable[[Update, Value], None]] = {SGD: _sgd, Adam: _adam, AdamW: _adam}
