"""Copy engines: slots that copies take turns at."""

from bisect import insort

import simpy

from stepsim.simulator.reference.instants import Phase


class CopyEngine:
    """One direction of one device, with ``free`` slots. The earliest ready is served first, then the earlier row."""

    def __init__(self, env: simpy.Environment, starts: Phase, slots: int) -> None:
        self.env, self.free = env, slots
        self._starts = starts
        self._waiting: list[tuple[float, int, simpy.Event]] = []

    def take(self, row: int) -> simpy.Event:
        """Comes when ``row`` has a slot: not before all ends of this instant, however many are free."""
        taken = self.env.event()
        insort(self._waiting, (self.env.now, row, taken))
        self._starts.ask(self._serve)
        return taken

    def leave(self) -> None:
        self.free += 1
        self._starts.ask(self._serve)

    def _serve(self) -> None:
        served, self._waiting = self._waiting[: self.free], self._waiting[self.free :]
        self.free -= len(served)
        for _, _, taken in served:
            taken.succeed()
