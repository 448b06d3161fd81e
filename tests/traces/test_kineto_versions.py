import warnings

import numpy as np
import pytest
from kineto_files import KinetoFile

from stepsim.traces import read_kineto
from stepsim.traces.kineto_sizes import ELEMENT_BYTES


def launched():
    file = KinetoFile()
    file.launched(100, 5, 110, 20, correlation=1)
    return file


def read_with_warnings(file, path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = read_kineto(file.write(path / "t.json"))
    return trace, [str(warning.message) for warning in caught]


def read_with_one_warning(file, path):
    trace, (warning,) = read_with_warnings(file, path)
    assert "\n" not in warning
    assert "t.json: " in warning
    return trace, warning


def test_a_sound_trace_is_read_without_a_warning(tmp_path):
    assert read_with_warnings(launched(), tmp_path)[1] == []


@pytest.mark.parametrize("schema", [2, "1.1", {"major": 3}])
def test_another_schema_is_read_with_one_warning(tmp_path, schema):
    file = launched()
    document = file.document
    file.document = lambda: document() | {"schemaVersion": schema, "a key of next year": [{}]}

    trace, warning = read_with_one_warning(file, tmp_path)

    assert len(trace.events) == 2
    assert "schemaVersion" in warning
    assert "is not 1: read as far as it is known" in warning


def test_fields_that_are_not_known_do_not_matter(tmp_path):
    plain, extended = launched(), launched()
    for event in extended.events:
        event |= {"next year": [{"ph": "X"}], "cname": "good"}
        event["args"] |= {"next year": {"a": None}}

    assert read_kineto(plain.write(tmp_path / "a.json")).events.equals(
        read_kineto(extended.write(tmp_path / "b.json")).events
    )


def test_events_that_stand_there_twice_are_read_once_with_one_warning(tmp_path):
    once, twice = launched(), launched()
    op = once.op(90, 30)
    op["args"]["External id"] = 5
    twice.events = once.events * 2

    trace, warning = read_with_one_warning(twice, tmp_path)

    assert "traceEvents[3]: 3 events stand there twice: read once" in warning
    assert trace.events.equals(read_kineto(once.write(tmp_path / "once.json")).events)


def test_host_work_without_an_id_may_repeat_itself(tmp_path):
    file = launched()
    file.op(100, 0)
    file.op(100, 0)

    trace, warned = read_with_warnings(file, tmp_path)

    assert (len(trace.events), warned) == (4, [])


def test_a_clock_that_goes_back_within_a_thread_is_told_once(tmp_path):
    file = KinetoFile()
    for correlation, at in enumerate((100, 200, 150, 300, 260), start=1):
        file.launched(at, 5, 1000 + 30 * correlation, 20, correlation=correlation)

    trace, warning = read_with_one_warning(file, tmp_path)

    assert "traceEvents[4].ts: 2 of 4 calls of a runtime start before an earlier call of their thread" in warning
    assert "by up to 50.0 us" in warning
    assert np.all(np.diff(trace.events["start_s"]) >= 0)


def test_threads_may_interleave_without_a_warning(tmp_path):
    file = KinetoFile()
    file.launched(200, 5, 300, 20, correlation=1, thread=1)
    file.launched(100, 5, 400, 20, correlation=2, thread=2)

    assert read_with_warnings(file, tmp_path)[1] == []


def test_kernels_that_start_before_their_launch_are_told_once(tmp_path):
    file = launched()
    file.launched(200, 5, 188, 10, correlation=2)
    file.launched(300, 5, 299, 10, correlation=3)

    _, warning = read_with_one_warning(file, tmp_path)

    assert "traceEvents[3].ts: 1 of 3 kernels and copies start before their launch, by up to 12.0 us" in warning


def test_an_event_long_before_the_others_is_the_start(tmp_path):
    file = launched()
    file.op(-5e9, 10)

    assert read_kineto(file.write(tmp_path / "t.json")).of("kernel")["start_s"].tolist() == pytest.approx([5000.00011])


@pytest.mark.parametrize("size", [-1, 2**60, 1.5, "many", True, None, [8]])
def test_what_can_be_no_size_is_zero_with_one_warning(tmp_path, size):
    file = launched()
    for correlation in (2, 3):
        file.call(correlation * 100, 5, correlation=correlation, name="cudaMemcpyAsync")
        file.copy(correlation * 100 + 6, 5, correlation, size_bytes=size)

    trace, warning = read_with_one_warning(file, tmp_path)

    assert trace.of("copy")["size_bytes"].tolist() == [0, 0]
    assert "traceEvents[3].args: 2 sizes are no number of bytes or elements" in warning


def collective(tmp_path, **message):
    file = KinetoFile()
    file.call(0, 5, correlation=1)
    file.on_gpu("kernel", "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 6, 20, 1, **message)
    return read_with_warnings(file, tmp_path)


@pytest.mark.parametrize(
    ("dtype", "element_bytes"),
    [("Float8_e4m3fn", 1), ("Float8_e5m2fnuz", 1), ("Half", 2), ("Float", 4), ("Long", 8), ("ComplexDouble", 16)],
)
def test_messages_have_the_bytes_of_their_elements(tmp_path, dtype, element_bytes):
    trace, warned = collective(tmp_path, **{"In msg nelems": 1000, "Out msg nelems": 8000, "dtype": dtype})

    assert trace.of("collective")["size_bytes"].tolist() == [1000 * element_bytes]
    assert warned == []


def test_who_contributes_nothing_has_the_bytes_that_it_gets(tmp_path):
    trace, _ = collective(tmp_path, **{"In msg nelems": 0, "Out msg nelems": 500, "dtype": "Float"})

    assert trace.of("collective")["size_bytes"].tolist() == [2000]


def test_elements_of_a_type_that_is_not_known_have_no_size_and_are_told(tmp_path):
    trace, (warning,) = collective(tmp_path, **{"In msg nelems": 10, "dtype": "Float2_next_year"})

    assert trace.of("collective")["size_bytes"].tolist() == [0]
    assert "1 sizes are no number of bytes or elements of a known type" in warning


def test_every_number_type_of_torch_has_the_size_that_torch_gives_it():
    torch = pytest.importorskip("torch")
    sizes = {"Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16, "Double": torch.float64}
    sizes |= {"Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64}
    sizes |= {"Bool": torch.bool, "ComplexHalf": torch.complex32, "ComplexFloat": torch.complex64}
    sizes |= {"ComplexDouble": torch.complex128, "UInt16": torch.uint16, "UInt32": torch.uint32, "UInt64": torch.uint64}
    sizes |= {name: getattr(torch, name.lower()) for name in ("Float8_e4m3fn", "Float8_e5m2", "Float8_e8m0fnu")}

    assert {name: ELEMENT_BYTES[name.lower()] for name in sizes} == {
        name: dtype.itemsize for name, dtype in sizes.items()
    }


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch"])
def test_a_launched_graph_is_one_launch_of_many_kernels(tmp_path, call):
    file = KinetoFile()
    file.call(0, 50, correlation=9, name=call)
    for number in range(4):
        file.kernel(60 + 10 * number, 10, 9, name="gemm")

    trace, warned = read_with_warnings(file, tmp_path)

    assert trace.of("launch")["correlation"].tolist() == [9]
    assert trace.of("kernel")["correlation"].tolist() == [9] * 4
    assert warned == []


@pytest.mark.parametrize("key", ["size", "bytes"])
def test_a_copy_of_rocm_without_bytes_has_those_that_its_call_tells(tmp_path, key):
    file = launched()
    file.call(200, 50, correlation=2, name="hipMemcpyWithStream")["args"][key] = "2560"
    file.on_gpu("copy", "Memcpy HtoD (Host -> Device)", 210, 20, 2)

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert trace.of("copy")["size_bytes"].tolist() == [2560]
    assert trace.of("launch")["size_bytes"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("hipEventRecord", "record"), ("hipStreamWaitEvent", "wait"), ("hipDeviceSynchronize", "sync")],
)
def test_calls_of_the_hip_runtime_mean_what_those_of_cuda_mean(tmp_path, name, kind):
    file = launched()
    file.call(200, 5, correlation=2, name=name)

    assert len(read_kineto(file.write(tmp_path / "t.json")).of(kind)) == 1


def test_each_device_of_a_trace_is_named(tmp_path):
    file = launched()
    file.launched(200, 5, 210, 20, correlation=2, device=1)
    document = file.document
    known = [{"id": 0, "name": "A100"}, {"id": 1, "name": "P4"}]
    file.document = lambda: document() | {"deviceProperties": known}

    trace = read_kineto(file.write(tmp_path / "t.json"))

    assert trace.of("kernel")["device"].tolist() == ["gpu0", "gpu1"]
    assert (trace.provenance["gpu0"], trace.provenance["gpu1"]) == ("A100", "P4")


def test_nanoseconds_of_times_after_a_base_are_kept(tmp_path):
    file = KinetoFile()
    file.launched(4458676984451.267, 4.96, 4458676984460.0, 1.001, correlation=1)

    kernel = read_kineto(file.write(tmp_path / "t.json")).of("kernel")

    assert kernel["start_s"].tolist() == pytest.approx([8.733e-6], abs=1e-9)
    assert kernel["duration_s"].tolist() == pytest.approx([1.001e-6], rel=1e-12)


def test_kernels_that_take_no_time_are_read(tmp_path):
    file = launched()
    file.launched(200, 0, 210, 0, correlation=2)

    assert read_kineto(file.write(tmp_path / "t.json")).of("kernel")["duration_s"].tolist() == pytest.approx([2e-5, 0])
