"""No command replaces what it reads, and what fails half-way leaves nothing behind."""

import os
from pathlib import Path

import pytest
from command_line import done, refused
from hypothesis import given
from hypothesis import strategies as st

from stepsim.commands.outputs import check_outputs, save_together
from stepsim.errors import FileError, StepsimError
from stepsim.machines import load_machine, save_machine
from stepsim.plan.builder import PlanBuilder
from stepsim.traces.trace import Trace

SWEEP = "cpu_to_gpu0_by_dma_under_numa0 25.6\n"
SIMULATE = ("simulate", "step.plan", "--machine", "m.toml", "--calibration", "c.json")
PLAN = ("plan", "w.json", "--machine", "m.toml", "--calibration", "c.json", "-o")
VALIDATE = ("validate", "step.plan", "model:layers", "--machine", "m.toml", "--calibration", "c.json", "-o")

REPLACING = {
    "w.json": [(*PLAN, "w.json")],
    "m.toml": [
        (*PLAN, "m.toml"),
        *[(*SIMULATE, option, "m.toml") for option in ("-o", "--plot", "--perfetto")],
        (*VALIDATE, "m.toml"),
        ("machines", "m.toml", "--plot", "m.toml"),
    ],
    "c.json": [(*PLAN, "c.json"), (*SIMULATE, "-o", "c.json"), (*VALIDATE, "c.json")],
    "step.plan": [
        *[(*SIMULATE, option, "step.plan") for option in ("-o", "--plot", "--perfetto")],
        ("execute", "step.plan", "model:layers", "-o", "step.plan"),
        (*VALIDATE, "step.plan"),
    ],
    "t.parquet": [("fit", "t.parquet", "-o", "t.parquet"), ("fit", "other", "t.parquet", "-o", "./t.parquet")],
    "model.py": [
        ("capture", "model:layers", "-o", "model.py"),
        ("record", "model:layers", "-o", "model.py"),
        ("execute", "step.plan", "model:layers", "-o", "model.py"),
        (*VALIDATE, "model.py"),
    ],
    "sweep.log": [
        ("import", "sweep.log", "-o", "sweep.log"),
        ("traces", "show", "sweep.log", "--plot", "sweep.log"),
        ("traces", "show", "sweep.log", "--plot", "linked"),
    ],
}
"""By the file that would be lost, commands that would replace it. Only that file need be sound, or even be there."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sweep.log").write_text(SWEEP)
    Path("linked").symlink_to("sweep.log")
    return tmp_path


@pytest.mark.parametrize(
    ("lost", "command"), [(lost, command) for lost, each in REPLACING.items() for command in each], ids=str
)
def test_an_output_that_is_an_input_is_refused_before_anything_is_read(here, lost, command):
    if lost != "sweep.log":
        Path(lost).write_text("what was there")

    assert refused(*command) == f"{lost} would be replaced by what is made of it: give another output"


def test_two_outputs_of_one_command_are_two_files(here):
    assert refused(*SIMULATE, "--plot", "x.png", "--perfetto", "./x.png") == (
        "x.png is given for two outputs: give another one"
    )


@given(st.lists(st.sampled_from([None, "a", "b", "c/../a", "./b"]), max_size=3), st.sampled_from(["a", "b", "z", None]))
def test_outputs_are_fine_exactly_where_all_files_differ(tmp_path_factory, outputs, source):
    """Both inputs are there; z is a name that is no file."""
    folder = tmp_path_factory.getbasetemp()
    for name in ("a", "b"):
        (folder / name).touch()
    (folder / "c").mkdir(exist_ok=True)
    files = [os.path.normpath(name) for name in (*outputs, source) if name is not None]
    paths = [None if name is None else folder / name for name in outputs]
    read = None if source is None else folder / source

    if len(set(files)) == len(files):
        check_outputs(paths, [read])
    else:
        with pytest.raises(StepsimError, match="give another"):
            check_outputs(paths, [read])


@pytest.mark.parametrize("output", ["folder", "sweep.log/step.plan", "/dev/null", "."])
@pytest.mark.parametrize(
    "command",
    [
        (*PLAN,),
        (*SIMULATE, "-o"),
        (*SIMULATE, "--perfetto"),
        (*VALIDATE,),
        ("fit", "t.parquet", "-o"),
        ("capture", "model:layers", "-o"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(here, output, command):
    """What would be read is not there, and is not what is told."""
    Path("folder").mkdir()

    assert refused(*command, output).startswith(f"{output}: output: ")


def test_an_output_may_be_called_like_something_that_ships(here):
    check_outputs([Path("vgg16")], ["vgg16", "v100_pcie"])


@pytest.mark.parametrize(
    "command", [(*SIMULATE, "--plot"), ("machines", "x", "--plot"), ("traces", "show", "x", "--plot")]
)
def test_a_picture_of_no_known_format_is_refused_before_anything_is_read(here, command):
    assert refused(*command, "picture.docx").startswith("picture.docx: suffix: must be one of ")


def a_trace(here):
    done("import", "sweep.log", "-o", "t.trace")
    return Trace.load("t.trace")


def test_traces_are_written_together_or_not_at_all(here, monkeypatch):
    trace = a_trace(here)
    Path("out").mkdir()
    Path("out/a").write_text("what was there")
    before = sorted(here.rglob("*"))
    monkeypatch.setattr(Trace, "save", save_the_first(Trace.save))

    with pytest.raises(FileError, match="No space left"):
        save_together({Path("out/a"): trace, Path("out/b"): trace})

    assert sorted(here.rglob("*")) == before
    assert Path("out/a").read_text() == "what was there"


def save_the_first(save):
    """What `Trace.save` does on a disk that has room for one trace."""
    saved = []

    def until_full(trace, path):
        if saved:
            raise FileError(path, "output", None, "cannot be written: No space left on device")
        saved.append(path)
        save(trace, path)

    return until_full


def test_a_folder_in_the_place_of_one_trace_keeps_all_from_being_written(here):
    Path("other.log").write_text(SWEEP)
    Path("out/other.log.trace").mkdir(parents=True)

    message = refused("import", "sweep.log", "other.log", "-o", "out")

    assert message == "out/other.log.trace: output: cannot be written: Is a directory"
    assert not Path("out/sweep.log.trace").exists()


def test_a_folder_that_was_made_in_vain_is_taken_away_with_those_around_it(here, monkeypatch):
    trace = a_trace(here)
    monkeypatch.setattr(Trace, "save", save_the_first(Trace.save))

    with pytest.raises(FileError):
        save_together({Path("new/deep/a"): trace, Path("new/deep/b"): trace})

    assert not Path("new").exists()


def test_what_is_no_file_is_not_replaced_by_a_trace(here):
    trace = a_trace(here)
    os.mkfifo("pipe")

    with pytest.raises(FileError, match="pipe: output: is no file, and would be replaced by a file"):
        save_together({Path("pipe"): trace})

    assert Path("pipe").is_fifo()


def test_a_machine_of_a_file_can_be_drawn_beside_it(here):
    save_machine(load_machine("v100_pcie"), "m.toml")

    done("machines", "m.toml", "--plot", "m.png")

    assert Path("m.png").read_bytes().startswith(b"\x89PNG")


def test_an_output_beside_the_inputs_is_written(here):
    builder = PlanBuilder()
    builder.compute(builder.work("relu", bytes_read=10**6), builder.stream("compute", builder.device("gpu0")))
    builder.build().save("step.plan")

    done("simulate", "step.plan", "--machine", "v100_pcie", "-o", "step.timeline")

    assert Path("step.timeline").is_file()
