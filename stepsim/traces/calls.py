"""What the calls of the CUDA and HIP runtimes mean, as every profiler that sits on them records it."""

KINDS = (("Synchronize", "sync"), ("StreamWaitEvent", "wait"), ("EventRecord", "record"))
"""A part of a call's name, and the kind of event in a trace that the call is."""

NO_STREAM = 2**32 - 1
"""CUPTI_INVALID_STREAM_ID: what stands for the stream of a synchronisation with a whole device."""


def kind_of_call(name: str) -> str:
    """One of `KINDS`; any other call is host work, unless it turns out to have launched something."""
    return next((kind for part, kind in KINDS if part in name), "host")
