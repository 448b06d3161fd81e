"""The events of a Chrome trace, a block at a time, so that a long trace is never in memory as a whole.

A block must end between two events. Those are parted by ``} , {``, but so may be the objects within one event, or words
of a text. So a cut is tried: what stands before a right one, closed by a bracket, is a JSON list; before a wrong one,
something is still open when the bracket has been read.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from stepsim.errors import FileError
from stepsim.traces.whole_files import Unzipped

BLOCK_BYTES = 2**18
"""What is parsed at once. Its objects stay in the cache of a core: blocks of 4 MiB took twice as long."""

MOST_AHEAD_BYTES = 2**25
"""The most that is held of a file in which no event ends. What recordings have behind their events takes some KiB."""

_BETWEEN = re.compile(rb"\}\s*,(?=\s*\{)")
_LIST_OPENS = re.compile(rb'"traceEvents"\s*:\s*\[')

_TRIES = 16
"""Cuts that are tried before more is read, as Kineto writes few lists of objects into an event. Where all are wrong
again and again, the file is read as a whole, if it is no longer than `MOST_AHEAD_BYTES`."""


class EventStream:
    """Iterating gives the entries of ``traceEvents``, or of a bare list, a list of them at a time.

    When all have been given, `header` holds the other keys of the document, wherever they stand. Iterating raises
    `FileError` for a file that cannot be read, is no such JSON, is a damaged gzip or a bomb.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}

    def __iter__(self) -> Iterator[list[Any]]:
        try:
            with Path(self.path).open("rb") as file:
                yield from self._blocks(_Text(self.path, file))
        except OSError as error:
            raise FileError(self.path, "file", None, f"cannot be read: {error.strerror}") from error

    def _blocks(self, text: "_Text") -> Iterator[list[Any]]:
        opening = _opening(text)
        while (entries := _whole_entries(text)) is not None:
            yield entries
        yield self._last_entries(opening + text.rest())

    def _last_entries(self, ending: bytes) -> list[Any]:
        """What is left between the opening and the end of the document is a document too, with all other keys."""
        try:
            document = orjson.loads(ending)
        except orjson.JSONDecodeError as error:
            raise FileError(self.path, "file", None, f"is not JSON: {error}") from error
        if isinstance(document, dict):
            self.header = document
            document = self.header.pop("traceEvents", None)
        if not isinstance(document, list):
            raise FileError(self.path, "traceEvents", None, "is missing: this is no Kineto trace")
        return document


class _Text:
    """A file, unzipped as it is read; ``ahead`` is what has been read and is not used yet."""

    def __init__(self, path: str | Path, file: io.BufferedReader) -> None:
        self.path = path
        self.ahead = b""
        self._file = Unzipped(path, file)

    def more(self) -> bool:
        """Reads as much as is ahead already, and at least a block. False at the end of the file.

        Raises `FileError` where more than `MOST_AHEAD_BYTES` are ahead.
        """
        read = self._file.read(max(BLOCK_BYTES, len(self.ahead)))
        if read and len(self.ahead) > MOST_AHEAD_BYTES:
            problem = f"no event ends within {MOST_AHEAD_BYTES} bytes, unzipped: this is no recorded trace"
            raise FileError(self.path, "traceEvents", None, problem)
        self.ahead += read
        return bool(read)

    def rest(self) -> bytes:
        """All that is still unused."""
        while self.more():
            pass
        return self.ahead


def _opening(text: _Text) -> bytes:
    """Takes from ``text`` what stands before the first entry; nothing, if no list of events opens in the file."""
    while text.more():
        if text.ahead.lstrip()[:1] == b"[":
            return _take(text, text.ahead.index(b"[") + 1)
        for match in _LIST_OPENS.finditer(text.ahead):
            if _is_object(text.ahead[: match.end()] + b"]}"):
                return _take(text, match.end())
    return b""


def _take(text: _Text, end: int) -> bytes:
    taken, text.ahead = text.ahead[:end], text.ahead[end:]
    return taken


def _is_object(text: bytes) -> bool:
    """Whether ``text`` is JSON, with nothing before its ``traceEvents`` left open."""
    try:
        return "traceEvents" in orjson.loads(text)
    except orjson.JSONDecodeError:
        return False


def _whole_entries(text: _Text) -> list[Any] | None:
    """Takes the next entries from ``text``; None when their list ends in what is ahead, or is damaged there."""
    while text.more():
        last_eighth = len(text.ahead) - len(text.ahead) // 8
        for cut in list(_BETWEEN.finditer(text.ahead, last_eighth))[: -_TRIES - 1 : -1]:
            try:
                entries: list[Any] = orjson.loads(b"[" + text.ahead[: cut.start() + 1] + b"]")
            except orjson.JSONDecodeError as error:
                if error.pos < len(error.doc) or not error.doc:
                    return None
            else:
                _take(text, cut.end())
                return entries
    return None
