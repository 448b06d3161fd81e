"""Data-, tensor- and pipeline-parallel steps on many devices, in few lines."""

from stepsim.strategies.parallel.layout import Layout, data_parallel, lay_out

__all__ = ["Layout", "data_parallel", "lay_out"]
