"""Every place where a command reads or writes a file, and all that can be wrong with it."""

import os
from pathlib import Path

import pytest
from command_line import refused, stepsim
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_files import FACTORY

READERS = {
    "plan": ("plan", "FILE", "--machine", "this_cpu"),
    "plan's calibration": ("plan", "WORKLOAD", "--machine", "this_cpu", "--calibration", "FILE"),
    "plan's machine": ("plan", "WORKLOAD", "--machine", "FILE"),
    "simulate": ("simulate", "FILE", "--machine", "this_cpu", "-o", "out"),
    "execute": ("execute", "FILE", FACTORY, "-o", "out"),
    "validate": ("validate", "FILE", FACTORY, "--calibration", "CALIBRATION"),
    "fit": ("fit", "FILE"),
    "fit's second": ("fit", "TRACE", "FILE"),
    "replay": ("replay", "FILE"),
    "show": ("show", "FILE"),
}
"""Each place where a command reads a file."""

EVERY_READER = pytest.mark.parametrize("reader", READERS)


def reading(reader, bad, files):
    """The command with ``bad`` in place of the file in question, and good ones elsewhere."""
    given_files = {"FILE": bad, "WORKLOAD": files.workload, "CALIBRATION": files.calibration, "TRACE": files.trace}
    return [given_files.get(word, word) for word in READERS[reader]]


def named_for(reader, folder):
    return folder / ("bad.toml" if reader == "plan's machine" else "bad")


@EVERY_READER
def test_a_missing_file_is_named(files, here, reader):
    missing = named_for(reader, here)

    assert refused(*reading(reader, missing, files)).startswith(f"{missing}: ")


@EVERY_READER
def test_a_folder_in_place_of_a_file_is_refused(files, here, reader):
    folder = named_for(reader, here)
    folder.mkdir()

    assert refused(*reading(reader, folder, files)).startswith(f"{folder}: ")


@EVERY_READER
def test_a_file_of_another_kind_is_refused(files, here, reader):
    wrong = named_for(reader, here)
    wrong.write_bytes(files.picture.read_bytes())

    assert refused(*reading(reader, wrong, files)).startswith(f"{wrong}: ")


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "show"])
def test_a_file_of_the_wrong_verb_is_refused_by_its_format(files, here, reader):
    wrong = named_for(reader, here)
    wrong.write_bytes((files.comparison if "machine" not in reader else files.workload).read_bytes())

    assert refused(*reading(reader, wrong, files)).startswith(f"{wrong}: ")


@pytest.mark.parametrize("kind", ["workload", "trace", "calibration", "plan", "timeline", "comparison"])
@given(share=st.floats(0.0, 1.0, exclude_max=True))
@settings(max_examples=10)
def test_a_truncated_file_is_refused(files, kind, share):
    whole = getattr(files, kind)
    cut = whole.with_name("truncated")
    cut.write_bytes(whole.read_bytes()[: int(share * whole.stat().st_size)])

    assert refused("show", cut).startswith(f"{cut}: ")


HEADS = [b"", b"PK\x03\x04", b"PAR1", b"\x1f\x8b\x08", b"{", b'{"format": "stepsim-plan"', b"[devices]"]


@EVERY_READER
@given(head=st.sampled_from(HEADS), tail=st.binary(max_size=64))
@settings(max_examples=20)
def test_random_bytes_are_refused_in_one_line(files, reader, head, tail):
    bad = named_for(reader, files.plan.parent)
    bad.write_bytes(head + tail)

    assert refused(*reading(reader, bad, files)).startswith(f"{bad}: ")


WRITERS = {
    "capture": ("capture", FACTORY, "-o", "OUTPUT"),
    "record": ("record", FACTORY, "--repeats", "2", "-o", "OUTPUT"),
    "fit": ("fit", "TRACE", "-o", "OUTPUT"),
    "plan": ("plan", "WORKLOAD", "--machine", "this_cpu", "--calibration", "CALIBRATION", "-o", "OUTPUT"),
    "simulate": ("simulate", "PLAN", "--machine", "this_cpu", "--calibration", "CALIBRATION", "-o", "OUTPUT"),
    "simulate's plot": (
        "simulate",
        "PLAN",
        "--machine",
        "this_cpu",
        "--calibration",
        "CALIBRATION",
        "--plot",
        "OUTPUT",
    ),
    "simulate's trace": (
        *("simulate", "PLAN", "--machine", "this_cpu", "--calibration", "CALIBRATION"),
        *("--perfetto", "OUTPUT"),
    ),
    "execute": ("execute", "PLAN", FACTORY, "-o", "OUTPUT"),
    "validate": ("validate", "PLAN", FACTORY, "--calibration", "CALIBRATION", "--runs", "1", "-o", "OUTPUT"),
    "demo": ("demo", "--quick", "-o", "OUTPUT"),
}
"""Each place where a command writes a file."""


@pytest.mark.parametrize("writer", WRITERS)
def test_an_output_in_a_folder_that_cannot_be_made_is_refused(files, here, writer):
    Path("occupied").write_text("a file where a folder should be")
    output = Path("occupied/out.png")
    words = {
        "OUTPUT": output,
        "TRACE": files.trace,
        "WORKLOAD": files.workload,
        "CALIBRATION": files.calibration,
        "PLAN": files.plan,
    }

    ran = stepsim(*[words.get(word, word) for word in WRITERS[writer]])

    last = ran.err.splitlines()[-1]
    assert ran.code == 2
    assert last.startswith("stepsim: occupied/out.png")
    assert "output: cannot be written: " in last
    assert os.listdir() == ["occupied"]
