import gzip
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_files import KinetoFile
from nsys_files import NsysFile
from test_bandwidth_logs import LOGS
from test_nccl_tests import log, row

from stepsim.errors import FileError
from stepsim.traces import read_any
from stepsim.traces.detect import FORMATS, format_of
from stepsim.traces.execution_trace import read_execution_trace
from stepsim.traces.memory_timeline import read_memory_timeline


def kineto(path, **how):
    file = KinetoFile()
    file.launched(0, 5, 6, 20, correlation=1)
    return file.write(path, **how)


@pytest.mark.parametrize("how", [{}, {"zipped": True}, {"bare": True}])
def test_a_kineto_trace_is_told_whatever_it_is_called(tmp_path, how):
    path = kineto(tmp_path / "trace.log", **how)

    assert format_of(path).name == "Kineto trace"
    assert len(read_any(path).of("kernel")) == 1


@pytest.mark.parametrize("which", LOGS)
def test_a_bandwidth_log_is_told(tmp_path, which):
    path = tmp_path / "anything.json"
    path.write_text(LOGS[which])

    assert format_of(path).name == "bandwidth log"
    assert not read_any(path).of("copy").empty


def test_an_nccl_tests_log_is_told(tmp_path):
    path = tmp_path / "anything.csv"
    path.write_text(log(row(1024)))

    assert format_of(path).name == "nccl-tests log"
    assert len(read_any(path).of("collective")) == 2


def test_an_export_of_nsight_systems_is_told(tmp_path):
    file = NsysFile()
    file.launched(0, 1)
    path = file.write(tmp_path / "anything.txt")

    assert format_of(path).name == "Nsight Systems export"
    assert len(read_any(path).of("kernel")) == 1


def test_a_trace_of_stepsim_comes_back_equal(tmp_path):
    before = read_any(kineto(tmp_path / "t.json"))
    before.save(tmp_path / "t.log")

    after = read_any(tmp_path / "t.log")

    assert after.events.equals(before.events)
    assert after.provenance == before.provenance


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file: is empty"),
        (b"nothing known\n", "format: must be one of stepsim trace, Kineto trace, nccl-tests log, bandwidth log"),
        (gzip.compress(b"nothing known"), "format: must be one of"),
        (b"\x1f\x8bno gzip", "gzip: is damaged"),
        (b'{"nodes": []}', "format: must be one of"),
    ],
    ids=["empty", "text", "gzip", "damaged gzip", "other JSON"],
)
def test_a_file_of_no_known_format_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "what.bin"
    path.write_bytes(content)

    with pytest.raises(FileError) as caught:
        read_any(path)

    assert str(caught.value).startswith(f"{path}: {message}"[:60])


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(FileError, match="cannot be read"):
            read_any(path)


@given(st.binary(max_size=200))
def test_no_content_breaks_the_detection(head):
    for form in FORMATS:
        assert form.looks_like(head) in (True, False)


def told(path):
    try:
        return format_of(path).name
    except FileError:
        return ""


def test_every_measured_file_of_a_supported_format_is_read(data_dir):
    """Kineto traces, which take longest, are read in the tests of their reader."""
    forms = {path: told(path) for path in data_dir.glob("*/**/*") if path.is_file()}

    assert Counter(filter(None, forms.values())) == {
        "Kineto trace": 29,
        "PipeDream graph": 9,
        "PyTorch execution trace": 9,
        "nccl-tests log": 7,
        "bandwidth log": 4,
        "TrioSim trace": 1,
        "PyTorch memory timeline": 1,
    }
    for path, form in forms.items():
        if form == "PyTorch execution trace":
            assert len(read_execution_trace(path).nodes) > 0
        elif form == "PyTorch memory timeline":
            assert len(read_memory_timeline(path)) > 0
        elif form not in ("", "Kineto trace"):
            assert len(read_any(path).events) > 0
