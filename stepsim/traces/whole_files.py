"""Files of measurements that are read as a whole, plain or gzipped, but never more of one than it can honestly hold."""

import gzip
import os
import zlib
from pathlib import Path

from stepsim.errors import FileError

LARGEST_RATIO = 200
"""Gzip makes recorded traces 10 to 40 times smaller. What unpacks to more than this many times its size is a bomb."""

HARMLESS_BYTES = 2**24
"""What any machine can hold, however small the file that unpacks to it."""


def read_whole(path: str | Path, largest_bytes: int) -> bytes:
    """What ``path`` holds, unzipped; gzip is told by its first two bytes.

    Raises `FileError` for a file that cannot be read, is a damaged gzip or a bomb, or holds more than
    ``largest_bytes``.
    """
    try:
        with Path(path).open("rb") as file:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"
            file_bytes = os.fstat(file.fileno()).st_size
            expected_bytes = max(HARMLESS_BYTES, LARGEST_RATIO * file_bytes) if zipped else file_bytes
            stream = gzip.GzipFile(fileobj=file) if zipped else file
            content = stream.read(min(largest_bytes, expected_bytes) + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(path, "gzip", None, f"is truncated or damaged: {error}") from error
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    if len(content) > largest_bytes:
        raise FileError(path, "file", None, f"must hold at most {largest_bytes} bytes, unzipped")
    if zipped and len(content) > expected_bytes:
        problem = f"unpacks to more than {LARGEST_RATIO} times its size, as no recorded trace does"
        raise FileError(path, "gzip", None, problem)
    return content
