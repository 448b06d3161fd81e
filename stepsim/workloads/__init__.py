"""What one training step computes: ops, tensors, and how to capture them from a torch module."""

from stepsim.workloads.workload import Op, Phase, Role, Tensor, Workload

__all__ = ["Op", "Phase", "Role", "Tensor", "Workload"]
