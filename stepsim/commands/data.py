"""The verbs about the public measurements that calibrations and tests use."""

from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.commands.options import STDOUT, AsJson, print_json, print_result

if TYPE_CHECKING:
    from stepsim.datasets import DataFile

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Files or folders of the list; else all.")]


def fetch(names: Names = None, as_json: AsJson = False) -> None:
    """Download public measurements, each checked against its known checksum. What is there already is kept."""
    from stepsim import datasets
    from stepsim.progress import progress

    folder, files = datasets.data_folder(), datasets.files_named(names or [])
    missing = [known for known in files if not datasets.is_present(known, folder)]
    if missing:
        with progress("fetching") as tick:
            for done, known in enumerate(missing):
                tick(done, len(missing))
                datasets.fetch(known, folder)
            tick(len(missing), len(missing))
    told = f"{len(missing)} fetched, {len(files) - len(missing)} were there -> {folder}"
    print_result(told, {"folder": str(folder), "fetched": [known.file for known in missing]}, as_json)


def list_(names: Names = None, as_json: AsJson = False) -> None:
    """List what can be fetched, with size, licence and source, and whether it is here."""
    from stepsim.datasets import data_folder, files_named, is_present
    from stepsim.text_table import print_table
    from stepsim.units import format_bytes

    folder, files = data_folder(), files_named(names or [])
    facts = [_facts(known) | {"here": is_present(known, folder)} for known in files]
    rows = [
        (known.file, format_bytes(known.size_bytes), "yes" if fact["here"] else "no", known.licence, known.repository)
        for known, fact in zip(files, facts, strict=True)
    ]
    print_table(STDOUT, str(folder), ("file", "size", "here", "licence", "repository"), rows)
    print_json({"folder": str(folder), "files": facts}, as_json)


def path(as_json: AsJson = False) -> None:
    """Say where measurements are kept: the folder that STEPSIM_DATA names, else a cache of the user."""
    from stepsim.datasets import data_folder

    print_result(str(data_folder()), {"folder": str(data_folder())}, as_json)


def _facts(known: "DataFile") -> dict[str, object]:
    return {
        "file": known.file,
        "size_bytes": known.size_bytes,
        "sha256": known.sha256,
        "licence": known.licence,
        "source": known.source,
    }
