"""Simulate a plan on a machine: who waits for whom, and when each task runs."""

from stepsim.simulator.noise import StepTimes, step_times
from stepsim.simulator.simulate import Engine, choose_engine, simulate

__all__ = ["Engine", "StepTimes", "choose_engine", "simulate", "step_times"]
