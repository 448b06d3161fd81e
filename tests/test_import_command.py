"""``stepsim import`` as its users meet it."""

import pytest
from command_line import done, refused

from stepsim import Trace

SWEEP = "cpu_to_gpu0_by_dma_under_numa0 25.6\ngpu0_to_cpu_by_dma_under_numa0 12.8\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.log").write_text(SWEEP)
    (tmp_path / "other.log").write_text(SWEEP)
    return tmp_path


def test_one_file_becomes_one_trace_and_a_line_says_what_it_was(here):
    ran = done("import", "sweep.log", "-o", "sweep.trace")

    assert ran.out == "sweep.log: bandwidth log: 2 copy -> sweep.trace\n"
    assert len(Trace.load("sweep.trace").of("copy")) == 2


def test_the_line_names_the_gpus_that_the_log_names(here):
    line = "bandwidthTest-H2D-Pinned, Bandwidth = 12.8 GB/s, Time = 0.00250 s, Size = 32000000 bytes, NumDevsUsed = 1"
    (here / "v100.log").write_text(f"Device 0: Tesla V100\n{line}\nResult = PASS\n")

    assert done("import", "v100.log", "-o", "t").out == "v100.log: bandwidth log of Tesla V100: 1 copy -> t\n"


def test_the_name_of_a_gpu_is_no_markup_and_does_not_steer_the_terminal(here):
    line = "bandwidthTest-H2D-Pinned, Bandwidth = 12.8 GB/s, Time = 0.00250 s, Size = 32000000 bytes, NumDevsUsed = 1"
    (here / "v100.log").write_text(f"Device 0: [bold]V100\x1b[2J\n{line}\nResult = PASS\n")

    assert " of [bold]V100?[2J: 1 copy" in done("import", "v100.log", "-o", "t").out


def test_the_name_of_a_file_does_not_steer_the_terminal(here):
    (here / "bad\x1b[2J.log").write_text(SWEEP)

    assert done("import", "bad\x1b[2J.log", "-o", "t").out == "bad?[2J.log: bandwidth log: 2 copy -> t\n"


def test_several_files_become_a_folder_of_traces(here):
    facts = done("import", "sweep.log", "other.log", "-o", "traces", "--json").facts

    assert facts["traces"] == [
        {"file": name, "format": "bandwidth log", "events": {"copy": 2}, "trace": f"traces/{name}.trace"}
        for name in ("sweep.log", "other.log")
    ]
    assert len(Trace.load("traces/other.log.trace").events) == 2


def test_one_file_goes_into_a_folder_that_is_there(here):
    (here / "traces").mkdir()

    done("import", "sweep.log", "-o", "traces")

    assert (here / "traces/sweep.log.trace").is_file()


def test_what_was_imported_can_be_imported_again(here):
    done("import", "sweep.log", "-o", "once")
    done("import", "once", "-o", "twice")

    assert Trace.load("twice").events.equals(Trace.load("once").events)


def test_one_file_that_cannot_be_read_keeps_all_from_being_written(here):
    (here / "bad.log").write_text("hello\n")

    assert refused("import", "sweep.log", "bad.log", "-o", "traces").startswith("bad.log: format: must be one of")


def test_two_files_of_one_name_are_refused(here):
    (here / "more").mkdir()
    (here / "more/sweep.log").write_text(SWEEP)

    message = refused("import", "sweep.log", "more/sweep.log", "-o", "traces")

    assert message == "more/sweep.log and sweep.log would both become traces/sweep.log.trace: import them apart"


def test_where_to_write_must_be_said(here):
    assert "Missing option" in refused("import", "sweep.log")


def test_a_recorded_file_is_not_replaced_by_its_own_trace(here):
    assert refused("import", "sweep.log", "-o", "sweep.log") == (
        "sweep.log would be replaced by what is made of it: give another output"
    )
    assert (here / "sweep.log").read_text() == SWEEP
