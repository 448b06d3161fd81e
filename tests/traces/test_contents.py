"""Files of every kind, told by their content, and what they hold; then every published file of a known kind."""

import gzip
import json
import pickle

import pytest
from execution_files import ExecutionFile, tensor
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import KinetoFile
from small_traces import kernel, on_host, trace_of

from stepsim.errors import FileError
from stepsim.trace_tables import tables_as_json
from stepsim.traces.contents import contents
from stepsim.units import MIB


def records(what, title):
    return what.tables[title].to_dict(orient="records")


def test_a_trace_of_stepsim_and_one_of_a_profiler_hold_the_same(tmp_path):
    file = KinetoFile()
    file.step(1, 0, 100)
    file.launched(2, 3, 10, 20, 1)

    recorded = contents(file.write(tmp_path / "kineto.json"))
    recorded.trace.save(tmp_path / "t.trace")
    ours = contents(tmp_path / "t.trace")

    assert (recorded.form, ours.form) == ("Kineto trace", "stepsim trace")
    assert list(recorded.tables) == ["devices", "kernels_by_class", "streams", "steps", "launches"]
    assert all(recorded.tables[title].equals(ours.tables[title]) for title in recorded.tables)


def test_a_log_holds_copies(tmp_path):
    (tmp_path / "sweep.log").write_text("cpu_to_gpu0_by_dma_under_numa0 25.6\n")

    what = contents(tmp_path / "sweep.log")

    assert what.form == "bandwidth log"
    (copy,) = records(what, "copies")
    assert copy["bytes_per_s"] == pytest.approx(25.6e9, rel=1e-12)


def test_an_execution_trace_holds_ops_and_what_collectives_send(tmp_path):
    file = ExecutionFile()
    for _ in range(2):
        file.op("aten::mm", [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)])
    file.op("aten::relu", [tensor(3, 4, 2)], [tensor(4, 4, 2)])
    file.op("nccl:all_reduce", [tensor(1, 1000)], [tensor(2, 1000)])

    what = contents(file.write(tmp_path / "et.json"))

    assert (what.form, what.trace) == ("PyTorch execution trace", None)
    assert records(what, "ops")[0] == {"name": "aten::mm", "count": 2, "flop": 256, "size_bytes": 448}
    sent = {"collective": "all_reduce", "count": 1, "largest_bytes": 4000, "sent_bytes": 4000}
    assert records(what, "collectives") == [sent]


def test_a_memory_snapshot_holds_requests_and_their_peak(tmp_path):
    """One of 4 MiB is there and goes; one of 6 MiB comes."""
    first = 1 << 46
    blocks = [{"size": size * MIB, "state": state} for size, state in ((14, "inactive"), (6, "active_allocated"))]
    segment = {"address": first, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "blocks": blocks}
    events = [
        {"action": "free_completed", "addr": first, "size": 4 * MIB, "stream": 0},
        {"action": "alloc", "addr": first + 14 * MIB, "size": 6 * MIB, "stream": 0},
    ]
    (tmp_path / "snapshot").write_bytes(pickle.dumps({"segments": [segment], "device_traces": [events]}))

    what = contents(tmp_path / "snapshot")

    assert what.form == "PyTorch memory snapshot"
    (row,) = records(what, "allocator_requests")
    assert (row["allocations"], row["frees"], row["new_segments"]) == (1, 1, 0)
    assert (row["before_bytes"], row["peak_bytes"], row["after_bytes"]) == (4 * MIB, 6 * MIB, 6 * MIB)
    assert row["reserved_bytes"] == 20 * MIB


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_memory_timeline_holds_bytes_by_category(tmp_path, pack):
    entries = [[-1, 1, 8, 0], [10, 2, 512, 4], [20, 3, -512, 4], [20, 3, 512, 5], [30, 2, 64, 4]]
    (tmp_path / "raw").write_bytes(pack(json.dumps(entries).encode()))

    what = contents(tmp_path / "raw")

    assert what.form == "PyTorch memory timeline"
    assert records(what, "memory_by_category") == [
        {"category": "parameter", "changes": 1, "peak_bytes": 8, "after_bytes": 8},
        {"category": "activation", "changes": 3, "peak_bytes": 512, "after_bytes": 64},
        {"category": "gradient", "changes": 1, "peak_bytes": 512, "after_bytes": 512},
    ]


@pytest.mark.parametrize("content", [b"", b"hello", b"[[1, 2", b"[]", b"[[1, 9, 3, 4]]", b"\x80\x04N.", b"PAR1", b"{}"])
def test_what_is_no_file_of_measurements_is_refused_by_name(tmp_path, content):
    (tmp_path / "file").write_bytes(content)

    with pytest.raises(FileError, match=r"file: "):
        contents(tmp_path / "file")


@pytest.mark.parametrize("column", ["start_s", "duration_s", "kind", "name"])
def test_a_trace_with_an_empty_cell_is_refused(tmp_path, column):
    trace = trace_of(kernel(0, 1), kernel(1, 1))
    trace.events.loc[1, column] = None
    trace.save(tmp_path / "t.trace")

    with pytest.raises(FileError, match=rf"t\.trace: {column}: must "):
        contents(tmp_path / "t.trace")


@pytest.mark.parametrize(
    ("column", "value"),
    [("duration_s", -1.0), ("duration_s", float("inf")), ("start_s", -1e300), ("size_bytes", -1), ("flop", 2**62)],
)
def test_a_trace_with_an_absurd_number_is_refused(tmp_path, column, value):
    trace = trace_of(kernel(0, 1), kernel(1, 1))
    trace.events.loc[1, column] = value
    trace.save(tmp_path / "t.trace")

    with pytest.raises(FileError, match=rf"t\.trace: {column}: must be from .* to 9\.0072e\+15, got "):
        contents(tmp_path / "t.trace")


def test_a_trace_with_text_that_is_none_is_refused(tmp_path):
    path = tmp_path / "t.trace"
    trace_of(kernel(0, 1, "known"), kernel(1, 1, "known")).save(path)
    damaged = path.read_bytes().replace(b"known", b"kn\xa7wn")
    path.write_bytes(damaged)

    with pytest.raises(FileError, match=r"is not a trace: .*UTF8"):
        contents(path)


def test_a_trace_whose_facts_are_no_text_is_refused(tmp_path):
    trace_of(kernel(0, 1), **{"gpu0 memory_bytes": 9}).save(tmp_path / "t.trace")

    with pytest.raises(FileError, match="provenance: must be facts as text"):
        contents(tmp_path / "t.trace")


@given(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_trace_is_refused_or_still_makes_sense(tmp_path_factory, changes):
    path = tmp_path_factory.getbasetemp() / "damaged.trace"
    trace_of(on_host("step", 0, 4), on_host("launch", 0, 1, correlation=1), kernel(0, 1, correlation=1)).save(path)
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    path.write_bytes(content)

    try:
        what = contents(path)
    except FileError:
        return
    json.dumps(tables_as_json(what.tables), allow_nan=False)


# --- measured ---------------------------------------------------------------------------------------------------------

FORMS = {
    "hta/**/*trace*.json.gz": {"Kineto trace"},
    "hta/memory_analysis/*.raw.gz": {"PyTorch memory timeline"},
    "param/*_et.json.gz": {"PyTorch execution trace"},
    "superbench/*": {"bandwidth log", "nccl-tests log"},
    "pipedream/**/graph.txt": {"PipeDream graph"},
    "triosim/**/trace.csv": {"TrioSim trace"},
}


@pytest.mark.parametrize("pattern", FORMS)
def test_published_files_hold_something(data_dir, pattern):
    files = [path for path in sorted(data_dir.glob(pattern)) if path.name != "gpu_stream.log"]
    if not files:
        pytest.skip(f"no {pattern} in {data_dir}")

    for path in files:
        what = contents(path)
        assert what.form in FORMS[pattern], path
        assert what.tables, path
