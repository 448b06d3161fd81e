"""What a person sees of each file."""

import io
import json
from pathlib import Path

import pytest
from loop_files import KINETO
from rich.console import Console
from small_machines import RowCosts, gpus

from stepsim.errors import FileError, StepsimError
from stepsim.machines import Device, DeviceKind, Link, Machine, Route, save_machine
from stepsim.plan.builder import PlanBuilder
from stepsim.replay import replay
from stepsim.show import ROWS_SHOWN, print_comparisons, print_replay, print_table, show
from stepsim.simulator import simulate
from stepsim.traces.trace import Trace, events_of
from stepsim.validation import Comparison, KindSeconds, save_comparisons
from stepsim.workloads import Op, Phase, Role, Tensor, Workload

MIB = 2**20


def printed(printing, *nouns, width=160):
    console = Console(file=io.StringIO(), width=width)
    printing(*nouns, console)
    return console.file.getvalue()


def shown(path, width=160):
    return printed(show, path, width=width)


def words(text):
    return " ".join(text.split())


def a_plan(num_rows=2):
    """One tensor that is made, swapped out and dropped, and further work."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, d2h = builder.stream("compute", gpu), builder.stream("d2h", gpu, role="d2h")
    y = builder.buffer(3 * MIB, gpu, owner=compute, name="y")
    builder.compute(builder.work("conv"), compute, writes=[y], allocates=[y])
    builder.swap_out(y, builder.buffer(3 * MIB, host, name="y on host"), d2h)
    builder.release([y], compute)
    for _ in range(num_rows - 2):
        builder.compute(builder.work("relu"), compute)
    return builder.build()


def test_a_machine_is_shown_with_every_number_and_its_source(tmp_path):
    numbers = {
        "memory_bytes": 16 * 2**30,
        "memory_bandwidth_bytes_per_s": 900e9,
        "peak_flop_per_s": {"float32": 14e12, "float16": 112e12},
        "num_sms": 80,
        "copy_engines": 2,
    }
    gpu = Device(name="gpu0", kind=DeviceKind.GPU, sources={name: f"source of {name}" for name in numbers}, **numbers)
    sources = {"latency_s": "a stopwatch", "bandwidth_bytes_per_s": "a ruler"}
    link = Link(name="lane", latency_s=2e-6, bandwidth_bytes_per_s=12e9, sources=sources)
    host = Device(name="host", kind=DeviceKind.HOST, memory_bytes=2**30, sources={"memory_bytes": "free"})
    route = Route(source="gpu0", destination="host", links=("lane",))
    machine = Machine(name="box", description="under the desk", devices=(gpu, host), links=(link,), routes=(route,))
    save_machine(machine, tmp_path / "box.toml")

    text = shown(tmp_path / "box.toml")

    values = ("16.00 GiB", "900 GB/s", "14 TFLOP/s", "112 TFLOP/s", "80", "2", "12.00 GB/s", "2.0 us")
    assert text.startswith("box: under the desk\n")
    assert all(value in text for value in values)
    assert all(f"source of {name}" in text for name in numbers)
    assert "a stopwatch" in text
    assert "a ruler" in text
    assert "gpu0 host lane" in words(text)


def test_a_workload_is_shown_by_its_ops(tmp_path):
    tensors = tuple(
        Tensor(name=name, role=role, size_bytes=4 * MIB, shape=(2, 3), dtype="float32", saved=saved)
        for name, role, saved in (("x", Role.INPUT, False), ("y", Role.ACTIVATION, True))
    )
    op = Op(
        name="relu_1",
        phase=Phase.FORWARD,
        kind="aten.relu",
        module="body.1",
        inputs=(0,),
        outputs=(1,),
        flop=12000,
        bytes_read=24,
        bytes_written=24,
        input_shapes=((2, 3),),
        output_shapes=((2, 3),),
        dtype="float32",
        arguments="",
        signature="s",
    )
    Workload(name="tiny", batch=2, tensors=tensors, ops=(op,), loss=1).save(tmp_path / "w")

    text = words(shown(tmp_path / "w"))

    assert text.startswith("workload tiny, batch 2: 1 ops, 2 tensors, 1.2e+04 FLOP, saved 4.00 MiB")
    assert "relu_1 forward aten.relu body.1 2x3 1.2e+04" in text


def test_a_plan_is_shown_by_its_rows_its_kinds_and_its_peaks(tmp_path):
    plan = a_plan()
    plan.save(tmp_path / "p")

    text = words(shown(tmp_path / "p"))

    counts = "3 tasks (1 compute, 1 swap out, 1 release); peak gpu0 3.00 MiB, host 3.00 MiB"
    assert text.startswith(f"plan {plan.content_hash[:12]}: {counts}")
    assert "0 conv y compute gpu0 compute []" in text
    assert "1 swap out y on host swap out gpu0 d2h [0]" in text
    assert "2 release y release gpu0 compute [1]" in text


def test_of_a_long_plan_the_first_rows_are_shown_and_the_others_counted(tmp_path):
    plan = a_plan(num_rows=2 * ROWS_SHOWN)
    plan.save(tmp_path / "p")

    text = shown(tmp_path / "p")

    assert text.endswith(f"... and {len(plan) - ROWS_SHOWN} more\n")
    assert text.count(" relu ") == ROWS_SHOWN - 3


def test_a_timeline_is_shown_by_its_spans(tmp_path):
    plan = a_plan()
    timeline = simulate(plan, gpus(bandwidth_bytes_per_s=3 * MIB), RowCosts(seconds=0.25))
    timeline.save(tmp_path / "t")

    text = words(shown(tmp_path / "t"))

    assert text.startswith(f"simulated timeline of plan {plan.content_hash[:12]}: 1.250 s")
    assert "conv y compute gpu0 compute 0.0 us 250.00 ms" in text
    assert "swap out y on host swap out gpu0 d2h 250.00 ms 1.000 s" in text


def test_a_trace_is_shown_by_kind_with_its_provenance(tmp_path):
    took_s = (("copy", 1), ("copy", 3), ("launch", 2))
    events = events_of({"kind": kind, "start_s": 0, "duration_s": seconds} for kind, seconds in took_s)
    Trace(events=events, provenance={"machine": "box", "date": "today"}).save(tmp_path / "t")

    text = words(shown(tmp_path / "t"))

    assert text.startswith("trace: machine box, date today")
    assert "copy 2 2.000 s 4.000 s launch 1 2.000 s 2.000 s" in text


def comparison(**changes):
    given = {
        "workload": "small_transformer",
        "strategy": "greedy",
        "predicted_s": 0.110,
        "measured_runs_s": (0.100, 0.090, 0.200),
        "predicted_peak_bytes": 3 * MIB,
        "measured_peak_bytes": 3 * MIB + 8,
        "gradient_max_abs_difference": 0.0,
        "limit_bytes": 4 * MIB,
        "kinds": {"compute": KindSeconds(predicted_s=0.1, measured_s=0.1)},
        "provenance": {},
    }
    return Comparison(**(given | changes))


def test_a_comparison_is_shown_as_predicted_above_measured():
    """
    small_transformer   predicted   110.00 ms   +10.0%   3.00 MiB   +8 B   0
    greedy              measured    100.00 ms            3.00 MiB
                        limit                            4.00 MiB
    """
    text = words(printed(print_comparisons, [comparison()]))

    assert "small_transformer predicted 110.00 ms +10.0% 3.00 MiB +8 B 0" in text
    assert "greedy measured 100.00 ms 3.00 MiB limit 4.00 MiB" in text


def test_a_plan_without_a_limit_is_shown_without_one():
    text = printed(print_comparisons, [comparison(limit_bytes=None)])

    assert "limit" not in text


def test_a_file_of_comparisons_shows_each(tmp_path):
    save_comparisons([comparison(), comparison(strategy="keep-all")], tmp_path / "c")

    assert shown(tmp_path / "c").count("small_transformer") == 2


def test_the_demos_table_fits_a_terminal_of_80_columns():
    rows = [comparison(strategy="greedy-recompute", limit_bytes=31 * MIB), comparison(workload="small_resnet")]

    narrow, wide = (printed(print_comparisons, rows, width=width) for width in (80, 200))

    assert [line.rstrip() for line in narrow.splitlines()] == [line.rstrip() for line in wide.splitlines()]


def test_a_replay_is_shown_by_its_steps_and_what_explains_them(tmp_path):
    path = tmp_path / "k.json"
    path.write_text(json.dumps(KINETO))

    text = words(printed(print_replay, replay(path), width=1000))

    assert text.startswith(f"{path}: 4 events, 1 kernels, 1 streams")
    assert "ProfilerStep#1 40.0 us 40.0 us +0.00%" in text
    assert "median error 0.00%; time explained by kernels 50.0%" in text


def test_columns_of_numbers_stand_to_the_right_and_of_words_to_the_left():
    """
    word     number
    ─────────────────
    a             1
    longer       22
    """
    console = Console(file=io.StringIO(), width=40)
    print_table(console, "title", ("word", "number"), [("a", "1"), ("longer", "22")])
    text = console.file.getvalue()

    one, two = (line.rstrip() for line in text.splitlines()[4:6])
    assert one.index("a") == two.index("longer")
    assert len(one) == len(two)


MARKUP = "[bold]x[/nope] [red]"


@pytest.mark.parametrize("width", [20, 80, 400])
def test_what_looks_like_markup_is_shown_as_it_is(width):
    console = Console(file=io.StringIO(), width=width)

    print_table(console, MARKUP, ("head",), [(MARKUP,)])

    text = console.file.getvalue()
    assert text.startswith(f"{MARKUP}\n")
    assert text.count("[bold]x[/nope]") >= 1


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_plan_can_be_shown_in_a_window_of_any_width(tmp_path, width):
    a_plan(num_rows=30).save(tmp_path / "p")

    title, *table = shown(tmp_path / "p", width=width).splitlines()

    assert title.endswith("peak gpu0 3.00 MiB, host 3.00 MiB")
    assert max(map(len, table)) <= width


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is neither JSON, TOML, Parquet nor a zip of tables"),
        (b"\x00\xff", "is neither JSON"),
        (b"[" * 100_000, "is neither JSON"),
        (b"PK\x03\x04", "format: must be one of"),
        (b"{}", "format: must be one of"),
        (b"[]", "got 'list'"),
        (b'{"format": "diary"}', "got 'diary'"),
        (b'{"format": ["stepsim-plan"]}', r"got \['stepsim-plan'\]"),
        (b'{"traceEvents": []}', "stepsim replay reads"),
    ],
    ids=["empty", "binary", "deep", "zip", "no format", "list", "other format", "odd format", "Kineto"],
)
def test_a_file_that_is_none_of_ours_is_refused_by_what_it_seems_to_be(tmp_path, content, problem):
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(FileError, match=problem) as refused:
        shown(path)

    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StepsimError, match="cannot be read: No such file"):
        shown(Path(tmp_path / "nothing"))
