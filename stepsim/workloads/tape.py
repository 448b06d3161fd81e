"""Tape: forward ops by their shapes; their backward and the update follow from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepsim.errors import WorkloadError
from stepsim.workloads.op import Op, Phase, Role, Tensor, signature_of
from stepsim.workloads.workload import Workload

DTYPE, ELEMENT_BYTES = "bfloat16", 2

STATE_BYTES = 12
"""Of Adam for each parameter in mixed precision: a float32 copy, momentum and variance (Rajbhandari et al., "ZeRO",
SC 2020, section 3.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A forward op as its backward needs it. ``weight`` is the parameter that it reads, if any."""

    name: str
    kind: str
    inputs: tuple[int, ...]
    weight: int | None
    output: int
    flop: int


class Tape:
    """Takes forward ops down one by one; `step` walks back over them, as autograd does.

    Values and weights are bfloat16. An op moves the bytes of its tensors. The backward of a linear is two ops, for its
    input and for its weight, of the FLOP of the forward each; that of any other op is one op of twice the FLOP. It
    reads the gradient and the inputs. Where two gradients of one tensor meet, they are added; a value on which the loss
    does not depend has none.
    """

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self._calls: list[Call] = []
        self._gradients: dict[int, int] = {}
        self._weight_gradients: dict[int, int] = {}

    def tokens(self, name: str, shape: tuple[int, ...]) -> int:
        """An input of int64, as torch has tokens."""
        return self._tensor(name, Role.INPUT, shape, element_bytes=8, dtype="int64")

    def linear(self, name: str, x: int, width_out: int) -> int:
        shape = self.tensors[x].shape
        flop = 2 * math.prod(shape) * width_out
        return self.call("linear", name, [x], (*shape[:-1], width_out), weight=(width_out, shape[-1]), flop=flop)

    def call(
        self,
        kind: str,
        name: str,
        inputs: Sequence[int],
        shape: tuple[int, ...],
        *,
        weight: tuple[int, ...] | None = None,
        flop: int = 0,
    ) -> int:
        """An op that makes one value of ``shape``, with a weight of its own or without. Gives the value."""
        parameter = None if weight is None else self._tensor(f"{name}.weight", Role.PARAMETER, weight)
        output = self._tensor(name, Role.ACTIVATION, shape)
        self._op(Phase.FORWARD, kind, name, _present(*inputs, parameter), [output], flop)
        call = Call(name=name, kind=kind, inputs=tuple(inputs), weight=parameter, output=output, flop=flop)
        self._calls.append(call)
        return output

    def step(self, name: str, batch: int) -> Workload:
        """The step whose loss is the output of the last call; Adam updates each weight.

        Raises `WorkloadError` without such a call, and for a sum, whose gradient no op makes.
        """
        if not self._calls or self._calls[-1].kind == "add":
            raise WorkloadError(f"tape of {name!r}: the last call must make the loss, and be no sum")
        for call in reversed(self._calls):
            if call is self._calls[-1] or call.output in self._gradients:
                self._go_back(call)
        for weight, gradient in self._weight_gradients.items():
            self._update(weight, gradient)
        saved = {tensor for op in self.ops if op.phase is Phase.BACKWARD for tensor in op.inputs}
        tensors = (
            replace(tensor, saved=number in saved and tensor.role is Role.ACTIVATION)
            for number, tensor in enumerate(self.tensors)
        )
        return Workload(
            name=name,
            batch=batch,
            tensors=tuple(tensors),
            ops=tuple(self.ops),
            loss=self._calls[-1].output,
            gradients=self._weight_gradients,
        )

    def _go_back(self, call: Call) -> None:
        above = self._gradients.get(call.output)
        match call.kind:
            case "add":
                for tensor in call.inputs:
                    self._arrive(tensor, self._gradients[call.output])
            case "linear":
                self._backward(call, "linear_input", _present(above, call.weight), call.flop, of_input=True)
                self._backward(call, "linear_weight", _present(above, *call.inputs), call.flop, of_weight=True)
            case "embed":
                self._backward(call, "embed_weight", _present(above, *call.inputs), of_weight=True)
            case kind:
                reads = _present(above, *call.inputs, call.weight)
                of_weight = call.weight is not None
                self._backward(call, f"{kind}_backward", reads, 2 * call.flop, of_input=True, of_weight=of_weight)

    def _backward(
        self,
        call: Call,
        kind: str,
        reads: Sequence[int],
        flop: int = 0,
        *,
        of_input: bool = False,
        of_weight: bool = False,
    ) -> None:
        sources = [*call.inputs[:of_input], *(_present(call.weight) if of_weight else ())]
        made = {source: self._gradient_like(source, call.name) for source in sources}
        self._op(Phase.BACKWARD, kind, f"{call.name}: {kind}", reads, list(made.values()), flop)
        for source, gradient in made.items():
            if source == call.weight:
                self._weight_gradients[source] = gradient
            else:
                self._arrive(source, gradient)

    def _arrive(self, tensor: int, gradient: int) -> None:
        earlier = self._gradients.get(tensor)
        if earlier is not None:
            total = self._gradient_like(tensor, "all readers")
            self._op(Phase.BACKWARD, "add", self.tensors[total].name, [earlier, gradient], [total])
            gradient = total
        self._gradients[tensor] = gradient

    def _update(self, weight: int, gradient: int) -> None:
        name, shape = self.tensors[weight].name, self.tensors[weight].shape
        state = self._tensor(f"{name}.adam", Role.OPTIMIZER_STATE, shape, element_bytes=STATE_BYTES, dtype="float32")
        reads = [weight, gradient, state]
        self._op(Phase.UPDATE, "adam", f"{name} update", reads, [], mutates=(weight, state))

    def _gradient_like(self, tensor: int, of: str) -> int:
        return self._tensor(f"d {self.tensors[tensor].name} from {of}", Role.GRADIENT, self.tensors[tensor].shape)

    def _tensor(
        self,
        name: str,
        role: Role,
        shape: tuple[int, ...],
        *,
        element_bytes: int = ELEMENT_BYTES,
        dtype: str = DTYPE,
    ) -> int:
        size_bytes = element_bytes * math.prod(shape)
        self.tensors.append(Tensor(name=name, role=role, size_bytes=size_bytes, shape=shape, dtype=dtype))
        return len(self.tensors) - 1

    def _op(
        self,
        phase: Phase,
        kind: str,
        name: str,
        reads: Sequence[int],
        outputs: Sequence[int],
        flop: int = 0,
        *,
        mutates: tuple[int, ...] = (),
    ) -> None:
        input_shapes, output_shapes = (tuple(self.tensors[i].shape for i in tensors) for tensors in (reads, outputs))
        op = Op(
            name=name,
            phase=phase,
            kind=kind,
            module=name.partition(":")[0],
            inputs=tuple(reads),
            outputs=tuple(outputs),
            mutates=mutates,
            flop=flop,
            bytes_read=self._bytes(reads),
            bytes_written=self._bytes([*outputs, *mutates]),
            input_shapes=input_shapes,
            output_shapes=output_shapes,
            dtype=DTYPE,
            arguments="",
            signature=signature_of(kind, "", (self.tensors[tensor] for tensor in reads)),
        )
        self.ops.append(op)

    def _bytes(self, tensors: Sequence[int]) -> int:
        return sum(self.tensors[tensor].size_bytes for tensor in tensors)


def _present(*tensors: int | None) -> list[int]:
    return [tensor for tensor in tensors if tensor is not None]
