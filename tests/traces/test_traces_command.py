"""``stepsim traces show`` as its users meet it."""

import pytest
from command_line import done, refused
from execution_files import ExecutionFile
from kineto_files import KinetoFile
from small_traces import kernel, on_host, trace_of

from stepsim.commands.options import STDOUT

SWEEP = "cpu_to_gpu0_by_dma_under_numa0 25.6\ngpu0_to_cpu_by_dma_under_numa0 12.8\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(STDOUT, "width", 160)  # a narrow terminal folds words
    file = KinetoFile()
    file.step(1, 0, 100)
    file.launched(2, 3, 10, 20, 1, name="volta_sgemm_64x64_nn")
    file.call(30, 3, name="cudaMemcpyAsync", correlation=2)
    file.copy(40, 10, 2, size_bytes=2**20)
    file.write(tmp_path / "kineto.json")
    (tmp_path / "sweep.log").write_text(SWEEP)
    return tmp_path


def test_a_trace_is_shown_with_what_it_is_of_and_all_tables(here):
    shown = done("traces", "show", "kineto.json").out

    assert shown.startswith("kineto.json: Kineto trace: format kineto; ")
    for text in ("Tesla V100", "matrix product", "pageable", "ProfilerStep#1", "1.00 MiB", "104.86 GB/s"):
        assert text in shown
    for title in ("devices", "kernels by class", "copies", "streams", "steps", "launches", "idle", "overlap"):
        assert f"\n{title}\n" in shown


def test_as_json_each_file_has_its_tables(here):
    kineto, sweep = done("traces", "show", "kineto.json", "sweep.log", "--json").facts["traces"]

    assert (kineto["file"], kineto["format"]) == ("kineto.json", "Kineto trace")
    assert kineto["provenance"]["gpu0"] == "Tesla V100"
    (kind,) = kineto["tables"]["kernels_by_class"]
    assert (kind["class"], kind["count"], kind["share"]) == ("matrix product", 1, 1)
    assert [copy["bytes_per_s"] for copy in sweep["tables"]["copies"]] == pytest.approx([12.8e9, 25.6e9])


def test_a_picture_is_drawn_of_one_file(here):
    done("traces", "show", "kineto.json", "--plot", "t.png")

    assert (here / "t.png").read_bytes().startswith(b"\x89PNG")
    assert "only one FILE can be drawn" in refused("traces", "show", "kineto.json", "sweep.log", "--plot", "two.png")


def test_what_has_no_times_is_shown_and_not_drawn(here):
    file = ExecutionFile()
    file.op("aten::relu")
    file.write(here / "et.json")

    assert "aten::relu" in done("traces", "show", "et.json").out
    message = refused("traces", "show", "et.json", "--plot", "t.png")
    assert message == "et.json: times: are not in a PyTorch execution trace: there is nothing to draw"


def test_nothing_that_a_trace_says_is_markup_or_steers_the_terminal(here):
    bad = "[bold]\x1b[2J[/nothing]"
    trace_of(on_host("step", 0, 4, name=bad), kernel(0, 1, bad), kernel(2, 1, bad), gpu0=bad).save("bad.trace")

    shown = done("traces", "show", "bad.trace").out

    assert "\x1b" not in shown
    assert shown.count("[bold]?[2J[/nothing]") == 4  # the GPU twice, the kernels, the step


def test_one_file_that_cannot_be_read_keeps_all_from_being_shown(here):
    (here / "bad.log").write_text("hello\n")

    assert refused("traces", "show", "sweep.log", "bad.log").startswith("bad.log: format: must be one of")
    assert refused("traces", "show", "no.log") == "no.log: file: cannot be read: No such file or directory"
