"""Cells of spreadsheets (Office Open XML, ``.xlsx``): text by row and column of each sheet, and nothing else of them.

A workbook is a zip of XML (ECMA-376, part 1, section 18). What it declares of entities is refused, and no part of it is
unpacked beyond `LARGEST_BYTES`.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from stepsim.errors import FileError

LARGEST_BYTES = 2**24
"""Of one part, unpacked: a sheet of 2000 rows and 20 columns takes about 1 MB."""

MOST_SHEETS = 100

Cells = dict[str, str]
"""Text by the letters of the column; cells that are empty are not there."""

Rows = dict[int, Cells]
"""By the number of the row, as a person sees it."""

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_COLUMN = re.compile(r"([A-Z]{1,3})[0-9]{1,7}")


class _NoDeclarations(ElementTree.TreeBuilder):
    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("declares a document type, which no spreadsheet does")


def read_workbook(path: str | Path) -> dict[str, Rows]:
    """The rows of each sheet by its name. Raises `FileError` for what is no workbook, damaged, or too large."""
    try:
        with zipfile.ZipFile(path) as archive:
            return dict(_sheets(path, archive))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileError(path, "workbook", None, f"must be a whole zip of XML: {error}") from error
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror or error}") from error


def _sheets(path: str | Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, Rows]]:
    listed = list(_part(path, archive, "xl/workbook.xml").iter(f"{_MAIN}sheet"))
    if len(listed) > MOST_SHEETS:
        raise FileError(path, "sheets", len(listed), f"must be at most {MOST_SHEETS}")
    relations = _part(path, archive, "xl/_rels/workbook.xml.rels")
    targets = {entry.get("Id"): entry.get("Target", "") for entry in relations}
    shared: list[str] = []
    if "xl/sharedStrings.xml" in archive.namelist():
        shared = [_text(item) for item in _part(path, archive, "xl/sharedStrings.xml").iter(f"{_MAIN}si")]
    for sheet in listed:
        target = targets.get(sheet.get(_RELATION), "").removeprefix("/xl/")
        yield sheet.get("name", ""), _rows(path, _part(path, archive, f"xl/{target}"), shared)


def _part(path: str | Path, archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    if name not in archive.namelist():
        raise FileError(path, "part", name, "must be there")
    with archive.open(name) as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise FileError(path, name, None, f"must be at most {LARGEST_BYTES} bytes, unpacked")
    try:
        return ElementTree.fromstring(content, ElementTree.XMLParser(target=_NoDeclarations()))
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise FileError(path, name, None, f"must be XML: {error}") from error


def _rows(path: str | Path, sheet: ElementTree.Element, shared: list[str]) -> Rows:
    rows: Rows = {}
    for number, row in enumerate(sheet.iter(f"{_MAIN}row"), start=1):
        told = row.get("r", "")
        place = int(told) if told.isascii() and told.isdecimal() and len(told) < 8 else number
        cells = {_column(path, place, cell): _value(path, place, cell, shared) for cell in row.iter(f"{_MAIN}c")}
        rows[place] = {column: text for column, text in cells.items() if text}
    return rows


def _column(path: str | Path, row: int, cell: ElementTree.Element) -> str:
    place = _COLUMN.fullmatch(cell.get("r", ""))
    if place is None:
        raise FileError(path, f"row {row}, cell", cell.get("r"), "must be letters and a number")
    return place[1]


def _value(path: str | Path, row: int, cell: ElementTree.Element, shared: list[str]) -> str:
    text = (cell.findtext(f"{_MAIN}v") or _text(cell)).strip()
    if cell.get("t") != "s":
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and int(text) < len(shared)):
        raise FileError(path, f"row {row}, shared string", text, f"must be below {len(shared)}")
    return shared[int(text)].strip()


def _text(item: ElementTree.Element) -> str:
    return "".join(part.text or "" for part in item.iter(f"{_MAIN}t"))
