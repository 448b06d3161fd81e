"""Print a file of stepsim for a person. What the file is, its content says."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from stepsim.errors import FileError
from stepsim.machine_tables import print_machine
from stepsim.machines import load_machine
from stepsim.memory import memory_profile
from stepsim.plan import Plan, TaskKind
from stepsim.replay import Replay
from stepsim.tables import read_json_bytes, read_meta
from stepsim.text_table import print_table
from stepsim.timeline import Timeline
from stepsim.units import format_bytes, format_seconds
from stepsim.validation import Comparison, load_comparisons
from stepsim.workloads import Workload
from stepsim.workloads.shipped import file_of

ROWS_SHOWN = 20


def show(path: Path, console: Console) -> None:
    """Print ``path``, or the shipped workload of that name. Raises `FileError` for a file of no known format."""
    path = file_of(path)
    form = _format(path)
    if not isinstance(form, str) or form not in _SHOWERS:
        raise FileError(path, "format", form, f"must be one of {', '.join(sorted(_SHOWERS))}")
    _SHOWERS[form](path, console)


def _format(path: Path) -> object:
    """The format that the file names in itself, if any; TOML is a machine."""
    try:
        head = path.read_bytes()[:4]
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    if head[:2] == b"PK":
        return (read_meta(path) or {}).get("format")
    if head == b"PAR1":
        return "stepsim-trace"
    if path.suffix == ".toml":
        return "machine"
    content = read_json_bytes(path)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(path, "file", None, f"is neither JSON, TOML, Parquet nor a zip of tables: {error}") from error
    if not isinstance(body, dict):
        return type(body).__name__
    return "traceEvents, which stepsim replay reads" if "traceEvents" in body else body.get("format")


def _show_machine(path: Path, console: Console) -> None:
    print_machine(load_machine(path), console)


def _show_workload(path: Path, console: Console) -> None:
    workload = Workload.load(path)
    rows = []
    for op in workload.ops[:ROWS_SHOWN]:
        out = ", ".join("x".join(map(str, shape)) for shape in op.output_shapes)
        rows.append((op.name, op.phase, op.kind, op.module, out, f"{op.flop:.3g}"))
    others = " and others" if workload.growth else ""
    saved = sum(tensor.size_bytes for tensor in workload.tensors if tensor.saved)
    counts = f"{len(workload.ops)} ops, {len(workload.tensors)} tensors, {workload.flop:.4g} FLOP"
    print_table(
        console,
        f"workload {workload.name}, batch {workload.batch}{others}: {counts}, saved {format_bytes(saved)}",
        ("op", "phase", "kind", "module", "output", "FLOP"),
        rows,
    )
    _more(console, len(workload.ops))


def _show_plan(path: Path, console: Console) -> None:
    plan = Plan.load(path)
    profile = memory_profile(plan)
    counts = {kind.label: int((plan.tasks.kind == kind).sum()) for kind in TaskKind}
    kinds = ", ".join(f"{count} {label}" for label, count in counts.items() if count)
    peaks = ", ".join(f"{name} {format_bytes(peak)}" for name, peak in profile.peaks().items())
    lanes, names = plan.lane_names(), plan.row_names()
    rows = [
        (row, names[row], TaskKind(int(plan.tasks.kind[row])).label, lanes[lane], plan.tasks.dependencies[row].tolist())
        for row, lane in list(enumerate(plan.lane_of_rows()))[:ROWS_SHOWN]
    ]
    title = f"plan {plan.content_hash[:12]}: {len(plan)} tasks ({kinds}); peak {peaks}"
    print_table(console, title, ("row", "task", "kind", "lane", "depends on"), rows)
    _more(console, len(plan))


def _show_timeline(path: Path, console: Console) -> None:
    timeline = Timeline.load(path)
    rows = [
        (span.name, span.kind.label, span.lane, format_seconds(span.start_s), format_seconds(span.duration_s))
        for span in (timeline.span(row) for row in range(min(len(timeline), ROWS_SHOWN)))
    ]
    title = f"{timeline.source} timeline of plan {timeline.plan_hash[:12]}: {format_seconds(timeline.makespan_s)}"
    print_table(console, title, ("task", "kind", "lane", "start", "duration"), rows)
    _more(console, len(timeline))


def _show_trace(path: Path, console: Console) -> None:
    from stepsim.traces.trace import Trace

    trace = Trace.load(path)
    groups = trace.events.groupby("kind")["duration_s"]
    rows = [(kind, len(times), format_seconds(times.median()), format_seconds(times.sum())) for kind, times in groups]
    facts = ", ".join(f"{key} {value}" for key, value in trace.provenance.items())
    print_table(console, f"trace: {facts}", ("kind", "events", "median", "total"), rows)


def _show_calibration(path: Path, console: Console) -> None:
    from stepsim.costmodels import Calibration

    calibration = Calibration.load(path)
    facts = ", ".join(f"{key} {value}" for key, value in calibration.provenance.items())
    print_table(
        console,
        f"calibration of {calibration.machine}: launch {format_seconds(calibration.launch_s)}; {facts}",
        ("model", "held-out error"),
        [(name, f"{error:.1%}") for name, error in calibration.errors().items()],
    )
    entries = sorted(calibration.work.entries_.values(), key=lambda entry: -entry.seconds)
    rows = [(e.kind, format_seconds(e.seconds), format_seconds(e.spread_s), e.count) for e in entries[:ROWS_SHOWN]]
    print_table(console, "measured work, the longest first", ("work", "median", "spread", "samples"), rows)
    _more(console, len(entries))


def _show_comparison(path: Path, console: Console) -> None:
    print_comparisons(load_comparisons(path), console)


def print_comparisons(comparisons: Sequence[Comparison], console: Console) -> None:
    """Predicted above measured above the limit that the plan was made for, so that 80 columns are enough."""
    rows = [
        (
            f"{c.workload}\n{c.strategy}",
            "predicted\nmeasured" + ("" if c.limit_bytes is None else "\nlimit"),
            f"{format_seconds(c.predicted_s)}\n{format_seconds(c.measured_s)}",
            f"{c.step_error:+.1%}",
            "\n".join(format_bytes(size) for size in _peaks(c)),
            f"{c.measured_peak_bytes - c.predicted_peak_bytes:+d} B",
            f"{c.gradient_max_abs_difference:g}",
        )
        for c in comparisons
    ]
    heads = ("plan", "", "step time", "error", "peak", "off by", "gradients")
    print_table(console, "median step time; peak memory; gradients: largest difference from plain PyTorch", heads, rows)


def _peaks(comparison: Comparison) -> list[int]:
    limit = [] if comparison.limit_bytes is None else [comparison.limit_bytes]
    return [comparison.predicted_peak_bytes, comparison.measured_peak_bytes, *limit]


def print_replay(replayed: Replay, console: Console) -> None:
    """Each step as recorded and as simulated, and what the steps' time went to."""
    rows = [
        (step.name, format_seconds(step.measured_s), format_seconds(step.predicted_s), f"{step.relative:+.2%}")
        for step in replayed.steps
    ]
    counts = f"{replayed.num_events} events, {replayed.num_kernels} kernels, {replayed.num_streams} streams"
    print_table(console, f"{replayed.path}: {counts}", ("step", "recorded", "simulated", "error"), rows)
    shares = ", ".join(f"{what} {share:.1%}" for what, share in replayed.explained.items())
    console.print(f"median error {replayed.median_error:.2%}; time explained by {shares}", highlight=False)


def _more(console: Console, number: int) -> None:
    if number > ROWS_SHOWN:
        console.print(f"... and {number - ROWS_SHOWN} more")


_SHOWERS: dict[str, Callable[[Path, Console], None]] = {
    "machine": _show_machine,
    "stepsim-workload": _show_workload,
    "stepsim-plan": _show_plan,
    "stepsim-timeline": _show_timeline,
    "stepsim-trace": _show_trace,
    "stepsim-calibration": _show_calibration,
    "stepsim-comparison": _show_comparison,
}
