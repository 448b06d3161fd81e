"""Trace: measured samples of one machine, with where they come from."""

import io
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pandas as pd

from stepsim.errors import FileError
from stepsim.tables import write_bytes

FORMAT = "stepsim-trace"

COLUMNS: dict[str, str] = {
    "kind": "str",  # kernel, collective, copy, memset, launch, sync, record, wait, host, step
    "name": "str",  # kernel or function name, as recorded
    "device": "str",  # gpu0, cpu0, ...; empty for host events
    "stream": "int64",  # -1 where there is none
    "thread": "int64",  # host thread, -1 where there is none
    "start_s": "float64",
    "duration_s": "float64",
    "correlation": "int64",  # ties a launch to its kernel or copy; -1 where there is none
    "awaits": "int64",  # of a sync or wait: correlation of the call that recorded what it waits for; -1 if unknown
    "size_bytes": "int64",  # moved by copies and collectives, read and written by timed work; 0 elsewhere
    "flop": "int64",  # of timed work; 0 elsewhere
    "source": "str",  # where a copy comes from: device, pageable, pinned, host; empty elsewhere
    "destination": "str",
    "work": "str",  # signature of the work that was timed; in_place or out_of_place for nccl-tests; else empty
}
"""Columns of `Trace.events` with their dtypes.

A ``record`` is a host call that marks a place in a stream (``cudaEventRecord``); a ``wait`` tells ``stream`` to go on
only when what was recorded is done (``cudaStreamWaitEvent``), while its thread goes on at once; a ``sync`` holds the
thread.
"""

ABSENT: dict[str, str | float | int] = {
    "name": "",
    "device": "",
    "stream": -1,
    "thread": -1,
    "correlation": -1,
    "awaits": -1,
    "size_bytes": 0,
    "flop": 0,
    "source": "",
    "destination": "",
    "work": "",
}
"""What stands in a column that an event has nothing to say in; every event has a kind, a start and a duration."""


HARMLESS_ROWS = 2**17
"""What any machine can hold, however small the file. Beyond, an event takes more than a byte: recorded ones take 10."""

_LARGEST = 2.0**53
"""Beyond, float64 does not tell whole numbers apart, and nothing that is measured comes near."""

_LEAST = {"start_s": -_LARGEST, "duration_s": 0.0, "size_bytes": 0.0, "flop": 0.0}


def events_of(rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Events from rows that give some of the columns, the rest filled with `ABSENT`."""
    return pd.DataFrame([{**ABSENT, **row} for row in rows], columns=list(COLUMNS)).astype(COLUMNS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """Events (columns `COLUMNS`, times in seconds) and provenance: text facts such as file, gpu, versions, date."""

    events: pd.DataFrame
    provenance: Mapping[str, str]

    def __post_init__(self) -> None:
        missing = [column for column in COLUMNS if column not in self.events.columns]
        assert not missing, f"trace lacks columns {missing}"

    def of(self, *kinds: str) -> pd.DataFrame:
        """The events of these kinds."""
        return self.events[self.events["kind"].isin(kinds)]

    def save(self, path: str | Path) -> None:
        """One Parquet file; the provenance is in its schema."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(self.events[list(COLUMNS)], preserve_index=False)
        facts = {"format": FORMAT, "provenance": json.dumps(dict(self.provenance))}
        buffer = io.BytesIO()
        pq.write_table(table.replace_schema_metadata(facts), buffer, compression="zstd")
        write_bytes(path, buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Raises `FileError` if ``path`` holds no trace. Warns once of unknown columns, and leaves them out."""
        events, facts = _read(path)
        provenance = _provenance(path, facts)
        missing = [column for column in COLUMNS if column not in events]
        if missing:
            raise FileError(path, "columns", missing, "are missing")
        new = [column for column in events if column not in COLUMNS]
        if new:
            told = ", ".join(map(repr, new))[:80]
            warnings.warn(f"{path}: columns that are not known are left out: {told}", stacklevel=2)
        _check_values(path, events)
        return cls(events=events[list(COLUMNS)], provenance=provenance)


def _read(path: str | Path) -> tuple[pd.DataFrame, Mapping[bytes, bytes]]:
    """The table and the facts in its schema. A column of equal values is written as one, so that rows are bounded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        content = Path(path).read_bytes()
        file = pq.ParquetFile(io.BytesIO(content))
        rows, most_rows = file.metadata.num_rows, max(HARMLESS_ROWS, len(content))
        if rows > most_rows:
            raise FileError(path, "rows", rows, f"must be at most {most_rows} in a file of {len(content)} bytes")
        table = file.read()
        table.validate(full=True)
        return table.to_pandas(), table.schema.metadata or {}
    except FileError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FileError(path, "file", None, f"is not a trace: {error}") from error


def _provenance(path: str | Path, facts: Mapping[bytes, bytes]) -> dict[str, str]:
    if facts.get(b"format") != FORMAT.encode():
        raise FileError(path, "format", facts.get(b"format"), f"must be {FORMAT}")
    try:
        provenance = json.loads(facts.get(b"provenance", b"{}"))
    except ValueError as error:
        raise FileError(path, "provenance", None, f"is not JSON: {error}") from error
    if not isinstance(provenance, dict) or not all(isinstance(fact, str) for fact in provenance.values()):
        raise FileError(path, "provenance", provenance, "must be facts as text")
    return provenance


def _check_values(path: str | Path, events: pd.DataFrame) -> None:
    for column, dtype in COLUMNS.items():
        if not _holds(events[column], dtype):
            raise FileError(path, column, str(events[column].dtype), f"must hold {dtype}")
        if events[column].isna().any():
            raise FileError(path, column, None, "must have a value in every row")
    for column, least in _LEAST.items():
        absurd = events.loc[~events[column].between(least, _LARGEST), column]
        if len(absurd):
            raise FileError(path, column, absurd.iloc[0].item(), f"must be from {least:g} to {_LARGEST:g}")


def _holds(column: pd.Series, dtype: str) -> bool:
    return pd.api.types.is_string_dtype(column) if dtype == "str" else bool(column.dtype == dtype)
