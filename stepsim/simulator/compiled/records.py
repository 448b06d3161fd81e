"""The state of a run as arrays of records, and how functions on it are compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit

FULL = 1 + 1e-12
"""Shares of a device, or of a link's bandwidth, that add up to no more than this fit."""

NONE = -1
KERNEL, RELEASE, HOST, COPY, MEMBER = range(5)  # as stepsim.simulator.problem.RowKind
ISSUED, KERNEL_ENDS, LATENCY_ENDS, FLOW_ENDS = range(4)  # events of a stream
RESUMES, TURN_COMES, HOST_ENDS = range(3)  # events of a thread
READY, ENDS, MOVES, NEXT_STAGE, MOVED, ISSUES = range(6)  # what is to be done with a row; ISSUES: with a thread
HEAP, PENDING, ENDED, DEVICES, LINKS, ENGINES, JOINED, EPOCH, FLOWS, BINDING = range(10)  # counters

TASK = np.dtype(
    [
        ("kind", "i1"),
        ("blocks", "i1"),
        ("stream", "i4"),
        ("thread", "i4"),
        ("engine", "i4"),
        ("group", "i4"),
        ("path", "i4"),
        ("next_in_stream", "i4"),
        ("next_in_thread", "i4"),
        ("first_successor", "i4"),
    ],
    align=True,
)
PRICE = np.dtype([(name, "f8") for name in ("seconds", "launch_s", "size_bytes", "cap", "sm", "bandwidth")])
"""``seconds`` of a row that moves data is its latency."""

STREAM = np.dtype(
    [
        ("left", "f8"),
        ("rate", "f8"),
        ("since", "f8"),
        ("cap", "f8"),
        ("new", "f8"),
        ("sm", "f8"),
        ("bandwidth", "f8"),
        ("mark", "i8"),
        ("row", "i4"),
        ("device", "i4"),
        ("priority", "i4"),
        ("event", "i4"),
        ("next", "i4"),
        ("next_waiting", "i4"),
        ("stage", "i4"),
        ("first_node", "i4"),
        ("num_nodes", "i4"),
    ],
    align=True,
)
THREAD = np.dtype([("row", "i4"), ("event", "i4")])
DEVICE = np.dtype([("kernels", "i4"), ("moving", "i4"), ("dirty", "i4")])
ENGINE = np.dtype([("free", "i4"), ("waiting", "i4"), ("called", "i4")])
LINK = np.dtype(
    [
        ("capacity", "f8"),
        ("level", "f8"),
        ("mark", "i8"),
        ("flows", "i4"),
        ("open", "i4"),
        ("binds", "i4"),
        ("touched", "i4"),
    ]
)
GROUP = np.dtype([("first_member", "i4"), ("missing", "i4")])
STAGE = np.dtype([("volume", "f8"), ("rate", "f8"), ("first_link", "i4")], align=True)
CROSSING = np.dtype([("weight", "f8"), ("link", "i4")], align=True)
NODE = np.dtype([("weight", "f8"), ("stream", "i4"), ("link", "i4"), ("next", "i4"), ("before", "i4")], align=True)
EVENT = np.dtype([("time_s", "f8"), ("id", "i4")], align=True)
PENDING_ENTRY = np.dtype([("what", "i4"), ("number", "i4")])


Records = Any
"""A numpy array of one of the kinds above, or of plain numbers."""


class State(NamedTuple):
    """All arrays of a run. The last entry of tasks, groups, stages and paths only ends the lists of the one before."""

    tasks: Records
    prices: Records
    successors: Records
    waits: Records
    ready: Records  # until a row is ready: when it is issued, NaN before that is known
    start: Records
    end: Records
    streams: Records
    threads: Records
    devices: Records
    engines: Records
    links: Records
    groups: Records
    members: Records
    paths: Records
    stages: Records
    crossings: Records
    nodes: Records
    heap: Records
    places: Records
    pending: Records  # what is still to be done at this instant
    dirty_devices: Records
    touched_links: Records
    called_engines: Records
    joined: Records
    flows: Records
    binding: Records
    count: Records


F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: dict[str, Any] = {"_nrt": False}
"""A run makes no arrays, so nothing has to be counted (``_nrt``): with counting it is six times slower."""


def inline(function: F) -> F:
    """All that takes the whole state is made part of `advance`: a call would copy the headers of all its arrays."""
    return cast("F", njit(forceinline=True, **OPTIONS)(function))


def plain(function: F) -> F:
    return cast("F", njit(**OPTIONS)(function))


def cached(function: F) -> F:
    """Kept from process to process, and runs without the lock of the interpreter."""
    return cast("F", njit(nogil=True, cache=True, **OPTIONS)(function))
