"""What one training step computes: ops, tensors, and how to capture them from a torch module."""

from stepsim.workloads.growth import Growth
from stepsim.workloads.op import Op, Phase, Role, Tensor
from stepsim.workloads.workload import Workload

__all__ = ["Growth", "Op", "Phase", "Role", "Tensor", "Workload"]
