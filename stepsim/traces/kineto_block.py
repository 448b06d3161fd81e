"""Some events of a trace, each field checked where it enters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import FileError

_LARGEST_US = 1e17
"""Year 5138 in microseconds; far beyond, float64 cannot tell one microsecond from the next."""


class Block:
    """The complete events of known ``categories`` among ``entries``, of which the first stands at place ``first``.

    ``places``, ``kinds``, ``names`` and ``args`` are theirs, one for each of ``events``. A field of a wrong type or an
    absurd value raises `FileError`, here and in the methods.
    """

    def __init__(self, path: str | Path, entries: list[Any], first: int, categories: Mapping[str, str]) -> None:
        self.path = path
        self.places: list[int] = []
        self.kinds: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._rows: dict[str, list[int]] = {kind: [] for kind in categories.values()}
        for place, entry in enumerate(entries, first):
            if not isinstance(entry, dict):
                raise FileError(path, f"traceEvents[{place}]", entry, "must be an object")
            category = entry.get("cat")
            kind = categories.get(category.lower()) if isinstance(category, str) else None
            if kind is not None and entry.get("ph") == "X":
                self._rows[kind].append(len(self.events))
                self.places.append(place)
                self.kinds.append(kind)
                self.events.append(entry)
        self.names: list[str] = self._fields("name", {str}, "text")
        self.args: list[dict[str, Any]] = self._fields("args", {dict}, "an object", {})

    def rows_of(self, *kinds: str) -> list[int]:
        return [row for kind in kinds for row in self._rows[kind]]

    def times_us(self, key: str) -> NDArray[np.float64]:
        values = self._fields(key, {int, float}, "a number of microseconds")
        times_us = np.array(values, dtype=np.float64)
        for row in np.flatnonzero(~(np.abs(times_us) <= _LARGEST_US)).tolist():
            raise self._refusal(row, key, values[row], f"must be within {_LARGEST_US:g} microseconds")
        return times_us

    def durations_us(self, key: str) -> NDArray[np.float64]:
        durations_us = self.times_us(key)
        for row in np.flatnonzero(durations_us < 0).tolist():
            raise self._refusal(row, key, self.events[row][key], "must be >= 0 microseconds")
        return durations_us

    def ids(self, key: str) -> NDArray[np.int64]:
        """The argument ``key``, -1 for anything that is no id."""
        values = [args.get(key) for args in self.args]
        ids = [value if type(value) is int and 0 < value < 2**63 else -1 for value in values]
        return np.array(ids, dtype=np.int64)

    def arguments(self, rows: list[int], key: str, otherwise: str) -> list[object]:
        """The argument ``key`` of ``rows``, or the field ``otherwise`` where it is absent."""
        return [self.args[row].get(key, self.events[row].get(otherwise)) for row in rows]

    def integers(self, rows: list[int], field: str, values: list[Any]) -> NDArray[np.int64]:
        """One of ``values`` for each of ``rows``, and -1 for other rows; of text such as ``"stream 7"`` its number."""
        if not {int}.issuperset(map(type, values)) or max(map(abs, values), default=0) >= 2**63:
            values = [self._integer(row, value, field) for row, value in zip(rows, values, strict=True)]
        integers = np.full(len(self.events), -1, dtype=np.int64)
        integers[rows] = values
        return integers

    def _integer(self, row: int, value: object, field: str) -> int:
        number = _from_text(value) if isinstance(value, str) else value
        if type(number) is not int or abs(number) >= 2**63:
            raise self._refusal(row, field, value, f"must be an integer, not {_type(value)}")
        return number

    def _fields(self, key: str, types: set[type], what: str, absent: object = None) -> list[Any]:
        values = [event.get(key, absent) for event in self.events]
        if not types.issuperset(map(type, values)):
            row = next(row for row, value in enumerate(values) if type(value) not in types)
            raise self._refusal(row, key, values[row], f"must be {what}, not {_type(values[row])}")
        return values

    def _refusal(self, row: int, key: str, value: object, problem: str) -> FileError:
        return FileError(self.path, f"traceEvents[{self.places[row]}].{key}", value, problem)


def _from_text(text: str) -> int | None:
    """The number in text such as ``"1234"`` or ``"stream 7"``, which older traces have."""
    digits = text.removeprefix("stream ")
    is_number = digits.isascii() and digits.removeprefix("-").isdigit() and len(digits) < 20
    return int(digits) if is_number else None


def _type(value: object) -> str:
    return "missing" if value is None else type(value).__name__
