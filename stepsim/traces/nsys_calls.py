"""What host threads did in an Nsight Systems export: launches, synchronisations, waits and records of events.

Identities of events: NVIDIA, CUPTI, ``CUpti_ActivityCudaEvent2`` (docs.nvidia.com/cupti): an event may be recorded many
times under one ``eventId``; newer exports say with ``eventSyncId`` which of the records a synchronisation is for.
"""

from collections.abc import Mapping

import pandas as pd

from stepsim.traces.calls import NO_STREAM, kind_of_call
from stepsim.traces.nsys_tables import Export

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
_RECORDED = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"


def read_calls(export: Export, names: Mapping[int, str]) -> pd.DataFrame:
    """Runtime and driver calls: launches, syncs, waits, records, else host work."""
    calls = export.integers(CALLS, ["start", "end", "nameId", "correlationId"], {"globalTid": 0})
    calls["name"] = export.named(f"{CALLS}.nameId", calls["nameId"], names).str.replace(r"_v\d+$", "", regex=True)
    calls["globalPid"] = calls["globalTid"] // 2**24 * 2**24
    calls["kind"] = calls["name"].map({name: kind_of_call(name) for name in calls["name"].unique()}).astype("str")
    calls = calls.rename(columns={"correlationId": "correlation"}).assign(thread=calls["globalTid"] % 2**24)
    return _with_awaited(export, calls)


def _with_awaited(export: Export, calls: pd.DataFrame) -> pd.DataFrame:
    """Of each sync and wait the stream, and the call that recorded the event that it was for.

    An event may be recorded again and again under one id: the last record before the sync counts.
    """
    columns = ["correlationId", "streamId", "eventId"]
    joined = {"globalPid": 0, "eventSyncId": -1}
    records = _of_calls(export.integers(_RECORDED, columns, joined), calls)
    syncs = _of_calls(export.integers(_SYNCS, columns, joined), calls)
    streams = pd.concat([syncs, records]).drop_duplicates("call").set_index("call")["streamId"]
    known = streams[(streams >= 0) & (streams < NO_STREAM)]
    calls["stream"], calls["awaits"] = known.reindex(calls.index, fill_value=-1), -1
    by = ["globalPid", "eventSyncId" if (syncs["eventSyncId"] > 0).any() else "eventId"]
    found = pd.merge_asof(
        syncs.sort_values("start"), records.sort_values("start"), on="start", by=by, suffixes=("", "_recorded")
    ).dropna(subset="call_recorded")
    behind = found["call_recorded"].astype("int64")
    calls.loc[found["call"], "awaits"] = calls.loc[behind, "correlation"].to_numpy()
    of_event = found[calls.loc[found["call"], "kind"].to_numpy() == "sync"]
    calls.loc[of_event["call"], "stream"] = of_event["streamId_recorded"].astype("int64").to_numpy()
    return calls


def _of_calls(rows: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Rows with the call that each belongs to, and when it started."""
    keys = (
        calls[["globalPid", "correlation", "start"]]
        .assign(call=calls.index)
        .drop_duplicates(["globalPid", "correlation"])
    )
    return rows.merge(keys.rename(columns={"correlation": "correlationId"}), on=["globalPid", "correlationId"])
