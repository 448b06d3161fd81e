"""Frozen structs of columns: they compare by value, have a digest, and go to and from one zip of Parquet tables.

A file is a zip with ``meta.json`` (format, version and small facts) and one Parquet member for each table. A list of
integers in a column is a `Ragged`. Reading executes nothing.
"""

import gzip
import hashlib
import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Self, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import FileError


@dataclass(frozen=True, eq=False)
class Ragged:
    """Lists of integers of different lengths, stored end to end (CSR).

    List ``i`` is ``values[starts[i]:starts[i + 1]]``; ``starts`` has one entry more than there are lists.
    """

    starts: NDArray[np.int64]
    values: NDArray[np.int64]

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> Self:
        starts = np.zeros(len(lists) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, lists), np.int64, len(lists)), out=starts[1:])
        return cls(starts, np.fromiter(chain.from_iterable(lists), np.int64, starts[-1]))

    @classmethod
    def from_pairs(cls, owners: NDArray[np.int64], values: NDArray[np.int64], size: int) -> Self:
        """``size`` lists: in list ``i`` the values whose owner is ``i``, in order, each once. No value is negative."""
        span = int(values.max(initial=0)) + 1
        owners, values = np.divmod(np.unique(owners * span + values), span)
        return cls(np.searchsorted(owners, np.arange(size + 1)), values)

    @classmethod
    def chained(cls, parts: Sequence["Ragged"]) -> Self:
        """The lists of all ``parts``, one part after the other."""
        lengths = np.concatenate([np.diff(part.starts) for part in parts])
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(starts, np.concatenate([part.values for part in parts]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        return self.values[self.starts[index] : self.starts[index + 1]]

    @property
    def is_whole(self) -> bool:
        """Whether ``starts`` divides ``values`` into lists, with nothing left over."""
        starts = self.starts
        ends_match = len(starts) > 0 and starts[0] == 0 and starts[-1] == len(self.values)
        return bool(ends_match and (np.diff(starts) >= 0).all())

    def owners(self) -> NDArray[np.int64]:
        """For each value, the list that it belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.starts))

    def to_lists(self) -> list[list[int]]:
        flat = self.values.tolist()
        bounds = self.starts.tolist()
        return [flat[a:b] for a, b in pairwise(bounds)]


VERSION = 2
"""Of all files of stepsim. Another number means that fields have changed."""

Column = NDArray[Any] | Ragged | tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Columns:
    """A frozen table: each field is a numpy array, a `Ragged` or a tuple of strings, all of one length."""

    def __len__(self) -> int:
        names = fields(self)
        return len(getattr(self, names[0].name)) if names else 0

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return len(self) == len(other) and self.digest() == other.digest()

    __hash__ = None  # type: ignore[assignment]

    def columns(self) -> dict[str, Column]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def digest(self) -> str:
        """SHA-256 over names, dtypes and values of all columns."""
        digest = hashlib.sha256()
        for name, column in self.columns().items():
            digest.update(f"{type(self).__name__}.{name}:".encode())
            for part in _parts(column):
                digest.update(part)
        return digest.hexdigest()


def column_types(kind: type[Columns]) -> dict[str, type]:
    """What each column of ``kind`` holds: a numpy scalar type, `Ragged`, or ``str`` for a tuple of strings."""
    hints = get_type_hints(kind)
    return {field.name: _held(hints[field.name]) for field in fields(kind)}


def _held(hint: Any) -> Any:
    if hint is Ragged:
        return Ragged
    if get_origin(hint) is tuple:
        return str
    (scalar,) = get_args(get_args(hint)[1])
    return scalar


def _parts(column: Column) -> Iterable[bytes | memoryview]:
    match column:
        case tuple():
            yield json.dumps(column).encode()
        case Ragged():
            yield np.ascontiguousarray(column.starts, dtype="<i8").data
            yield np.ascontiguousarray(column.values, dtype="<i8").data
        case _:
            yield column.dtype.str.encode()
            yield np.ascontiguousarray(column).data


def write_zip(path: str | Path, meta: Mapping[str, object], tables: Mapping[str, Columns]) -> None:
    """Write ``meta`` and ``tables`` to ``path``: all of it, or nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(_entry("meta.json"), json.dumps({"version": VERSION, **meta}, indent=1))
        for name, table in tables.items():
            columns = {key: _to_arrow(column) for key, column in table.columns().items()}
            member = io.BytesIO()
            pq.write_table(pa.table(columns), member, compression="zstd")
            archive.writestr(_entry(f"{name}.parquet"), member.getvalue())
    write_bytes(path, buffer.getvalue())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write ``content`` to ``path``: all of it, or nothing."""
    write_chunks(path, [content])


def write_chunks(path: str | Path, chunks: Iterable[bytes]) -> None:
    """Write to a temporary file beside ``path``, then rename, so that nobody sees half a file."""
    path = Path(path)
    check_place(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.writelines(chunks)
        temporary.replace(path)
    except OSError as error:
        raise FileError(path, "output", None, f"cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def check_place(path: Path) -> None:
    """Raises `FileError` where no file can come to; makes nothing.

    That is where ``path`` names none, is there and is none, or where the folder to make it in cannot be changed.
    """
    if not path.name:
        raise FileError(path, "output", None, "names no file")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        pass
    except OSError as error:
        raise FileError(path, "output", None, f"cannot be written: {error.strerror}") from error
    else:
        _check_replaceable(path, mode)
    folder = next(filter(os.path.exists, path.parents), path.parent)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(path, "output", None, f"cannot be written: nothing can be made in {folder}")


def _check_replaceable(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise FileError(path, "output", None, "cannot be written: Is a directory")
    if not stat.S_ISREG(mode):
        raise FileError(path, "output", None, "is no file, and would be replaced by a file")


def read_meta(path: str | Path) -> dict[str, Any] | None:
    """``meta.json`` of a zip written by `write_zip`; ``None`` when ``path`` is no such file."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = json.loads(archive.read("meta.json"))
    except _UNREADABLE:
        return None
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else None


_UNREADABLE = (OSError, EOFError, KeyError, ValueError, NotImplementedError, zlib.error, zipfile.BadZipFile)
"""What reading a member of a damaged or foreign zip can raise."""


def read_zip(path: str | Path, form: str, tables: Mapping[str, type[Columns]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Meta and tables of a file of format ``form``. Raises `FileError` if it is anything else."""
    if not Path(path).is_file():
        raise FileError(path, "file", None, "is no file" if Path(path).exists() else "does not exist")
    meta = read_meta(path)
    if meta is None:
        raise FileError(path, "format", None, f"must be {form}: {_what_is_wrong(path)}")
    if meta.get("format") != form:
        raise _of_another(path, "format", meta, f"must be {form}")
    _check_version(path, meta)
    with zipfile.ZipFile(path) as archive:
        return meta, {name: _read_table(path, archive, name, kind) for name, kind in tables.items()}


def _what_is_wrong(path: str | Path) -> str:
    """With a file in which `read_meta` finds nothing."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(20)
        if not head:
            return "the file is empty"
        if not head.startswith(b"PK"):
            return f"the file is no zip, it begins with {head!r}"
        with zipfile.ZipFile(path) as archive:
            return "the zip is damaged" if "meta.json" in archive.namelist() else "the zip has no meta.json"
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    except _UNREADABLE:
        return "the zip is damaged or cut off"


T = TypeVar("T", bound=Columns)


def _read_table(path: str | Path, archive: zipfile.ZipFile, name: str, kind: type[T]) -> T:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(archive.read(f"{name}.parquet")))
        columns = {key: _from_arrow(table[key]) for key in column_types(kind)}
    except (*_UNREADABLE, pa.ArrowException) as error:
        raise FileError(path, f"table {name}", None, f"cannot be read: {error}") from error
    for key, wanted in column_types(kind).items():
        if not _holds(columns[key], wanted):
            raise FileError(path, f"table {name}", str(table[key].type), f"column {key} must hold {wanted.__name__}")
    return kind(**columns)


def _holds(column: Column, wanted: type) -> bool:
    match column:
        case tuple():
            return wanted is str and None not in column
        case Ragged():
            return wanted is Ragged and column.values.dtype == np.int64
        case _:
            return column.dtype == wanted


def write_json(path: str | Path, body: Mapping[str, object]) -> None:
    """Write ``body`` as readable JSON: all of it, or nothing. Where ``path`` ends in .gz, its gzip."""
    content = json.dumps({"version": VERSION, **body}, indent=1).encode()
    write_bytes(path, gzip.compress(content, mtime=0) if Path(path).suffix == ".gz" else content)


LARGEST_JSON_BYTES = 2**28
"""Unzipped. A workload of 2,000 ops takes about 2 MB."""


def read_json_bytes(path: str | Path) -> bytes:
    """What a JSON file holds, unzipped; gzip is told by its first two bytes. Raises `FileError`."""
    try:
        with Path(path).open("rb") as file:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"
            content = (gzip.GzipFile(fileobj=file) if zipped else file).read(LARGEST_JSON_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(path, "gzip", None, f"is truncated or damaged: {error}") from error
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    if len(content) > LARGEST_JSON_BYTES:
        raise FileError(path, "file", None, f"must hold at most {LARGEST_JSON_BYTES} bytes, unzipped")
    return content


def read_json(path: str | Path, form: str) -> dict[str, Any]:
    """The object in a JSON file whose ``format`` is ``form``. Raises `FileError` if it is anything else."""
    content = read_json_bytes(path)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        if (meta := read_meta(path)) is not None:
            raise _of_another(path, "format", meta, f"must be {form}") from error
        raise FileError(path, "file", None, f"is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise FileError(path, "format", type(body).__name__, f"must be {form}")
    if body.get("format") != form:
        raise _of_another(path, "format", body, f"must be {form}")
    _check_version(path, body)
    return body


def _check_version(path: str | Path, meta: Mapping[str, Any]) -> None:
    if meta.get("version") != VERSION:
        raise _of_another(path, "version", meta, f"must be {VERSION}: another stepsim wrote it")


def _of_another(path: str | Path, field: str, facts: Mapping[str, Any], problem: str) -> FileError:
    """What to raise where a file tells another ``field`` of itself, or null, or none."""
    nothing = "null" if field in facts else "none"
    found = facts.get(field)
    return FileError(path, field, found, f"{problem}, got {nothing}" if found is None else problem)


def _entry(name: str) -> zipfile.ZipInfo:
    """A member with a fixed date, so that equal content gives equal bytes."""
    return zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))


def _to_arrow(column: Column) -> Any:
    import pyarrow as pa

    match column:
        case tuple():
            return pa.array(column, type=pa.string())
        case Ragged():
            return pa.LargeListArray.from_arrays(column.starts, column.values)
        case _:
            return pa.array(column)


def _from_arrow(column: Any) -> Column:
    import pyarrow as pa

    flat = column.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks) if flat.num_chunks else pa.array([], type=flat.type)
    if pa.types.is_string(flat.type):
        return tuple(flat.to_pylist())
    if pa.types.is_large_list(flat.type):
        starts = flat.offsets.to_numpy().astype(np.int64)
        return Ragged(starts - starts[0], flat.flatten().to_numpy(zero_copy_only=False))
    return cast("NDArray[Any]", flat.to_numpy(zero_copy_only=False))
