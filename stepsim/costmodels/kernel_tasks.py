"""Work of a plan as tasks of kernel models: op class, dimensions, bytes, and the data sheet of the device it runs on.

Of the work only its kind, shapes, dtype and counts are read. Kinds are those of captured workloads (``aten.mm``) and
of workloads built from shapes (``linear``). Columns are those that `stepsim.costmodels.kernels` explains; work of any
other kind has the class ``""``, which no kernel model knows.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stepsim.costmodels.board_power import comparable_power_w
from stepsim.costmodels.kernels import DEVICE, SHAPE
from stepsim.machines import Device, Machine
from stepsim.plan import NONE, Plan

Shape = tuple[int, ...]

_PRODUCTS = {
    **dict.fromkeys(("aten.mm", "aten.addmm", "linear", "linear_input", "linear_weight"), "linear"),
    **dict.fromkeys(("aten.bmm", "aten.baddbmm"), "bmm"),
}

_CONVOLUTIONS = ("aten.convolution", "aten.convolution_backward.data", "aten.convolution_backward.filter")

_ROWS = {
    **dict.fromkeys(("aten._softmax", "aten._log_softmax"), "softmax"),
    **dict.fromkeys(("aten.native_layer_norm", "norm"), "layernorm"),
}

_ELEMENTWISE = frozenset(
    {
        *("aten.abs", "aten.add", "aten.add_", "aten.bitwise_and", "aten.cat", "aten.clamp", "aten.clone"),
        *("aten.copy_", "aten.cos", "aten.div", "aten.div_", "aten.eq", "aten.erf", "aten.exp", "aten.fill"),
        *("aten.gelu", "aten.gelu_backward", "aten.ge", "aten.gt", "aten.hardtanh", "aten.hardtanh_backward"),
        *("aten.le", "aten.leaky_relu", "aten.log", "aten.lt", "aten.masked_fill", "aten.maximum", "aten.minimum"),
        *("aten.mul", "aten.mul_", "aten.native_dropout", "aten.native_dropout_backward", "aten.ne", "aten.neg"),
        *("aten.pow", "aten.reciprocal", "aten.relu", "aten.rsqrt", "aten.rsub", "aten.sigmoid"),
        *("aten.sigmoid_backward", "aten.silu", "aten.silu_backward", "aten.sin", "aten.sqrt", "aten.stack"),
        *("aten.sub", "aten.sub_", "aten.tanh", "aten.tanh_backward", "aten.threshold_backward", "aten._to_copy"),
        *("aten.where", "add", "adam", "concat", "fill", "gelu", "gelu_backward", "norm_backward", "scale"),
    }
)
"""One output element after another, bound by bytes."""

_REDUCTIONS = ("aten.sum", "aten.mean", "aten.convolution_backward.bias")
"""Read much and write little: priced as elementwise of the same bytes."""

_PASSES = {
    "aten._softmax_backward_data": 2.0,
    "aten._log_softmax_backward_data": 1.0,
    "aten.native_layer_norm_backward": 5 / 3,
}
"""How many times the bytes of their tensors backward kernels move, elementwise too.

Softmax multiplies gradient and output into a third tensor first (ATen, ``native/cuda/SoftMax.cu``); layer norm reads
gradient and input once more for the gradients of its weights (ATen, ``native/cuda/layer_norm_kernel.cu``).
"""

_FLOP_PER_ELEMENT = {"elementwise": 1, "softmax": 5, "layernorm": 8}
"""As `stepsim.traces.kernel_tables` counts; capture counts products only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What `kernel_of` finds: ``passes`` times the bytes of its tensors are moved."""

    op_class: str = ""
    batch: int = 1
    m: int = 1
    n: int = 1
    k: int = 1
    kernel_area: int = 1
    stride: int = 1
    passes: float = 1.0


_SHAPE = re.compile(r"\d+(x\d+)*|scalar")


def kernel_tasks(plan: Plan, machine: Machine, works: NDArray[np.int64]) -> pd.DataFrame:
    """One row for each (work, device) of ``works``, shape (works, 2), as `stepsim.costmodels.distinct` gives them.

    Columns: ``op_class``, ``dtype``, `SHAPE`, ``flop``, ``size_bytes``, `DEVICE`; power is that of
    `comparable_power_w`. Work on the host, and on a device whose data sheet lacks a field, has no class; fields that
    are missing are 0.
    """
    columns = ["op_class", "dtype", *SHAPE, "flop", "size_bytes", *DEVICE]
    return pd.DataFrame([_row(plan, machine, work, place) for work, place in works.tolist()], columns=columns)


def kernel_of(kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape], flop: int) -> Kernel:
    """Class and dimensions of work of ``kind`` between tensors of these shapes; no class where they do not tell."""
    if kind in _PRODUCTS:
        return _product(_PRODUCTS[kind], outputs, flop)
    if kind in _CONVOLUTIONS:
        return _convolution(kind, inputs, outputs)
    if kind in _ROWS:
        return _rows(_ROWS[kind], outputs)
    if kind in _ELEMENTWISE or kind in _REDUCTIONS or kind in _PASSES:
        largest = max((*inputs, *outputs), key=math.prod, default=())
        return _rows("elementwise", [largest], passes=_PASSES.get(kind, 1.0))
    return Kernel()


def _row(plan: Plan, machine: Machine, work: int, place: int) -> dict[str, Any]:
    table = plan.work
    inputs, outputs = (_shapes(text) for text in table.shapes[work].partition(" -> ")[::2])
    counted, dtype = int(table.flop[work]), table.dtype[work]
    kernel = kernel_of(table.kind[work], inputs, outputs, counted)
    elements = kernel.batch * kernel.m * kernel.n
    row = asdict(kernel)
    size_bytes = row.pop("passes") * float(table.bytes_read[work] + table.bytes_written[work])
    flop = counted or elements * _FLOP_PER_ELEMENT.get(kernel.op_class, 0)
    sheet = dict.fromkeys(DEVICE, 0.0) if place == NONE else _sheet(machine.device(plan.devices.name[place]), dtype)
    row["op_class"] = kernel.op_class if all(sheet.values()) else ""
    return {**row, "dtype": dtype, "flop": flop, "size_bytes": size_bytes, **sheet}


def _shapes(text: str) -> list[Shape]:
    """From ``2x512, scalar``, as `stepsim.strategies` writes shapes; none from other text."""
    found = [_SHAPE.fullmatch(shape) for shape in text.split(", ")]
    if None in found:
        return []
    return [tuple(int(size) for size in shape.split("x") if size != "scalar") for shape in text.split(", ")]


def _sheet(device: Device, dtype: str) -> dict[str, float]:
    """What computes in no peak of its own, such as masks, takes that of float32."""
    peaks = device.peak_flop_per_s
    return {
        "peak_flop_per_s": peaks.get(dtype, peaks.get("float32", 0.0)),
        "memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s,
        "num_sms": device.num_sms,
        "l2_bytes": device.l2_bytes,
        "power_w": comparable_power_w(device),
    }


def _product(op_class: str, outputs: Sequence[Shape], flop: int) -> Kernel:
    """The inner length follows from FLOP and output: operands may be seen through views that have other shapes."""
    shape = outputs[0] if outputs else ()
    if len(shape) < 2 or not flop or not math.prod(shape):
        return Kernel()
    lead, n = shape[:-1], shape[-1]
    batch, m = (math.prod(lead[:-1]), lead[-1]) if op_class == "bmm" else (1, math.prod(lead))
    return Kernel(op_class=op_class, batch=batch, m=m, n=n, k=max(1, flop // (2 * math.prod(shape))))


def _convolution(kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Kernel:
    """Gradients as the forward convolution, whose products they have; groups are nobody's."""
    match kind.rpartition(".")[2], inputs, outputs:
        case "convolution", [source, weight, *_], [result, *_]:
            pass
        case "data", [result, weight, *_], [source, *_]:
            pass
        case "filter", [result, source, *_], [weight, *_]:
            pass
        case _:
            return Kernel()
    if not len(source) == len(result) == len(weight) >= 3 or source[1] != weight[1] or 0 in (*source, *result):
        return Kernel()
    area, pixels = math.prod(weight[2:]), math.prod(result[2:])
    stride = round((math.prod(source[2:]) / pixels) ** (1 / len(source[2:])))
    return Kernel(
        op_class="conv",
        batch=result[0],
        m=pixels,
        n=weight[0],
        k=weight[1] * area,
        kernel_area=area,
        stride=max(1, stride),
    )


def _rows(op_class: str, outputs: Sequence[Shape], passes: float = 1.0) -> Kernel:
    shape = outputs[0] if outputs else ()
    elements = math.prod(shape)
    if not elements:
        return Kernel()
    n = shape[-1] if shape else 1
    return Kernel(op_class=op_class, m=elements // n, n=n, passes=passes)
