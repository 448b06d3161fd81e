"""Traces for tests, event by event. Times are seconds."""

from stepsim import Trace
from stepsim.traces.trace import events_of


def event(kind, start_s, duration_s, *, device="gpu0", stream=7, **more):
    return {"kind": kind, "start_s": start_s, "duration_s": duration_s, "device": device, "stream": stream, **more}


def kernel(start_s, duration_s, name="sgemm", **more):
    return event("kernel", start_s, duration_s, name=name, **more)


def collective(start_s, duration_s, name="ncclKernel", **more):
    return event("collective", start_s, duration_s, name=name, **more)


def copy(start_s, duration_s, size_bytes, source="pinned", destination="device", **more):
    return event("copy", start_s, duration_s, size_bytes=size_bytes, source=source, destination=destination, **more)


def on_host(kind, start_s, duration_s, **more):
    return event(kind, start_s, duration_s, device="", stream=-1, thread=1, **more)


def trace_of(*events, **provenance):
    return Trace(events=events_of(events), provenance=provenance)
