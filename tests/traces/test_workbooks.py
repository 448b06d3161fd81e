import pytest
from workbook_files import MAIN, parts_of, write_parts

from stepsim.errors import FileError
from stepsim.traces.workbooks import LARGEST_BYTES, read_workbook

SHEETS = {"first": [["a", None, 2.5], []], "second": [["b & c"]]}
BOOK, SHEET = "xl/workbook.xml", "xl/worksheets/sheet1.xml"


def sheet_of(cells):
    return f'<worksheet xmlns="{MAIN}"><sheetData><row r="1">{cells}</row></sheetData></worksheet>'


def test_cells_are_found_by_sheet_row_and_letter(tmp_path):
    found = read_workbook(write_parts(tmp_path / "book.xlsx", parts_of(SHEETS)))

    assert found == {"first": {1: {"A": "a", "C": "2.5"}, 2: {}}, "second": {1: {"A": "b & c"}}}


def test_shared_strings_stand_where_they_are_named(tmp_path):
    parts = parts_of(SHEETS) | {SHEET: sheet_of('<c r="B1" t="s"><v>1</v></c>')}
    parts["xl/sharedStrings.xml"] = (
        f'<sst xmlns="{MAIN}"><si><t>x</t></si><si><r><t>y</t></r><r><t> z</t></r></si></sst>'
    )

    assert read_workbook(write_parts(tmp_path / "book.xlsx", parts))["first"] == {1: {"B": "y z"}}


ENTITIES = '<!DOCTYPE a [<!ENTITY x "yy"><!ENTITY z "&x;&x;">]>'


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({SHEET: ENTITIES + sheet_of("&z;")}, "sheet1.xml: must be XML: declares a document type"),
        ({SHEET: "<row>"}, "sheet1.xml: must be XML"),
        ({SHEET: " " * (LARGEST_BYTES + 1)}, "sheet1.xml: must be at most"),
        ({SHEET: sheet_of('<c r="7"><v>1</v></c>')}, "row 1, cell: must be letters and a number, got '7'"),
        ({SHEET: sheet_of('<c r="A1" t="s"><v>0</v></c>')}, "row 1, shared string: must be below 0, got '0'"),
        ({BOOK: parts_of({str(place): [] for place in range(101)})[BOOK]}, "sheets: must be at most 100, got 101"),
    ],
    ids=["entities", "no xml", "bomb", "place", "shared string", "sheets"],
)
def test_a_part_that_is_none_is_refused_with_its_name(tmp_path, changed, told):
    path = write_parts(tmp_path / "book.xlsx", parts_of(SHEETS) | changed)

    with pytest.raises(FileError, match=told):
        read_workbook(path)


@pytest.mark.parametrize("part", parts_of(SHEETS))
def test_a_part_that_is_missing_is_named(tmp_path, part):
    parts = parts_of(SHEETS)
    del parts[part]

    with pytest.raises(FileError, match=f"part: must be there, got '{part}'"):
        read_workbook(write_parts(tmp_path / "book.xlsx", parts))


def test_what_is_no_zip_or_half_of_one_is_refused(tmp_path):
    content = write_parts(tmp_path / "book.xlsx", parts_of(SHEETS)).read_bytes()
    for place, damaged in enumerate((b"", b"M,N,K\n1,2,3\n", content[: len(content) // 2])):
        (tmp_path / f"{place}.xlsx").write_bytes(damaged)

        with pytest.raises(FileError, match="workbook: must be a whole zip"):
            read_workbook(tmp_path / f"{place}.xlsx")


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(FileError, match="file: cannot be read: No such file"):
        read_workbook(tmp_path / "none.xlsx")
