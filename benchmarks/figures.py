"""A measured figure beside the one that is demanded."""

import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPEATS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``median`` of several measurements with their spread. ``at_least`` or ``at_most`` is what is demanded of it."""

    name: str
    unit: str
    median: float
    lowest: float
    highest: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def verdict(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:,.4g}: {'yes' if self.median >= self.at_least else 'NO'}"
        if self.at_most is not None:
            return f"<= {self.at_most:,.4g}: {'yes' if self.median <= self.at_most else 'NO'}"
        return ""


def figure(name: str, unit: str, values: list[float], **demanded: float) -> Figure:
    return Figure(
        name=name,
        unit=unit,
        median=statistics.median(values),
        lowest=min(values),
        highest=max(values),
        **demanded,
    )


def seconds_of(run: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Seconds of each repeat, after one that is thrown away."""
    run()
    return [_timed(run) for _ in range(repeats)]


def _timed(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return time.perf_counter() - began_s


def rate(name: str, size: int, run: Callable[[], object], repeats: int = REPEATS, **demanded: float) -> Figure:
    """Items a second."""
    return figure(name, "/s", [size / seconds for seconds in seconds_of(run, repeats)], **demanded)


def peak_rss_bytes() -> int:
    """The most memory that this process has had; getrusage would count what its parent had when it began."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "Linux says so"
    return int(found[1]) * 1024


def print_figures(figures: Iterator[Figure]) -> None:
    print(f"{'figure':66}{'median':>14}{'lowest':>14}{'highest':>14} {'unit':12}demanded")
    for one in figures:
        numbers = "".join(f"{value:>14,.4g}" for value in (one.median, one.lowest, one.highest))
        print(f"{one.name:66}{numbers} {one.unit:12}{one.verdict}", flush=True)
