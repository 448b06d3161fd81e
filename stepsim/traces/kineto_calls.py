"""What the runtime calls of a Kineto trace did, beyond what their names say."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from stepsim.traces.calls import NO_STREAM
from stepsim.traces.kineto_sizes import is_size

Notes = Mapping[int, Mapping[str, Any]]

_RECORD = "wait_on_cuda_event_record_corr_id"
"""Names the call that recorded the event, by its correlation."""


def tell_launches(rows: pd.DataFrame, on_device: pd.Series) -> None:
    """A call whose correlation something on a device has too is a launch; other calls are host work.

    A copy that says nothing of its size has that of its launch.
    """
    is_call = rows["kind"] == "call"
    is_launch = is_call & rows["correlation"].isin(rows.loc[on_device, "correlation"])
    rows.loc[is_launch, "kind"] = "launch"
    rows.loc[is_call & ~is_launch, "kind"] = "host"
    launches = rows[is_launch & (rows["size_bytes"] > 0)].drop_duplicates("correlation")
    sizes_bytes = launches.set_index("correlation")["size_bytes"]
    silent = (rows["kind"] == "copy") & (rows["size_bytes"] == 0)
    rows.loc[silent, "size_bytes"] = rows.loc[silent, "correlation"].map(sizes_bytes).fillna(0).astype("int64")
    rows.loc[~on_device, "size_bytes"] = 0


def tell_waits(rows: pd.DataFrame, notes: Notes) -> None:
    """Sets ``awaits``, and ``stream`` of synchronisations, waits and records, from the notes of newer traces.

    They say which stream, and which recorded event, a call was for.
    """
    recorded = {_number(args, _RECORD): _stream(args, "wait_on_stream") for args in notes.values()}
    awaits, stream = np.full(len(rows), -1), rows["stream"].to_numpy(copy=True)
    kinds, ids = rows["kind"].to_numpy(), rows["correlation"].to_numpy()
    for row in np.flatnonzero(rows["kind"].isin(("sync", "wait", "record"))):
        note = notes.get(ids[row], {})
        if kinds[row] == "record":
            stream[row] = recorded.get(ids[row], -1)
        else:
            awaits[row] = _number(note, _RECORD)
            stream[row] = _stream(note, *(("wait_on_stream",) if kinds[row] == "sync" else ()), "stream")
    rows["awaits"], rows["stream"] = awaits, stream


def _number(args: Mapping[str, Any], key: str) -> int:
    value = args.get(key)
    return value if is_size(value) and value > 0 else -1


def _stream(args: Mapping[str, Any], *keys: str) -> int:
    """The first of ``keys`` that is there, where it names one stream."""
    value = next((args[key] for key in keys if key in args), None)
    return value if is_size(value) and value < NO_STREAM else -1
