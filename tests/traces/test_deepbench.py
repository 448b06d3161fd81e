from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbook_files import parts_of, write_parts

from stepsim.errors import FileError, StepsimError
from stepsim.traces.deepbench import read_deepbench
from stepsim.traces.kernel_tables import COLUMNS, SHAPE

PRODUCTS = ["M", "N", "K", "A Transpose", "B Transpose", "Time (msec)"]
IMAGES = ["W", "H", "C", "N", "K ", "S (Filter width)", "R (Filter height)", "pad_w", "pad_h"]
STRIDES = ["Horizontal stride", "Vertical stride"]
TIMES = ["Forward (msec)", "wrt Inputs (msec)", "wrt Parameters (msec)", "Forward Algorithm"]
HEADER = [None, None, *IMAGES, *STRIDES, *TIMES]

PRODUCT = [None, "DeepSpeech", 7, 2, 5, "N", "T", 4.0]
# 9 x 8 pixels, padded to 11 x 8, filter of 3 x 2, stride 2 x 1: 5 x 7 pixels out.
CONVOLUTION = [None, None, 9, 8, 3, 4, 6, 3, 2, 1, 0, 2, 1, 1.0, "N/A*", 3.0, "WINOGRAD"]


def book(products=(PRODUCT,), convolutions=(CONVOLUTION,), heads=(PRODUCTS, HEADER)):
    rows = [["Precision", "Float"], ["Dense Matrix Multiplication", None, *heads[0]], *products, [None] * 3]
    rows += [
        ["Convolution"],
        heads[1],
        *convolutions,
        [None, None, None, "* = a note"],
        ["Recurrent Layers"],
        [None, None, 1],
    ]
    return {"Results FP32": rows, "Specs": [["CPU Model", "x"], ["GPU Model", "NVIDIA T4"]]}


def read(tmp_path, sheets):
    return read_deepbench(write_parts(tmp_path / "book.xlsx", parts_of(sheets)))


def changed(row, place, value):
    return [*row[:place], value, *row[place + 1 :]]


def test_a_result_stored_by_columns_is_its_transpose_by_rows(tmp_path):
    row = read(tmp_path, book()).iloc[0]

    assert row[list(SHAPE)].tolist() == [1, 2, 7, 5, 1, 1]
    assert (row["flop"], row["size_bytes"], row["seconds"]) == (140, 4 * (10 + 35 + 14), 0.004)
    assert (row["gpu"], row["op_class"], row["dtype"], row["variant"]) == ("NVIDIA T4", "linear", "float32", "NT")


def test_gradients_of_a_convolution_have_its_dimensions_and_what_was_not_measured_is_left_out(tmp_path):
    rows = read(tmp_path, book()).iloc[1:]

    assert rows["variant"].tolist() == ["forward", "filter"]
    assert rows["seconds"].tolist() == [0.001, 0.003]
    assert rows["kernels"].tolist() == ["!WINOGRAD", ""]
    for _, row in rows.iterrows():
        assert row[list(SHAPE)].tolist() == [4, 35, 6, 18, 6, 1]
        assert row["flop"] == 2 * (4 * 35 * 6) * 18
        assert row["size_bytes"] == 4 * (4 * 3 * 72 + 6 * 18 + 4 * 35 * 6)


@pytest.mark.parametrize("place", range(len(PRODUCTS)))
def test_a_column_of_products_that_is_missing_is_named(tmp_path, place):
    heads = (changed(PRODUCTS, place, None), HEADER)

    with pytest.raises(FileError, match="column: must be there"):
        read(tmp_path, book(heads=heads))


@pytest.mark.parametrize(
    ("sheets", "told"),
    [
        (book(heads=(PRODUCTS, changed(HEADER, 4, None))), "column: must be there, got 'C'"),
        (book(products=[changed(PRODUCT, 3, 0)]), "row 3, N: must be a whole number from 1 to 2147483648, got '0'"),
        (book(products=[changed(PRODUCT, 3, 1e300)]), "row 3, N: must be a whole number"),
        (book(products=[changed(PRODUCT, 3, "nan")]), "row 3, N: must be a whole number"),
        (book(products=[changed(PRODUCT, 3, None)]), "row 3, N: must be a whole number"),
        (book(products=[changed(PRODUCT, 7, 0)]), "row 3, Time .msec.: must be milliseconds above 0"),
        (book(products=[changed(PRODUCT, 7, "inf")]), "row 3, Time .msec.: must be milliseconds above 0"),
        (book(products=[changed(PRODUCT, 7, None)]), "rows: must be > 0"),
        (book(products=[]), "rows: must be > 0"),
        (book(convolutions=[changed(CONVOLUTION, 7, 12)]), "row 7, S: must fit into the padded image, got 12"),
        ({"Results FP32": [[1]]}, "sheets: must hold Specs and one of results in FP32, got 'Results FP32'"),
        ({**book(), "Specs": []}, "Specs: must say GPU Model"),
        ({**book(), "Results FP32": []}, "column: must be there"),
    ],
    ids=[
        *("image", "zero", "absurd", "nan", "empty cell", "no time", "endless", "unmeasured", "no products"),
        *("filter", "wrong sheets", "no gpu", "empty sheet"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, sheets, told):
    with pytest.raises(FileError, match=told):
        read(tmp_path, sheets)


@given(data=st.data())
def test_any_cell_in_any_place_gives_samples_or_one_line(tmp_path_factory, data):
    sheets = book()
    rows = data.draw(st.sampled_from(list(sheets.values())))
    row = data.draw(st.sampled_from([row for row in rows if row]))
    place = data.draw(st.integers(0, len(row) - 1))
    row = rows[rows.index(row)] = list(row)
    row[place] = data.draw(st.sampled_from([None, "", "x", "-1", "9" * 30, "1e309", "1_0", "\u0663", 0, -1.5, 2**40]))

    try:
        samples = read(tmp_path_factory.getbasetemp(), sheets)
    except StepsimError as error:
        message = str(error)
        assert len(message.splitlines()) == 1
    else:
        assert list(samples.columns) == [*COLUMNS, "variant"]
        assert (samples[["seconds", "flop", "size_bytes"]] > 0).all(axis=None)


def test_the_tables_of_three_gpus_are_read(data_dir):
    tables = {
        name: read_deepbench(data_dir / f"deepbench/DeepBench_NV_{name}.xlsx") for name in ("P100", "T4", "1080Ti")
    }

    assert {name: len(rows) for name, rows in tables.items()} == {"P100": 442, "T4": 432, "1080Ti": 442}
    assert tables["1080Ti"]["gpu"].unique().tolist() == ["NVIDIA GTX 1080 Ti"]
    products = {name: rows[rows["op_class"] == "linear"] for name, rows in tables.items()}
    assert all(len(rows) == 160 for rows in products.values())
    # The same shapes in the same order on each of them.
    for first, second in pairwise(products.values()):
        assert first[["m", "n", "k", "variant"]].equals(second[["m", "n", "k", "variant"]])
    # The data sheets say 9.3, 8.1 and 11.3 TFLOP/s; boards with room boost above theirs.
    fastest = {name: (rows["flop"] / rows["seconds"]).max() for name, rows in products.items()}
    assert 0.9 * 9.3e12 < fastest["P100"] < 9.3e12
    assert 0.5 * 8.1e12 < fastest["T4"] < 8.1e12
    assert 11.3e12 < fastest["1080Ti"] < 1.1 * 11.3e12
