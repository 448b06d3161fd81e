"""A trace rebuilt and simulated, also at another speed."""

from dataclasses import dataclass

import numpy as np

from stepsim.costmodels import RecordedCosts
from stepsim.plan import NONE
from stepsim.simulator import simulate
from stepsim.traces import machine_of, read_kineto, rebuild, step_errors

US = 1e-6


@dataclass
class Replayed:
    rebuilt: object
    timeline: object

    @property
    def steps(self):
        return step_errors(self.rebuilt, self.timeline)

    @property
    def steps_us(self):
        return [step.predicted_s / US for step in self.steps]

    def kernels_us(self):
        """Start and end of the rows on streams, in plan order."""
        on_stream = self.rebuilt.plan.tasks.stream != NONE
        borders = (self.timeline.spans.start_s[on_stream], self.timeline.spans.end_s[on_stream])
        return [(round(a / US, 6), round(b / US, 6)) for a, b in zip(*borders, strict=True)]


def replay(path, **stretched):
    return replay_trace(read_kineto(path), **stretched)


def replay_trace(trace, *, slower=1.0, launch=1.0):
    """``slower`` stretches what runs on the GPU, ``launch`` the launches: a rebuilt run must follow."""
    rebuilt = rebuild(trace)
    seconds = np.where(rebuilt.plan.tasks.stream != NONE, rebuilt.seconds * slower, rebuilt.seconds)
    costs = RecordedCosts(seconds=seconds, launch_s=rebuilt.launch_s * launch)
    return Replayed(rebuilt, simulate(rebuilt.plan, machine_of(trace), costs))
