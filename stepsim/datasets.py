"""Public measurements that calibrations and tests use: what there is, and how it is fetched.

The package holds none of them, only a table: for each file its repository, commit, path, checksum, size and licence.
"""

import csv
import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from stepsim.errors import StepsimError
from stepsim.tables import write_bytes

BASE_URL = "https://raw.githubusercontent.com"
FOLDER_VARIABLE = "STEPSIM_DATA"
TIMEOUT_S = 30
"""How long a server may be silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """``file`` is its place in the data folder; checksum and size are those of the original.

    A ``file`` that ends in .gz is a compressed copy, unless the original ends so too.
    """

    file: str
    repository: str
    commit: str
    path: str
    sha256: str
    size_bytes: int
    licence: str

    @property
    def source(self) -> str:
        return f"{self.repository}:{self.path}@{self.commit}"

    @property
    def is_compressed_here(self) -> bool:
        return self.file.endswith(".gz") and not self.path.endswith(".gz")

    def url(self, base_url: str) -> str:
        return f"{base_url}/{self.repository}/{self.commit}/{quote(self.path)}"


@cache
def known_files() -> tuple[DataFile, ...]:
    """All that can be fetched, in order of their places."""
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as table:
        return tuple(DataFile(size_bytes=int(row.pop("size_bytes")), **row) for row in csv.DictReader(table))


def files_named(names: Sequence[str]) -> list[DataFile]:
    """The files with these names and all files in the folders with these names; every known file for no name.

    Raises `StepsimError` for a name that is neither.
    """
    wanted: dict[str, DataFile] = {}
    for name in names:
        place = name.rstrip("/")
        found = [known for known in known_files() if known.file == place or known.file.startswith(f"{place}/")]
        if not found:
            folders = sorted({known.file.partition("/")[0] for known in known_files()})
            raise StepsimError(f"unknown data {name!r}; known: {', '.join(folders)}, and what stepsim data list names")
        wanted |= {known.file: known for known in found}
    return list(wanted.values()) if names else list(known_files())


def data_folder() -> Path:
    """What ``STEPSIM_DATA`` names if it is set, else a cache of the user."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    import pooch

    return Path(pooch.os_cache("stepsim"))


def is_present(known: DataFile, folder: Path) -> bool:
    """Whether ``folder`` has the file, whole and unchanged."""
    path = folder / known.file
    try:
        with gzip.open(path) if known.is_compressed_here else path.open("rb") as file:
            original = file.read(known.size_bytes + 1)
    except (OSError, EOFError, zlib.error):
        return False
    return hashlib.sha256(original).hexdigest() == known.sha256


def fetch(known: DataFile, folder: Path, *, base_url: str = BASE_URL) -> Path:
    """Download one file to its place in ``folder``; it appears there whole and unchanged, or not at all.

    Raises `StepsimError`, with file and address, when it cannot be had or is not the known one.
    """
    url, target = known.url(base_url), folder / known.file
    try:
        with tempfile.TemporaryDirectory(prefix="stepsim-") as scratch:
            original = _download(url, known.sha256, scratch)
    except (OSError, ValueError) as error:
        raise StepsimError(f"{known.file}: {url}: {_told(error)}") from error
    # No time in the header: the same original gives the same file.
    write_bytes(target, gzip.compress(original, mtime=0) if known.is_compressed_here else original)
    return target


def _download(url: str, sha256: str, scratch: str) -> bytes:
    """What is at ``url``. Raises `ValueError` for another checksum; what `requests` raises is an `OSError`."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT_S)
    path = pooch.retrieve(url, f"sha256:{sha256}", fname="original", path=scratch, downloader=downloader)
    return Path(path).read_bytes()


def _told(error: Exception) -> str:
    """Why a download failed, in a few words."""
    import requests

    match error:
        case requests.HTTPError(response=requests.Response(status_code=status)):
            return f"the server answered {status}"
        case requests.Timeout():
            return f"the server was silent for {TIMEOUT_S} s"
        case requests.exceptions.ChunkedEncodingError():
            return "the download broke off"
        case requests.RequestException():
            return "the server cannot be reached"
        case ValueError():
            return "another checksum than the known one: not kept"
        case _:
            return f"cannot be kept: {error}"
