"""Exports of Nsight Systems: small ones by hand, bad values, then damaged files."""

import sqlite3
import warnings
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nsys_files import CONTEXT, EVENT, STREAM, STREAM_WAIT, NsysFile

from stepsim.errors import FileError, StepsimError
from stepsim.traces.nsys import looks_like_nsys, read_nsys
from stepsim.traces.replay import rebuild


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return path


def small(path):
    file = NsysFile()
    file.launched(1000, 1)
    return file.write(path)


def test_a_launch_and_its_kernel_are_tied_by_their_correlation(tmp_path):
    file = NsysFile()
    file.gpu(0, "NVIDIA A100", 80 * 2**30)
    file.launched(1000, 17, name="gemm<float, 4>")

    trace = read_nsys(file.write(tmp_path / "r.sqlite"))

    launch, kernel = (trace.of(kind).iloc[0] for kind in ("launch", "kernel"))
    assert (launch["name"], launch["thread"], launch["correlation"]) == ("cudaLaunchKernel", 41, 17)
    assert (kernel["name"], kernel["device"], kernel["stream"]) == ("gemm<float, 4>", "gpu0", 7)
    assert kernel["correlation"] == 17
    assert launch["start_s"] == 0
    assert kernel["start_s"] == pytest.approx(15e-9)
    assert kernel["duration_s"] == pytest.approx(100e-9)
    assert trace.provenance["gpu0"] == "NVIDIA A100"
    assert trace.provenance["gpu0 memory_bytes"] == str(80 * 2**30)


def test_kernels_of_nccl_are_collectives_and_memsets_have_bytes(tmp_path):
    file = NsysFile()
    file.launched(0, 1, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    file.on_device("MEMSET", 500, 600, 2, 7, value=0, bytes=4096)

    trace = read_nsys(file.write(tmp_path / "r.sqlite"))

    assert len(trace.of("collective")) == 1
    assert trace.of("memset")["size_bytes"].tolist() == [4096]


@pytest.mark.parametrize(
    ("kinds", "name", "source", "destination"),
    [
        ((1, 0, 2), "Memcpy HtoD", "pageable", "device"),
        ((1, 1, 2), "Memcpy HtoD", "pinned", "device"),
        ((2, 2, 1), "Memcpy DtoH", "device", "pinned"),
        ((2, 2, 7), "Memcpy DtoH", "device", "host"),
        ((8, 2, 2), "Memcpy DtoD", "device", "device"),
        ((9, 0, 1), "Memcpy HtoH", "pageable", "pinned"),
        ((10, 2, 2), "Memcpy PtoP", "device", "device"),
    ],
)
def test_a_copy_knows_where_it_comes_from_and_goes_to(tmp_path, kinds, name, source, destination):
    file = NsysFile()
    file.launched(0, 1)
    file.copy(500, 900, 2, 1 << 20, kinds)

    copy = read_nsys(file.write(tmp_path / "r.sqlite")).of("copy").iloc[0]

    assert (copy["name"], copy["source"], copy["destination"]) == (name, source, destination)
    assert copy["size_bytes"] == 1 << 20


@pytest.mark.parametrize("with_sync_ids", [False, True])
def test_a_wait_names_the_last_record_of_its_event(tmp_path, with_sync_ids):
    """Event 5 is recorded twice; the ids of synchronisations, where they are there, say the same."""
    ids = (101, 102) if with_sync_ids else (-1, -1)
    file = NsysFile()
    file.launched(0, 1, stream=7)
    file.record(200, 2, 7, 5, event_sync=ids[0])
    file.record(300, 3, 9, 5, event_sync=ids[1])
    file.sync(400, 401, "cudaStreamWaitEvent_v3020", 4, STREAM_WAIT, stream=13, event=5, event_sync=ids[1])
    file.sync(500, 600, "cudaEventSynchronize_v3020", 6, EVENT, event=5, event_sync=ids[1])

    trace = read_nsys(file.write(tmp_path / "r.sqlite"))

    assert trace.of("record")[["correlation", "stream"]].to_numpy().tolist() == [[2, 7], [3, 9]]
    assert trace.of("wait")[["stream", "awaits"]].to_numpy().tolist() == [[13, 3]]
    assert trace.of("sync")[["stream", "awaits"]].to_numpy().tolist() == [[9, 3]]


def test_a_wait_before_any_record_waits_for_something_unknown(tmp_path):
    file = NsysFile()
    file.launched(0, 1)
    file.sync(100, 101, "cudaStreamWaitEvent_v3020", 4, STREAM_WAIT, stream=13, event=5)
    file.record(200, 2, 7, 5)

    assert read_nsys(file.write(tmp_path / "r.sqlite")).of("wait")["awaits"].tolist() == [-1]


def test_a_synchronisation_with_a_device_has_no_stream(tmp_path):
    file = NsysFile()
    file.launched(0, 1)
    file.sync(10, 200, "cudaStreamSynchronize_v3020", 2, STREAM, stream=7)
    file.sync(300, 400, "cudaDeviceSynchronize_v3020", 3, CONTEXT)

    assert read_nsys(file.write(tmp_path / "r.sqlite")).of("sync")["stream"].tolist() == [7, -1]


@pytest.mark.parametrize("by_id", [False, True])
def test_ranges_are_host_events_and_numbered_steps_are_steps(tmp_path, by_id):
    file = NsysFile()
    file.launched(10, 1)
    file.range(0, 200, "step 3", by_id=by_id)
    file.range(5, 100, "forward", by_id=by_id)
    file.range(5, 6, "a mark", kind=34)
    file.range(6, None, "never closed")

    trace = read_nsys(file.write(tmp_path / "r.sqlite"))

    assert trace.of("step")["name"].tolist() == ["step 3"]
    assert trace.of("step")["thread"].tolist() == [41]
    assert trace.of("host")["name"].tolist() == ["forward"]


def test_two_processes_are_told_apart_by_the_gpus_behind_their_numbers(tmp_path):
    """Both call their GPU 0, and both have a correlation 1."""
    file = NsysFile()
    for process, gpu in ((41, 2), (42, 3)):
        file.process = process
        file.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=process)
        file.launched(1000 * process, 1)

    trace = read_nsys(file.write(tmp_path / "r.sqlite"))

    assert trace.of("kernel")["device"].tolist() == ["gpu2", "gpu3"]
    assert trace.of("launch")["correlation"].tolist() == trace.of("kernel")["correlation"].tolist()
    assert trace.of("kernel")["correlation"].nunique() == 2


def test_a_recorded_step_can_be_rebuilt_as_a_plan(tmp_path):
    """The second kernel is launched while the first runs; the thread then waits for both."""
    file = NsysFile()
    file.range(0, 400, "step 1")
    file.call(0, 5, "cudaLaunchKernel_v7000", 1)
    file.kernel(20, 120, 1)
    file.call(50, 55, "cudaLaunchKernel_v7000", 2)
    file.kernel(120, 220, 2)
    file.sync(60, 230, "cudaDeviceSynchronize_v3020", 3, CONTEXT)
    trace = read_nsys(file.write(tmp_path / "r.sqlite"))

    rebuilt = rebuild(trace)

    assert [step.measured_s for step in rebuilt.steps] == pytest.approx([400e-9])


def test_an_export_is_told_by_its_first_bytes(tmp_path):
    assert looks_like_nsys(small(tmp_path / "r.sqlite").read_bytes())
    assert not looks_like_nsys(b'{"traceEvents": []}')


def test_reading_leaves_the_file_and_its_folder_as_they_were(tmp_path):
    path = small(tmp_path / "r.sqlite")
    before = path.read_bytes()

    read_nsys(path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_newer_schema_with_unknown_columns_is_read_with_one_warning(tmp_path):
    path = small(tmp_path / "r.sqlite")
    more = "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN clusterX INTEGER"
    version = "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)"
    changed(path, more, version, "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '9.1.0')")

    with pytest.warns(UserWarning, match=r"schema 9\.1\.0 is newer than 3") as caught:
        trace = read_nsys(path)

    assert len(caught) == 1
    assert trace.provenance["schema"] == "9.1.0"
    assert len(trace.of("kernel")) == 1


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL: is missing"),
        ("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_RUNTIME: is missing"),
        ("DROP TABLE StringIds", "StringIds: is missing"),
        ("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL: must have a row"),
        ("DELETE FROM StringIds", "nameId: must be an id of StringIds, got 1"),
        (
            "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId",
            r"CUPTI_ACTIVITY_KIND_KERNEL\.streamId: is missing: this column is needed",
        ),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = -1", r"KERNEL\.deviceId: must be from 0 to 4294967295"),
        (
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 4294967296",
            r"KERNEL\.streamId: must be from 0 to 42949672",
        ),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1", "end of 'gemm': must be >= its start"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'x'", r"KERNEL\.start: must be an integer, not str, got 'x'"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 1.5", r"KERNEL\.start: must be an integer, not float"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = NULL", r"correlationId: must be an integer, not None"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 0, end = 9000000000000000", "end: must be within 1e.15 nano"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 9223372036854775807", "end: must be within 1e.15 nanoseconds"),
    ],
)
def test_what_is_missing_or_makes_no_sense_is_named(tmp_path, statement, message):
    path = changed(small(tmp_path / "r.sqlite"), statement)

    with pytest.raises(FileError, match=message):
        read_nsys(path)


@pytest.mark.parametrize("size_bytes", [-1, 2**50 + 1])
def test_an_absurd_size_is_named(tmp_path, size_bytes):
    file = NsysFile()
    file.launched(0, 1)
    file.copy(500, 900, 2, size_bytes, (1, 0, 2))

    with pytest.raises(FileError, match=rf"MEMCPY\.bytes: must be from 0 to 1125899906842624, got {size_bytes}"):
        read_nsys(file.write(tmp_path / "r.sqlite"))


def test_a_step_of_no_length_is_named(tmp_path):
    file = NsysFile()
    file.launched(0, 1)
    file.range(5, 5, "step 1")

    with pytest.raises(FileError, match="end of 'step 1': must be > the start of the step 5, got 5"):
        read_nsys(file.write(tmp_path / "r.sqlite"))


def test_a_kernel_of_no_length_is_read(tmp_path):
    path = changed(small(tmp_path / "r.sqlite"), "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start")

    assert read_nsys(path).of("kernel")["duration_s"].tolist() == [0.0]


@pytest.mark.parametrize("table", ["KERNEL", "RUNTIME"])
def test_what_stands_there_twice_is_read_once_with_a_warning(tmp_path, table):
    whole = read_nsys(small(tmp_path / "once.sqlite"))
    name = f"CUPTI_ACTIVITY_KIND_{table}"
    path = changed(small(tmp_path / "twice.sqlite"), f"INSERT INTO {name} SELECT * FROM {name}")

    with pytest.warns(UserWarning, match=r"stand there twice, '\w+' first: read once") as caught:
        trace = read_nsys(path)

    assert len(caught) == 1
    assert trace.events.equals(whole.events)


def test_kernels_of_one_stream_that_overlap_are_refused(tmp_path):
    file = NsysFile()
    file.launched(0, 1)
    file.kernel(60, 20_000, 2, name="long")
    file.kernel(9_000, 30_000, 3, name="late")

    with pytest.raises(
        FileError, match=r"gpu0 stream 7: 'late' at 0\.\d+ s overlaps an earlier row by more than 10 us"
    ):
        read_nsys(file.write(tmp_path / "r.sqlite"))


@pytest.mark.parametrize(("early_ns", "warned"), [(900, False), (1100, True)])
def test_kernels_before_their_launch_are_read_with_a_warning(tmp_path, early_ns, warned):
    file = NsysFile()
    file.kernel(0, 50, 1)
    file.call(early_ns, early_ns + 5, "cudaLaunchKernel_v7000", 1)
    path = file.write(tmp_path / "r.sqlite")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = read_nsys(path)

    told = "1 of 1 kernels and copies start before their launch, by up to 1.1 us: clocks jumped or disagree"
    assert [str(warning.message).partition(": ")[2] for warning in caught] == ([told] if warned else [])
    assert trace.of("kernel")["start_s"].tolist() == [0.0]


def test_kernels_hidden_in_graphs_are_refused_with_the_option_that_shows_them(tmp_path):
    file = NsysFile()
    file.launched(0, 1)
    file.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=0, end=10, graphId=1)

    with pytest.raises(FileError, match="--cuda-graph-trace=node"):
        read_nsys(file.write(tmp_path / "r.sqlite"))


def test_two_processes_on_one_gpu_are_refused(tmp_path):
    file = NsysFile()
    for process in (41, 42):
        file.process = process
        file.launched(1000 * process, process)

    with pytest.raises(FileError, match="gpu0 processes: must be 1: streams would be mixed up, got 2"):
        read_nsys(file.write(tmp_path / "r.sqlite"))


def test_a_view_in_the_place_of_a_table_is_not_looked_through(tmp_path):
    path = changed(
        small(tmp_path / "r.sqlite"),
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO hidden",
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT * FROM hidden",
    )

    with pytest.raises(FileError, match="CUPTI_ACTIVITY_KIND_KERNEL: is missing"):
        read_nsys(path)


def test_a_generated_column_is_not_computed(tmp_path):
    path = changed(
        small(tmp_path / "r.sqlite"),
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN streamId INTEGER AS (abs(deviceId))",
    )

    with pytest.raises(FileError, match=r"CUPTI_ACTIVITY_KIND_KERNEL\.streamId: is missing"):
        read_nsys(path)


def test_a_name_of_many_megabytes_is_refused(tmp_path):
    path = changed(small(tmp_path / "r.sqlite"), "UPDATE StringIds SET value = printf('%.*c', 3000000, 'x')")

    with pytest.raises(FileError, match="StringIds: is damaged: string or blob too big"):
        read_nsys(path)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3", b"SQLite format 3\0", b"SQLite format 3\0" + b"x" * 5000])
def test_what_is_no_database_is_refused(tmp_path, content):
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)

    with pytest.raises(FileError, match=r"r\.sqlite: "):
        read_nsys(path)


def test_a_missing_file_is_refused_and_not_made(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        read_nsys(tmp_path / "none")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    file = NsysFile()
    file.gpu(0, "NVIDIA A100", 80 * 2**30)
    file.launched(0, 1)
    file.copy(500, 900, 2, 1 << 20, (1, 0, 2))
    file.record(1000, 3, 7, 5)
    file.sync(1100, 1200, "cudaEventSynchronize_v3020", 4, EVENT, event=5)
    file.range(0, 2000, "step 1")
    return file.write(tmp_path_factory.mktemp("nsys") / "whole.sqlite").read_bytes()


@given(data=st.data(), flips=st.integers(0, 30))
def test_a_damaged_export_gives_a_trace_or_one_line(whole, tmp_path_factory, data, flips):
    content = bytearray(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    for _ in range(flips if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.sqlite"
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = read_nsys(path)
    except StepsimError:
        return
    assert (trace.events["duration_s"] >= 0).all()
