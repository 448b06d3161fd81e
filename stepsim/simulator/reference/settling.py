"""Settling: what is left of some work, which is looked at when its rate changes and only then.

To settle at other times too would round more often, and another last place can turn the order of two tasks over.
"""

import simpy


class Running:
    """``left`` seconds of a kernel, or bytes of a flow, at ``rate`` a second since ``since_s``.

    ``done`` comes when nothing is left. At rate 0, where it begins, nothing moves.
    """

    def __init__(self, env: simpy.Environment, left: float) -> None:
        self.env, self.left, self.rate, self.since_s = env, left, 0.0, env.now
        self.done = env.event()
        self._alarm: simpy.Event | None = None

    def set_rate(self, rate: float) -> None:
        if rate == self.rate:
            return
        self.left = max(0.0, self.left - self.rate * (self.env.now - self.since_s))
        self.since_s, self.rate, self._alarm = self.env.now, rate, None
        if rate > 0:
            self._alarm = self.env.timeout(self.left / rate)
            self._alarm.callbacks.append(self._ring)

    def _ring(self, alarm: simpy.Event) -> None:
        """SimPy cannot take an alarm back: one that was set for an earlier rate rings, and says nothing."""
        if alarm is self._alarm:
            self.done.succeed()
