"""Simulate a plan on a machine: who waits for whom, and when each task runs."""

from stepsim.simulator.reference import simulate

__all__ = ["simulate"]
