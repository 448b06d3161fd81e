"""Where a verb may write, asked before it begins: what it reads stays, and what it will write can be."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.errors import FileError, StepsimError

if TYPE_CHECKING:
    from stepsim.traces.trace import Trace


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[str | Path | None]) -> None:
    """Refuse an output that is an input, under whatever name, two that are one file, and one that cannot be written.

    Asks only: nothing is made. None is an output or input that was not given. Inputs may be names of what ships, and
    then no file can be lost.
    """
    written = [path for path in outputs if path is not None]
    for path, read in product(written, inputs):
        if read is not None and os.path.exists(read) and _is_same(path, Path(read)):
            raise StepsimError(f"{read} would be replaced by what is made of it: give another output")
    for one, other in combinations(written, 2):
        if _is_same(one, other):
            raise StepsimError(f"{one} is given for two outputs: give another one")
    _check_places(written)


def _check_places(paths: Iterable[Path]) -> None:
    from stepsim.tables import check_place

    for path in paths:
        check_place(path)


def _is_same(one: Path, other: Path) -> bool:
    are_there = os.path.exists(one) and os.path.exists(other)
    return os.path.realpath(one) == os.path.realpath(other) or (are_there and os.path.samefile(one, other))


def check_picture(path: Path | None) -> None:
    """Refuse a picture whose suffix names no format. None is one that was not asked for."""
    if path is not None:
        from stepsim.plotting import check_suffix

        check_suffix(path)


def source_of(factory: str) -> Path:
    """Where the working directory has the module of ``factory`` (``package.module:factory``), if it has it."""
    return Path(f"{factory.partition(':')[0].replace('.', '/')}.py")


def save_together(traces: "Mapping[Path, Trace]") -> None:
    """Write each trace to its place, or none of them: what fails half-way leaves everything as it was."""
    staged = {target.with_name(f".{target.name}.{os.getpid()}.new"): target for target in traces}
    with no_empty_folder(*{target.parent for target in traces}):
        try:
            for part, target in staged.items():
                _make_folder_of(target)
                traces[target].save(part)
            for part, target in staged.items():
                part.replace(target)
        finally:
            for part in staged:
                with suppress(OSError):
                    part.unlink()


def _make_folder_of(target: Path) -> None:
    """Say of ``target`` itself what would else be said of what is written beside it first."""
    from stepsim.tables import check_place

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(target, "output", None, f"cannot be written: {error.strerror}") from error
    check_place(target)


@contextmanager
def no_empty_folder(*folders: Path) -> Iterator[None]:
    """Folders that are made within, and are still empty when it fails, are taken away again, with those around them."""
    new = [path for folder in folders for path in (folder, *folder.parents) if not os.path.exists(path)]
    try:
        yield
    except BaseException:
        for path in new:
            with suppress(OSError):
                path.rmdir()
        raise
