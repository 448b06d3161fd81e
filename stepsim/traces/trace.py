"""Trace: measured samples of one machine, with where they come from."""

import io
import json
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
        """Raises `FileError` if ``path`` holds no trace."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(io.BytesIO(Path(path).read_bytes()))
            table.validate(full=True)
            facts = table.schema.metadata or {}
            provenance = json.loads(facts.get(b"provenance", b"{}"))
            events = table.to_pandas()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FileError(path, "file", None, f"is not a trace: {error}") from error
        if not isinstance(provenance, dict) or not all(isinstance(fact, str) for fact in provenance.values()):
            raise FileError(path, "provenance", provenance, "must be facts as text")
        if facts.get(b"format") != FORMAT.encode():
            raise FileError(path, "format", facts.get(b"format"), f"must be {FORMAT}")
        missing = [column for column in COLUMNS if column not in table.column_names]
        if missing:
            raise FileError(path, "columns", missing, "are missing")
        for column, dtype in COLUMNS.items():
            if not _holds(events[column], dtype):
                raise FileError(path, column, str(events[column].dtype), f"must hold {dtype}")
            if events[column].isna().any():
                raise FileError(path, column, None, "must have a value in every row")
        for column, least in _LEAST.items():
            absurd = events.loc[~events[column].between(least, _LARGEST), column]
            if len(absurd):
                raise FileError(path, column, absurd.iloc[0].item(), f"must be from {least:g} to {_LARGEST:g}")
        return cls(events=events, provenance=provenance)


def _holds(column: pd.Series, dtype: str) -> bool:
    return pd.api.types.is_string_dtype(column) if dtype == "str" else bool(column.dtype == dtype)
