"""Instants: first all ends, then the starts of copies, then the rates (``docs/reference/simulator.md``)."""

from collections.abc import Callable, Generator

import simpy

Steps = Generator[simpy.Event, object, None]
"""A SimPy process, or a part of one."""

STARTS, RATES = 2, 3
"""SimPy priorities. Ends have SimPy's own, 0 and 1, and so come first."""


class Phase:
    """Calls those who have asked, behind all events of this instant that have a lower priority, and each once."""

    def __init__(self, env: simpy.Environment, priority: int) -> None:
        self.env, self.priority = env, priority
        self._asked: dict[Callable[[], None], None] = {}

    def ask(self, action: Callable[[], None]) -> None:
        if not self._asked:
            _Coming(self.env, self.priority, self._come)
        self._asked[action] = None

    def _come(self, _event: simpy.Event) -> None:
        actions, self._asked = self._asked, {}
        for action in actions:
            action()


class _Coming(simpy.Event):
    """Comes in this instant."""

    def __init__(self, env: simpy.Environment, priority: int, come: Callable[[simpy.Event], None]) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        self.callbacks.append(come)
        env.schedule(self, priority=priority)  # type: ignore[arg-type]
