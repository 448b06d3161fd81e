"""The verb that turns measurements of other tools into traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.commands.options import STDOUT, AsJson, Output, print_json
from stepsim.errors import StepsimError

if TYPE_CHECKING:
    from stepsim.traces.trace import Trace

UNNAMED = "not named in the file"
"""What provenance says of a GPU whose name was not recorded."""


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Traces and logs of any known tool: their content says which.")
    ],
    output: Output,
    as_json: AsJson = False,
) -> None:
    """Read measurements of other tools into traces: one file, or a folder with one for each of several."""
    from stepsim.traces.detect import format_of

    targets = _targets(files, output)
    forms = [format_of(path) for path in files]
    traces = [form.read(path) for form, path in zip(forms, files, strict=True)]
    facts = []
    for path, form, trace, target in zip(files, forms, traces, targets, strict=True):
        trace.save(target)
        events = trace.events["kind"].value_counts().to_dict()
        told = ", ".join(f"{count} {kind}" for kind, count in events.items())
        STDOUT.print(
            f"{path}: {form.name}{_on(trace)}: {told} -> {target}", highlight=False, markup=False, soft_wrap=True
        )
        facts.append({"file": str(path), "format": form.name, "events": events, "trace": str(target)})
    print_json({"traces": facts}, as_json)


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
