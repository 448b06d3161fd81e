"""Files of measurements, plain or gzipped, of which never more is unpacked than they can honestly hold."""

import gzip
import io
import zlib
from pathlib import Path

from stepsim.errors import FileError

LARGEST_RATIO = 200
"""Gzip makes recorded traces 10 to 40 times smaller. What unpacks to more than this many times its size is a bomb."""

HARMLESS_BYTES = 2**24
"""What any machine can hold, however small the file that unpacks to it."""

PIECE_BYTES = 2**20
"""What is unpacked between two looks at how much has come of how little."""


class Unzipped:
    """An open file, unzipped as it is read; gzip is told by its first two bytes, not by the file's name."""

    def __init__(self, path: str | Path, file: io.BufferedReader) -> None:
        self.path = path
        self._packed = file
        self._zipped = file.peek(2)[:2] == b"\x1f\x8b"
        self._file = gzip.GzipFile(fileobj=file) if self._zipped else file
        self._read_bytes = 0

    def read(self, size_bytes: int) -> bytes:
        """The next ``size_bytes``, or what is left of them.

        Raises `FileError` for a damaged gzip, and for a bomb as soon as it shows: by what has been unpacked so far, and
        the bytes that it came of.
        """
        pieces = io.BytesIO()
        while pieces.tell() < size_bytes and (piece := self._piece(min(PIECE_BYTES, size_bytes - pieces.tell()))):
            pieces.write(piece)
        return pieces.getvalue()

    def _piece(self, size_bytes: int) -> bytes:
        try:
            piece = self._file.read(size_bytes)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(self.path, "gzip", None, f"is truncated or damaged: {error}") from error
        self._read_bytes += len(piece)
        if self._zipped and self._read_bytes > max(HARMLESS_BYTES, LARGEST_RATIO * self._packed.tell()):
            problem = f"unpacks to more than {LARGEST_RATIO} times its size, as no recorded trace does"
            raise FileError(self.path, "gzip", None, problem)
        return piece


def read_whole(path: str | Path, largest_bytes: int) -> bytes:
    """What ``path`` holds, unzipped.

    Raises `FileError` for a file that cannot be read, is a damaged gzip or a bomb, or holds more than
    ``largest_bytes``.
    """
    try:
        with Path(path).open("rb") as file:
            content = Unzipped(path, file).read(largest_bytes + 1)
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    if len(content) > largest_bytes:
        raise FileError(path, "file", None, f"must hold at most {largest_bytes} bytes, unzipped")
    return content
