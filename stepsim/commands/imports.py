"""The verb that turns measurements of other tools into traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepsim.commands.options import STDOUT, AsJson, Output, print_json
from stepsim.commands.outputs import check_outputs, save_together
from stepsim.errors import StepsimError

if TYPE_CHECKING:
    from stepsim.traces.execution_trace import ExecutionTrace
    from stepsim.traces.trace import Trace

KINETO = "Kineto trace"
"""The only format whose kernels are tied to the ops that an execution trace lists."""

UNNAMED = "not named in the file"
"""What provenance says of a GPU whose name was not recorded."""


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Traces and logs of any known tool: their content says which.")
    ],
    output: Output,
    as_json: AsJson = False,
) -> None:
    """Read measurements of other tools into traces: one file, or a folder with one for each of several.

    An execution trace of PyTorch joins the Kineto trace of the same run: they become one trace.
    """
    from stepsim.text_table import plain
    from stepsim.traces.execution_pair import paired

    forms, executions, traces = _read(files)
    targets = _targets(list(traces), output)
    check_outputs(targets, [*files, *_beside(traces)])
    _check_ranks(traces)
    partners = _partners(executions, {path: trace for path, trace in traces.items() if forms[path] == KINETO})
    for path, partner in partners.items():
        traces[path] = paired(executions[partner], traces[path])
    save_together(dict(zip(targets, traces.values(), strict=True)))
    facts = []
    for (path, trace), target in zip(traces.items(), targets, strict=True):
        fact = _facts(path, trace, partners.get(path)) | {"format": forms[path], "trace": str(target)}
        line = f"{path}: {forms[path]}{_on(trace)}: {_told(fact)} -> {target}"
        STDOUT.print(plain(line), highlight=False, markup=False, soft_wrap=True)
        facts.append(fact)
    print_json({"traces": facts}, as_json)


def _facts(path: Path, trace: "Trace", partner: Path | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"file": str(path), "events": trace.events["kind"].value_counts().to_dict()}
    if partner is not None:
        facts |= {"execution_trace": str(partner), "kernels_linked": trace.provenance["kernels linked"]}
    return facts


def _told(facts: dict[str, Any]) -> str:
    """The same in words."""
    events = ", ".join(f"{count} {kind}" for kind, count in facts["events"].items())
    if "kernels_linked" not in facts:
        return events
    return f"{events}; {facts['kernels_linked']} kernels linked to ops of {facts['execution_trace']}"


def _read(files: Sequence[Path]) -> "tuple[dict[Path, str], dict[Path, ExecutionTrace], dict[Path, Trace]]":
    """The name of the format of each file, the execution traces and the traces."""
    from stepsim.traces.detect import format_of
    from stepsim.traces.execution_trace import read_execution_trace, refuse_execution_trace

    repeated = next((path for path in files if files.count(path) > 1), None)
    if repeated is not None:
        raise StepsimError(f"{repeated} is given twice")
    forms = {path: format_of(path) for path in files}
    graphs = [path for path in files if forms[path].read is refuse_execution_trace]
    if len(graphs) == len(files):
        refuse_execution_trace(graphs[0])
    executions = {path: read_execution_trace(path) for path in graphs}
    traces = {path: forms[path].read(path) for path in files if path not in graphs}
    return {path: form.name for path, form in forms.items()}, executions, traces


def _partners(executions: "dict[Path, ExecutionTrace]", kineto: "dict[Path, Trace]") -> dict[Path, Path]:
    """The execution trace of each Kineto trace that has one, told by their processes.

    The only Kineto trace is the partner whatever its process, so that `paired` says what does not fit.
    """
    from stepsim.traces.execution_pair import of_one_process

    partners: dict[Path, Path] = {}
    for path, execution in executions.items():
        fitting = [other for other, trace in kineto.items() if len(kineto) == 1 or of_one_process(execution, trace)]
        if len(fitting) != 1:
            found = " and ".join(map(str, fitting)) or "none"
            raise StepsimError(f"{path}: one of the Kineto traces must be of the same process, got {found}")
        if fitting[0] in partners:
            raise StepsimError(f"{partners[fitting[0]]} and {path} are both of the process of {fitting[0]}: give one")
        partners[fitting[0]] = path
    return partners


def _check_ranks(traces: "dict[Path, Trace]") -> None:
    """A job has one trace of each rank."""
    seen: dict[tuple[str, str], Path] = {}
    for path, trace in traces.items():
        rank, ranks = trace.provenance.get("rank"), trace.provenance.get("world_size", "1")
        if rank is None or ranks == "1":
            continue
        if (rank, ranks) in seen:
            raise StepsimError(f"{seen[rank, ranks]} and {path} are both of rank {rank} of {ranks}: import them apart")
        seen[rank, ranks] = path


def _beside(traces: "dict[Path, Trace]") -> list[Path]:
    """Files that were read too because they lay beside those that were given: the tensors of TrioSim."""
    return [path.with_name(trace.provenance.get("tensors", path.name)) for path, trace in traces.items()]


def _targets(files: Sequence[Path], output: Path) -> list[Path]:
    """``output`` itself for one file; for several, and where it is a folder, files in it with names after theirs."""
    if len(files) == 1 and not output.is_dir():
        return [output]
    targets: dict[Path, Path] = {}
    for path in files:
        target = output / f"{path.name}.trace"
        if target in targets:
            raise StepsimError(f"{path} and {targets[target]} would both become {target}: import them apart")
        targets[target] = path
    return list(targets)


def _on(trace: "Trace") -> str:
    """The GPUs that the provenance names."""
    facts = trace.provenance
    names = {facts.get(device, UNNAMED) for device in trace.events["device"].unique()} - {UNNAMED}
    gpus = facts.get("gpus", ", ".join(sorted(names)))
    return f" of {gpus}" if gpus else ""
