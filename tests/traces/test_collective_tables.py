import pandas as pd
import pytest

from stepsim.errors import FileError
from stepsim.traces.collective_tables import (
    COLUMNS,
    array_bytes,
    of_logs,
    read_aiconfigurator,
    read_aws_all_reduce,
    read_vidur_history,
    read_vidur_network,
)
from stepsim.traces.trace import Trace, events_of

AICONFIGURATOR = {
    "device": "GPU",
    "op_name": "all_reduce",
    "nccl_dtype": "half",
    "num_gpus": 4,
    "message_size": 1024,
    "latency": 0.5,
}
NETWORK = {
    "collective": "all_reduce",
    "num_workers": 8,
    "devices_per_node": 4,
    "size": 2048,
    "time_stats.all_reduce.median": 0.5,
    "time_stats.all_reduce.min": 0.25,
    "time_stats.all_reduce.max": 4.0,
}
HISTORY = {name: value for name, value in NETWORK.items() if "time_stats" in name} | {
    "num_workers": 2,
    "n_embd": 4096,
    "num_tokens": 3,
}


def table(tmp_path, *rows):
    path = tmp_path / "table.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def test_aiconfigurator_tells_elements_of_the_whole_array_and_milliseconds(tmp_path):
    samples = read_aiconfigurator(table(tmp_path, AICONFIGURATOR))

    assert tuple(samples.columns) == COLUMNS
    (row,) = samples.to_dict("records")
    assert (row["machine"], row["collective"], row["dtype"]) == ("GPU", "all_reduce", "half")
    assert (row["ranks"], row["nodes"], row["size_bytes"], row["seconds"]) == (4, 1, 2048, 0.5e-3)


def test_a_member_of_an_all_gather_contributes_its_part_of_the_array(tmp_path):
    samples = read_aiconfigurator(table(tmp_path, AICONFIGURATOR | {"op_name": "all_gather"}))

    assert samples["size_bytes"].tolist() == [512]
    assert array_bytes(samples).tolist() == [2048]


def test_the_array_of_other_collectives_is_what_a_member_contributes(tmp_path):
    samples = read_aiconfigurator(table(tmp_path, AICONFIGURATOR | {"op_name": "alltoall"}))

    assert samples["collective"].tolist() == ["all_to_all"]
    assert array_bytes(samples).tolist() == samples["size_bytes"].tolist() == [2048]


def test_vidur_tells_bytes_nodes_and_the_ends_of_its_repeats(tmp_path):
    (row,) = read_vidur_network(table(tmp_path, NETWORK), "here").to_dict("records")

    assert (row["machine"], row["ranks"], row["nodes"], row["size_bytes"]) == ("here", 8, 2, 2048)
    assert (row["least_seconds"], row["seconds"], row["most_seconds"]) == (0.25e-3, 0.5e-3, 4e-3)


def test_the_earlier_tables_of_vidur_tell_tokens_of_a_model_in_half_precision(tmp_path):
    (row,) = read_vidur_history(table(tmp_path, HISTORY, HISTORY | {"num_tokens": 0}), "here").to_dict("records")

    assert (row["collective"], row["ranks"], row["nodes"]) == ("all_reduce", 2, 1)
    assert row["size_bytes"] == 4096 * 3 * 2


def test_the_table_of_aws_has_two_times_for_each_size(tmp_path):
    path = table(tmp_path, {"bytes": 8, "time_us_out": 3.0, "time_us_in": 2.0}, {"bytes": 16, "time_us_out": 5.0})
    path.write_text(path.read_text().replace("5.0,", "5.0,4.0"), encoding="utf-8")

    samples = read_aws_all_reduce(path, "cluster", ranks=16, nodes=2)

    assert samples["size_bytes"].tolist() == [8, 16, 8, 16]
    assert samples["seconds"].tolist() == pytest.approx([3e-6, 5e-6, 2e-6, 4e-6])
    assert set(samples["ranks"]) == {16}


def test_logs_give_the_out_of_place_times_of_collectives_that_move_anything():
    facts = {"kind": "collective", "name": "broadcast", "start_s": 0.0, "duration_s": 2.0, "size_bytes": 64}
    rows = [
        facts | {"work": "out_of_place"},
        facts | {"work": "in_place", "duration_s": 9.0},
        facts | {"work": "out_of_place", "size_bytes": 0},
    ]
    trace = Trace(events=events_of(rows), provenance={"ranks": "8", "nodes": "2"})

    (row,) = of_logs([trace], "here").to_dict("records")

    assert (row["collective"], row["ranks"], row["nodes"], row["seconds"]) == ("broadcast", 8, 2, 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op_name": "gossip"}, "op_name: must be one of all_reduce, .*, got 'gossip'"),
        ({"nccl_dtype": "quarter"}, "nccl_dtype: must be one of half, .*, got 'quarter'"),
        ({"latency": 0.0}, r"row 0, seconds: must be > 0, got .*0\.0"),
        ({"latency": float("nan")}, "row 0, seconds: must be > 0, got .*nan"),
        ({"message_size": -1}, "row 0, size_bytes: must be > 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(tmp_path, change, message):
    with pytest.raises(FileError, match=message):
        read_aiconfigurator(table(tmp_path, AICONFIGURATOR | change))


@pytest.mark.parametrize("column", sorted(AICONFIGURATOR))
def test_a_missing_column_is_refused_by_name(tmp_path, column):
    rows = {name: value for name, value in AICONFIGURATOR.items() if name != column}

    with pytest.raises(FileError, match=f"column: must be there, got '{column}'"):
        read_aiconfigurator(table(tmp_path, rows))


def test_a_time_that_vidur_does_not_tell_is_refused_by_name(tmp_path):
    rows = {name: value for name, value in NETWORK.items() if not name.endswith("max")}

    with pytest.raises(FileError, match=r"time_stats\.all_reduce\.max"):
        read_vidur_network(table(tmp_path, rows), "here")


@pytest.mark.parametrize("content", ["", "device,op_name\n", "\0\0"])
def test_a_file_that_holds_no_table_is_refused(tmp_path, content):
    path = tmp_path / "empty.csv"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(FileError, match=r"empty\.csv"):
        read_aiconfigurator(path)


def test_a_table_without_rows_is_refused(tmp_path):
    path = table(tmp_path, AICONFIGURATOR)
    path.write_text(path.read_text().splitlines()[0], encoding="utf-8")

    with pytest.raises(FileError, match="rows: must be > 0, got 0"):
        read_aiconfigurator(path)


def test_eight_a100_reach_the_bus_bandwidth_that_is_told_of_them(data_dir):
    """222 GB/s at 512 Mi elements a rank (SOURCES.md beside the data): bus bytes are 2 (n - 1) / n of the array."""
    samples = read_aiconfigurator(data_dir / "aiconfigurator/nccl_a100_sxm.csv")
    rows = samples[(samples["collective"] == "all_reduce") & (samples["ranks"] == 8) & (samples["dtype"] == "half")]

    largest = rows.loc[rows["size_bytes"].idxmax()]

    assert 2 * 7 / 8 * largest["size_bytes"] / largest["seconds"] == pytest.approx(222e9, rel=0.01)
