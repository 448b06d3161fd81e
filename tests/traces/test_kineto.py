import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import NEW, OLD, KinetoFile

from stepsim.errors import FileError
from stepsim.traces import read_kineto


def one_of_each(categories=NEW):
    """A step with an op, a launch, a copy, a memset and a synchronisation."""
    file = KinetoFile(categories)
    file.step(5, 1000, 100)
    file.op(1005, 30)
    file.launched(1010, 5, 1016, 20, correlation=1)
    file.call(1020, 4, correlation=2, name="cudaMemcpyAsync")
    file.copy(1040, 8, correlation=2, size_bytes=4096)
    file.call(1026, 4, correlation=3, name="cudaMemsetAsync")
    file.on_gpu("memset", "Memset (Device)", 1050, 2, 3, bytes=64)
    file.call(1031, 1, correlation=4, name="cudaEventRecord")
    file.sync(1035, 20, correlation=5)
    return file


def kinds(trace):
    return trace.events["kind"].tolist()


def test_events_come_in_time_order_in_seconds_from_the_first(tmp_path):
    trace = read_kineto(one_of_each().write(tmp_path / "t.json"))

    assert kinds(trace) == ["step", "host", "launch", "kernel", "launch", "launch", "record", "sync", "copy", "memset"]
    assert trace.events["start_s"].tolist() == pytest.approx(
        [0, 5e-6, 10e-6, 16e-6, 20e-6, 26e-6, 31e-6, 35e-6, 40e-6, 50e-6]
    )
    assert trace.of("kernel")["duration_s"].tolist() == pytest.approx([20e-6])


def test_times_since_1970_keep_their_microseconds(tmp_path):
    file = one_of_each()
    for event in file.events:
        event["ts"] += 1623142623460172

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert trace.of("kernel")["start_s"].tolist() == pytest.approx([16e-6], rel=1e-12)


def test_both_generations_of_categories_read_alike(tmp_path):
    old = read_kineto(one_of_each(OLD).write(tmp_path / "old.json"))
    new = read_kineto(one_of_each(NEW).write(tmp_path / "new.json"))

    assert old.events.equals(new.events)


def test_gzip_is_told_by_its_content_whatever_the_file_is_called(tmp_path):
    plain = read_kineto(one_of_each().write(tmp_path / "t.json.gz"))
    zipped = read_kineto(one_of_each().write(tmp_path / "t.json", zipped=True))

    assert plain.events.equals(zipped.events)


def test_a_bare_list_of_events_is_a_trace(tmp_path):
    bare = read_kineto(one_of_each().write(tmp_path / "bare.json", bare=True))

    assert len(bare.events) == 10
    assert bare.provenance["gpu0"] == "not named in the file"


def test_threads_and_streams_written_as_text_are_numbers(tmp_path):
    file = KinetoFile(OLD)
    file.launched(0, 5, 6, 20, correlation=1, thread="25738")
    del file.events[1]["args"]["stream"]
    file.events[1]["tid"] = "stream 7"

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert trace.of("launch")["thread"].tolist() == [25738]
    assert trace.of("kernel")["stream"].tolist() == [7]


@pytest.mark.parametrize(
    ("ends", "source", "destination"),
    [
        ("HtoD (Pageable -> Device)", "pageable", "device"),
        ("HtoD (Pinned -> Device)", "pinned", "device"),
        ("DtoH (Device -> Pageable)", "device", "pageable"),
        ("DtoD (Device -> Device)", "device", "device"),
        ("HtoD (Host -> Device)", "host", "device"),
    ],
)
def test_a_copy_has_its_bytes_and_both_ends(tmp_path, ends, source, destination):
    file = KinetoFile()
    file.launched(0, 5, 6, 20, correlation=1)
    file.call(10, 5, correlation=2, name="cudaMemcpyAsync")
    file.copy(30, 8, correlation=2, size_bytes=4096, ends=ends)

    (copy,) = read_kineto(file.write(tmp_path / "t.json")).of("copy").itertuples()

    assert (copy.size_bytes, copy.source, copy.destination) == (4096, source, destination)


def test_a_nccl_kernel_is_a_collective_with_the_bytes_of_one_member(tmp_path):
    file = KinetoFile()
    message = {"In msg nelems": 1000, "dtype": "BFloat16"}
    file.call(0, 5, correlation=1)
    file.on_gpu("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(...)", 6, 20, 1, **message)

    (collective,) = read_kineto(file.write(tmp_path / "t.json")).of("collective").itertuples()

    assert collective.size_bytes == 2000


def test_only_calls_that_put_something_on_a_device_are_launches(tmp_path):
    file = KinetoFile()
    file.launched(0, 5, 6, 20, correlation=1)
    file.call(8, 1, correlation=2, name="cudaEventQuery")

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert kinds(trace) == ["launch", "kernel", "host"]


def test_a_synchronisation_has_its_stream_where_the_trace_tells_it(tmp_path):
    file = KinetoFile()
    file.launched(0, 5, 6, 20, correlation=1)
    file.sync(8, 20, correlation=2)
    file.add("cuda_sync", "Stream Sync", 9, 18, 7, stream=7, correlation=2)
    file.sync(30, 1, correlation=3)

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert trace.of("sync")["stream"].tolist() == [7, -1]


def test_what_steps_do_not_need_is_ignored(tmp_path):
    file = one_of_each()
    file.add("python_function", "train.py(3): main", 0, 5000, 1)
    file.add("gpu_user_annotation", "ProfilerStep#5", 1016, 50, 7)
    file.add("a category of next year", 7, None, "long", [])
    file.events.append({"ph": "M", "name": "process_name", "args": 3})

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert len(trace.events) == 10


def test_provenance_names_file_versions_and_gpus(tmp_path):
    path = tmp_path / "t.json"
    header = {"cuda_driver_version": 12090, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}}
    path.write_text(json.dumps(one_of_each().document() | header))

    facts = read_kineto(path).provenance

    assert (facts["format"], facts["file"]) == ("kineto", "t.json")
    assert (facts["cuda_driver_version"], facts["rank"], facts["world_size"]) == ("12090", "3", "8")
    assert (facts["gpu0"], facts["gpu0 memory_bytes"]) == ("Tesla V100", "34084028416")


def overlapping(overlap_us):
    file = KinetoFile()
    file.launched(0, 5, 10, 20, correlation=1)
    file.launched(5, 5, 30 - overlap_us, 20, correlation=2)
    return file


@pytest.mark.parametrize("overlap_us", [1, 10])
def test_small_overlaps_on_one_stream_are_clipped(tmp_path, overlap_us):
    kernels = read_kineto(overlapping(overlap_us).write(tmp_path / "t.json")).of("kernel")

    start_s, duration_s = kernels["start_s"].tolist(), kernels["duration_s"].tolist()
    assert duration_s == pytest.approx([(20 - overlap_us) * 1e-6, 20e-6])
    assert start_s[0] + duration_s[0] == pytest.approx(start_s[1])


def test_kernels_of_different_streams_may_overlap(tmp_path):
    file = KinetoFile()
    file.launched(0, 5, 10, 100, correlation=1, stream=7)
    file.launched(5, 5, 15, 100, correlation=2, stream=8)

    kernels = read_kineto(file.write(tmp_path / "t.json")).of("kernel")

    assert kernels["duration_s"].tolist() == pytest.approx([100e-6, 100e-6])


def test_a_larger_overlap_is_refused_with_its_stream_and_size(tmp_path):
    path = overlapping(11).write(tmp_path / "t.json")

    with pytest.raises(
        FileError, match=r"t\.json: gpu0 stream 7: 'gemm' at 0\.000019 s overlaps .* more than 10 us, got '11\.0 us'"
    ):
        read_kineto(path)


def test_a_kernel_launched_before_the_recording_is_accepted(tmp_path):
    file = KinetoFile()
    file.kernel(0, 5, correlation=77)
    file.launched(10, 5, 16, 20, correlation=78)

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert trace.of("kernel")["correlation"].tolist() == [77, 78]


@pytest.mark.parametrize("value", [None, "12", 1.5, True, -1, 0, [3]])
def test_kernels_without_correlation_ids_are_refused_and_counted(tmp_path, value):
    file = one_of_each()
    file.kernel(1070, 5, correlation=value)

    with pytest.raises(
        FileError, match=r"traceEvents\[10\]\.args\.correlation: must be .*; 1 of 4 kernels and copies lack"
    ):
        read_kineto(file.write(tmp_path / "t.json"))


@pytest.mark.parametrize("what", ["nothing", "a folder"])
def test_a_path_that_is_no_file_is_refused(tmp_path, what):
    path = tmp_path / "missing.json" if what == "nothing" else tmp_path

    with pytest.raises(FileError, match="file: cannot be read"):
        read_kineto(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file: is not JSON"),
        (b"# Readme", "file: is not JSON"),
        (b'{"traceEvents": [NaN]}', "file: is not JSON"),
        (b"\xff\xfe", "file: is not JSON"),
        (b"[" * 10000, "file: is not JSON"),
        (b"\x1f\x8bnonsense", "gzip: is truncated or damaged"),
        (b"3", "traceEvents: is missing"),
        (b"{}", "traceEvents: is missing"),
        (b'{"traceEvents": {"ph": "X"}}', "traceEvents: is missing"),
        (b'{"traceEvents": ["kernel"]}', r"traceEvents\[0\]: must be an object, got 'kernel'"),
        (b'{"traceEvents": []}', "kernels: must be >= 1.*got 0"),
        (b"[]", "kernels: must be >= 1.*got 0"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, content, message):
    path = tmp_path / "t.json"
    path.write_bytes(content)

    with pytest.raises(FileError, match=rf"t\.json: {message}"):
        read_kineto(path)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_truncated_gzip_is_refused(tmp_path, share):
    path = one_of_each().write(tmp_path / "t.json.gz", zipped=True)
    content = path.read_bytes()
    path.write_bytes(content[: max(3, int(share * len(content)))])

    with pytest.raises(FileError, match="gzip: is truncated or damaged"):
        read_kineto(path)


def test_a_damaged_gzip_is_refused(tmp_path):
    content = bytearray(gzip.compress(json.dumps(one_of_each().document()).encode()))
    content[len(content) // 2] ^= 0xFF
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)

    with pytest.raises(FileError, match=r"t\.json\.gz: "):
        read_kineto(path)


def test_a_trace_without_kernels_is_refused(tmp_path):
    file = KinetoFile()
    file.op(0, 10)
    file.call(3, 2, correlation=1)

    with pytest.raises(FileError, match="kernels: must be >= 1"):
        read_kineto(file.write(tmp_path / "t.json"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dur", -3, "must be >= 0 microseconds, got -3"),
        ("dur", "5", "must be a number of microseconds, not str, got '5'"),
        ("dur", None, "must be a number of microseconds, not missing"),
        ("dur", 1e300, "must be within"),
        ("ts", None, "must be a number of microseconds, not missing"),
        ("ts", True, "must be a number of microseconds, not bool"),
        ("ts", 10**18, "must be within"),
        ("name", 7, "must be text, not int, got 7"),
        ("args", [], r"must be an object, not list, got \[\]"),
    ],
)
def test_a_field_of_a_wrong_type_or_value_is_named(tmp_path, field, value, message):
    file = one_of_each()
    file.events[3][field] = value

    with pytest.raises(FileError, match=rf"t\.json: traceEvents\[3\]\.{field}: {message}"):
        read_kineto(file.write(tmp_path / "t.json"))


@pytest.mark.parametrize(("field", "value"), [("device", "zero"), ("stream", [7]), ("stream", "stream x")])
def test_a_device_or_stream_that_is_no_number_is_named(tmp_path, field, value):
    file = one_of_each()
    file.events[3]["args"][field] = value

    with pytest.raises(FileError, match=rf"traceEvents\[3\]\.args\.{field}: must be an integer"):
        read_kineto(file.write(tmp_path / "t.json"))


def test_a_step_that_takes_no_time_is_refused(tmp_path):
    file = one_of_each()
    file.step(6, 1200, 0)

    with pytest.raises(FileError, match=r"traceEvents\[10\]\.dur: must be > 0 for a profiler step"):
        read_kineto(file.write(tmp_path / "t.json"))


def test_a_trace_that_spans_no_time_is_refused(tmp_path):
    file = KinetoFile()
    file.launched(5, 0, 5, 0, correlation=1)

    with pytest.raises(FileError, match="the trace spans no time"):
        read_kineto(file.write(tmp_path / "t.json"))


def test_events_of_different_years_are_refused(tmp_path):
    file = one_of_each()
    file.events[1]["ts"] = 1623142623460172

    with pytest.raises(
        FileError, match=r"traceEvents\[0\]\.ts: must be within 1e\+12 microseconds of .*\[1\], got 1000"
    ):
        read_kineto(file.write(tmp_path / "t.json"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(
    number=st.integers(0, 9),
    field=st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]),
    inner=st.none() | st.sampled_from(["device", "stream", "correlation", "bytes"]),
    value=JSON_VALUES,
)
def test_whatever_stands_in_a_field_it_is_read_or_refused_in_one_line(tmp_path_factory, number, field, inner, value):
    file = one_of_each()
    if inner is None:
        file.events[number][field] = value
    else:
        file.events[number]["args"][inner] = value
    path = file.write(tmp_path_factory.mktemp("any") / "t.json")

    assert "\n" not in refusal(path)


def refusal(path):
    """Why the trace is refused; empty when it is read."""
    try:
        read_kineto(path)
    except FileError as error:
        return str(error)
    return ""
