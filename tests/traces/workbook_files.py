"""Workbooks as small as a reader takes them."""

import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def parts_of(sheets: dict[str, list[list[object]]]) -> dict[str, str]:
    """XML by its place in the zip; each sheet is a list of rows of cells, empty where None."""
    listed = [f'<sheet name="{name}" r:id="r{place}"/>' for place, name in enumerate(sheets, start=1)]
    targets = [f'<Relationship Id="r{n}" Target="worksheets/sheet{n}.xml"/>' for n in range(1, len(sheets) + 1)]
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{"".join(listed)}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">{"".join(targets)}</Relationships>',
    }
    for place, rows in enumerate(sheets.values(), start=1):
        written = "".join(f'<row r="{n}">{_cells(n, row)}</row>' for n, row in enumerate(rows, start=1))
        parts[f"xl/worksheets/sheet{place}.xml"] = (
            f'<worksheet xmlns="{MAIN}"><sheetData>{written}</sheetData></worksheet>'
        )
    return parts


def write_parts(path: Path, parts: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def _cells(row: int, values: list[object]) -> str:
    found = ((chr(ord("A") + place), value) for place, value in enumerate(values) if value is not None)
    return "".join(_cell(f"{letter}{row}", value) for letter, value in found)


def _cell(place: str, value: object) -> str:
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f'<c r="{place}"><v>{value}</v></c>'
