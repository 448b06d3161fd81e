"""Units. Inside, everything is SI: seconds, bytes, FLOP, bytes per second. People see ms, MiB and GB/s."""

import re

from stepsim.errors import StepsimError

KIB, MIB, GIB = 2**10, 2**20, 2**30

_SUFFIX_BYTES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": 2**40,
}


def parse_bytes(text: str, option: str | None = None) -> int:
    """Bytes of ``"8GiB"``, ``"512 MB"`` or ``"1000"``, to the nearest one. Without a unit, or in B, they are whole.

    Raises `StepsimError` for anything else; it names the ``option`` that was given ``text``.

    >>> parse_bytes("1.5 KiB")
    1536
    """
    match = re.fullmatch(r"\s*(\d{1,18})(\.\d{1,18})?\s*([A-Z]*)\s*", text, re.ASCII | re.IGNORECASE)
    unit_bytes = None if match is None else _SUFFIX_BYTES.get(match[3].upper())
    if match is None or unit_bytes is None or (match[2] and unit_bytes == 1):
        where = "" if option is None else f"{option}: "
        raise StepsimError(f"{where}a size looks like 8GiB, 512MB or 1000, got {text!r}")
    return round(float(match[1] + (match[2] or "")) * unit_bytes)


def format_bytes(size_bytes: float) -> str:
    """
    >>> format_bytes(3 * 2**20)
    '3.00 MiB'
    """
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:.2f} {unit}"
    return f"{size_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """
    >>> format_seconds(0.0123)
    '12.30 ms'
    """
    if abs(seconds) >= 1:
        return f"{seconds:.3f} s"
    if abs(seconds) >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.1f} us"
