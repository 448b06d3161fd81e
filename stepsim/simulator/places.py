"""Places that tasks take turns on: copy engines and links."""

from collections.abc import Callable
from dataclasses import dataclass

import simpy

STARTS = 2
"""SimPy priority of starts: behind all ends of the same instant, whose events have priority 0 or 1."""


@dataclass
class Place:
    """A copy engine or a link, with room for ``free`` more tasks."""

    free: int


class Places:
    """Gives out places. At an instant all ends come first; then those who wait are tried, each once.

    The earliest ready is tried first, then the earlier row of the plan. Who does not fit is passed over.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self._waiting: list[tuple[float, int, list[Place], simpy.Event]] = []
        self._is_called = False

    def take(self, row: int, places: list[Place]) -> simpy.Event:
        """An event that comes when ``row`` has all of ``places``: all at once, so that nobody holds one and waits."""
        taken = self.env.event()
        self._waiting.append((self.env.now, row, places, taken))
        self._call()
        return taken

    def leave(self, places: list[Place]) -> None:
        for place in places:
            place.free += 1
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            _Starts(self.env, self._serve)

    def _serve(self, _event: simpy.Event) -> None:
        self._is_called = False
        in_turn, self._waiting = sorted(self._waiting, key=lambda entry: entry[:2]), []
        for entry in in_turn:
            _, _, places, taken = entry
            if all(place.free > 0 for place in places):
                for place in places:
                    place.free -= 1
                taken.succeed()
            else:
                self._waiting.append(entry)


class _Starts(simpy.Event):
    """Comes in this instant, behind all its ends, and calls ``serve``."""

    def __init__(self, env: simpy.Environment, serve: Callable[[simpy.Event], None]) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        self.callbacks.append(serve)
        env.schedule(self, priority=STARTS)  # type: ignore[arg-type]
