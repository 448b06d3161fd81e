"""What streams and threads wait for, as far as a trace tells it; elsewhere what they can have waited for."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stepsim.traces.moments import DeviceRow, Record, Sync, Wait

Lane = tuple[str, int]
"""A device and its stream, as recorded."""


class Ended(NamedTuple):
    """A row on a lane, with its recorded end."""

    row: int
    end_s: float


class Waits:
    """The rows written so far, lane by lane, and what was recorded and told to wait behind them."""

    def __init__(self) -> None:
        self._on_lane: dict[Lane, list[Ended]] = {}
        self._recorded: dict[int, list[Ended]] = {}
        self._told: dict[int, list[Wait]] = defaultdict(list)
        self._last_lane: dict[int, Lane] = {}

    def add(self, lane: Lane, row: int, end_s: float, thread: int) -> None:
        """``thread`` launched ``row``, the next on ``lane``."""
        self._on_lane.setdefault(lane, []).append(Ended(row, end_s))
        self._last_lane[thread] = lane

    def record(self, record: Record) -> None:
        self._recorded[record.number] = self._last_of(record.stream)

    def tell(self, wait: Wait) -> None:
        self._told[wait.thread].append(wait)

    def pass_on(self, giver: int, taker: int) -> None:
        """What ``giver`` told a stream, and has launched nothing behind, holds back what ``taker`` launches next."""
        self._told[taker] += self._told.pop(giver, [])

    def last_on(self, lane: Lane) -> Sequence[Ended]:
        """The last row of ``lane``, if it has any."""
        return self._on_lane.get(lane, [])[-1:]

    def last_rows(self) -> list[int]:
        """The last row of each lane."""
        return [rows[-1].row for rows in self._on_lane.values()]

    def of_sync(self, sync: Sync) -> Sequence[Ended]:
        """The last row of each stream that a synchronisation waits for.

        Where the stream is not recorded it is the one whose last row ended last before the call returned. Where it is
        not recorded either which row an event stands behind, it is the last one that had ended by then.
        """
        if sync.awaits in self._recorded:
            return self._recorded[sync.awaits]
        if "Event" in sync.name:
            return self._ended_by(sync.end_s, stream=sync.stream)[:1]
        if "Stream" in sync.name:
            return self._last_of(sync.stream) or self._idle_by(sync.end_s)[:1]
        used = self._last_lane.get(sync.thread)
        return [rows[-1] for lane, rows in self._on_lane.items() if used is None or lane[0] == used[0]]

    def of_row(self, row: DeviceRow, thread: int) -> Sequence[Ended]:
        """What the stream of ``row`` was told to wait for since its last row, by the thread that launches ``row``.

        Where a wait does not say which stream it holds back, it is that of the next launch. Where it does not say what
        for, each wait stands for one row of another stream: of those that had ended when ``row`` began, the last of
        its stream, and of these the ones that ended last.
        """
        waits = [wait for wait in self._told[thread] if wait.stream in (-1, row.stream)]
        if not waits:
            return []
        self._told[thread] = [wait for wait in self._told[thread] if wait not in waits]
        known = [behind for wait in waits for behind in self._recorded.get(wait.awaits, [])]
        num_unknown = sum(wait.awaits not in self._recorded for wait in waits)
        return known + self._ended_by(row.start_s, other_than=row.lane)[:num_unknown]

    def _last_of(self, stream: int) -> list[Ended]:
        """The last row on each lane of ``stream``; none for -1."""
        return [rows[-1] for lane, rows in self._on_lane.items() if lane[1] == stream]

    def _idle_by(self, time_s: float) -> list[Ended]:
        """The last row of each lane that had ended all its rows by ``time_s``, the latest first."""
        return _latest_first(rows[-1] for rows in self._on_lane.values() if rows[-1].end_s <= time_s)

    def _ended_by(self, time_s: float, *, stream: int = -1, other_than: Lane | None = None) -> list[Ended]:
        """The last row of each lane that had ended by ``time_s``, the latest first; of ``stream`` alone if it is given.

        Ends rise along a lane.
        """
        found = []
        for lane, rows in self._on_lane.items():
            if lane != other_than and stream in (-1, lane[1]):
                place = bisect_right(rows, time_s, key=lambda row: row.end_s)
                found += rows[place - 1 : place]
        return _latest_first(found)


def _latest_first(rows: Iterable[Ended]) -> list[Ended]:
    return sorted(rows, key=lambda row: -row.end_s)
