"""In which order a pipeline stage runs the forward and backward passes of its microbatches.

::

    gpipe   0  F0 F1 F2 F3          B0 B1 B2 B3          1f1b   0  F0 F1       B0 F2 B1 F3 B2    B3
            1     F0 F1 F2 F3 B0 B1 B2 B3                       1     F0 B0 F1 B1 F2 B2 F3 B3

Stages of one length idle for (stages - 1) / microbatches of the time that they compute, in both (Narayanan et al.,
"Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2).
"""

from collections.abc import Callable

from stepsim.workloads import Phase

Slot = tuple[Phase, int]
"""The forward or the backward pass of one microbatch."""


def gpipe(stage: int, num_stages: int, microbatches: int) -> list[Slot]:
    """All forward, then all backward (Huang et al., "GPipe", NeurIPS 2019): every microbatch is in flight at once."""
    return [(phase, number) for phase in (Phase.FORWARD, Phase.BACKWARD) for number in range(microbatches)]


def one_forward_one_backward(stage: int, num_stages: int, microbatches: int) -> list[Slot]:
    """After a warm-up backward follows forward: at most ``num_stages - stage`` microbatches are in flight.

    With a flush at the end of the step (Narayanan et al., SC 2021, "PipeDream-Flush"), so that all of them see the same
    parameters.
    """
    ahead = min(num_stages - stage - 1, microbatches)
    slots = [(Phase.FORWARD, number) for number in range(ahead)]
    for number in range(microbatches - ahead):
        slots += [(Phase.FORWARD, ahead + number), (Phase.BACKWARD, number)]
    return slots + [(Phase.BACKWARD, number) for number in range(microbatches - ahead, microbatches)]


SCHEDULES: dict[str, Callable[[int, int, int], list[Slot]]] = {"1f1b": one_forward_one_backward, "gpipe": gpipe}
"""By name: from the stage, of how many, and the number of microbatches."""
