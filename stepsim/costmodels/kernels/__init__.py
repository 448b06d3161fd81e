"""Kernels: seconds of one operation from its shape and the data sheet of its GPU.

Columns that the models read, of samples (which have ``seconds`` besides) and of tasks; no other is an input:

===================================  =============================================================================
op_class                             ``linear``, ``bmm``, ``conv``, ``elementwise``, ``softmax``, ``layernorm``
batch, m, n, k, kernel_area, stride  dimensions, as `stepsim.traces.kernel_tables` explains them
flop, size_bytes                     operations; bytes read and written, each operand once
peak_flop_per_s                      of the data sheet, in the dtype of the task
memory_bandwidth_bytes_per_s         of the data sheet
num_sms, l2_bytes, power_w           of the data sheet
generation                           of `generation`; only of a GPU that was not measured
===================================  =============================================================================

`KernelRegression` is a regression for each op class; what it has learnt is small and can be shipped. For a class that
it was not fitted on it says NaN: nothing to say. `UnseenGpuRegression` speaks of a GPU from kernels of others.
`with_device` adds the columns of a data sheet.
"""

from stepsim.costmodels.kernels.features import DEVICE, WORK, with_device
from stepsim.costmodels.kernels.regression import KernelRegression
from stepsim.costmodels.kernels.split import held_out
from stepsim.costmodels.kernels.unseen import UnseenGpuRegression
from stepsim.traces.kernel_tables import SHAPE

__all__ = ["DEVICE", "SHAPE", "WORK", "KernelRegression", "UnseenGpuRegression", "held_out", "with_device"]
