"""Tiny exports of Nsight Systems, written row by row with the documented tables. Times are nanoseconds.

Tables and columns: NVIDIA, Nsight Systems, "SQLite Export Schema Reference".
"""

import sqlite3
from contextlib import closing

PROCESS = 41
THREAD = 41

TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, totalMemory INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
    " demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
    " bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
    " value INTEGER NOT NULL, bytes INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,"
    " syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
    " streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL,"
    " eventSyncId INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, graphId INTEGER NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,"
    " textId INTEGER",
}

EVENT, STREAM_WAIT, STREAM, CONTEXT = 1, 2, 3, 4
"""CUpti_ActivitySynchronizationType."""

ALL_STREAMS = 2**32 - 1


class NsysFile:
    """Collects rows; `write` makes the file, with the tables that have rows, as nsys does."""

    def __init__(self, *, process=PROCESS, device=0):
        self.rows = {}
        self.strings = {}
        self.process, self.device = process, device

    def add(self, table, **values):
        self.rows.setdefault(table, []).append(values)

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.add("StringIds", id=self.strings[text], value=text)
        return self.strings[text]

    def gpu(self, number, name, memory_bytes):
        self.add("TARGET_INFO_GPU", id=number, name=name, totalMemory=memory_bytes)

    def call(self, start, end, name, correlation=0, *, thread=THREAD):
        identity = self.process << 24 | thread
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=0,
            globalTid=identity,
            correlationId=correlation,
            nameId=self.string(name),
            returnValue=0,
        )

    def on_device(self, table, start, end, correlation, stream, **values):
        place = {"deviceId": self.device, "contextId": 1, "streamId": stream, "globalPid": self.process << 24}
        timed = {"start": start, "end": end, "correlationId": correlation}
        self.add(f"CUPTI_ACTIVITY_KIND_{table}", **timed, **place, **values)

    def kernel(self, start, end, correlation, *, stream=7, name="gemm"):
        names = {"demangledName": self.string(name), "shortName": self.string(name.partition("<")[0])}
        self.on_device("KERNEL", start, end, correlation, stream, **names)

    def launched(self, at, correlation, *, stream=7, name="gemm"):
        """A launch of 5 ns, and its kernel of 100 ns, 10 ns later."""
        self.call(at, at + 5, "cudaLaunchKernel_v7000", correlation)
        self.kernel(at + 15, at + 115, correlation, stream=stream, name=name)

    def copy(self, start, end, correlation, size_bytes, kinds, *, stream=7):
        values = dict(zip(("copyKind", "srcKind", "dstKind"), kinds, strict=True))
        self.on_device("MEMCPY", start, end, correlation, stream, bytes=size_bytes, **values)

    def sync(self, start, end, name, correlation, kind, *, stream=ALL_STREAMS, event=0, event_sync=-1):
        self.call(start, end, name, correlation)
        values = {"syncType": kind, "eventId": event, "eventSyncId": event_sync}
        self.on_device("SYNCHRONIZATION", start, end, correlation, stream, **values)

    def record(self, at, correlation, stream, event, *, event_sync=-1):
        self.call(at, at + 1, "cudaEventRecord_v3020", correlation)
        place = {"deviceId": self.device, "contextId": 1, "streamId": stream, "globalPid": self.process << 24}
        facts = {"correlationId": correlation, "eventId": event, "eventSyncId": event_sync}
        self.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **place, **facts)

    def range(self, start, end, name, *, by_id=False, kind=59):
        text = {"textId": self.string(name)} if by_id else {"text": name}
        identity = self.process << 24 | THREAD
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=identity, **text)

    def write(self, path):
        with closing(sqlite3.connect(path)) as connection, connection:
            for table, rows in self.rows.items():
                connection.execute(f"CREATE TABLE {table} ({TABLES[table]})")
                for row in rows:
                    marks = ", ".join("?" * len(row))
                    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
        return path
