"""How many bytes an event of a Kineto trace moved, as far as the trace says it."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from stepsim.traces.log_lines import LARGEST_BYTES

ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "qint8", "quint8", "quint4x2", "quint2x4"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("float4_e2m1fn_x2", "bits8", "bits4x2", "bits2x4", "bits1x8"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "uint16", "bits16"), 2),
    **dict.fromkeys(("float", "int", "uint32", "qint32", "complexhalf"), 4),
    **dict.fromkeys(("double", "long", "uint64", "complexfloat"), 8),
    "complexdouble": 16,
}
"""PyTorch's scalar types (c10/core/ScalarType.h), in lower case, as the ``dtype`` of NCCL kernels names them."""


def is_size(value: object) -> TypeGuard[int]:
    """Whether ``value`` can be a number of bytes or elements."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_BYTES


def size_bytes(kind: str, args: Mapping[str, Any]) -> int | None:
    """Bytes of a copy or memset; of a collective what one member contributes, or gets if it contributes nothing.

    Also what a call of the HIP runtime was told to copy. Zero where the trace says nothing; None for what can be no
    size. ``kind`` is one of `CATEGORIES` of `stepsim.traces.kineto_events`.
    """
    size: object = 0
    if kind in ("copy", "memset"):
        size = args.get("bytes", 0)
    elif kind == "kernel" and "In msg nelems" in args:
        size = _message_bytes(args)
    elif kind == "call":
        size = _told_bytes(args)
    return size if is_size(size) else None


def _message_bytes(args: Mapping[str, Any]) -> int | None:
    elements = args["In msg nelems"] or args.get("Out msg nelems", 0)
    element_bytes = ELEMENT_BYTES.get(str(args.get("dtype")).lower())
    return elements * element_bytes if is_size(elements) and element_bytes else None


def _told_bytes(args: Mapping[str, Any]) -> int:
    """The HIP runtime writes numbers as text, under a name that changed; nothing else in a call tells a size."""
    told = args.get("bytes", args.get("size"))
    return int(told) if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) < 16 else 0
