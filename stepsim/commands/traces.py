"""The verbs about traces of other tools and of stepsim."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.commands.options import STDOUT, AsJson, print_json
from stepsim.commands.outputs import check_outputs, check_picture
from stepsim.errors import FileError


def show(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Traces and logs of any known tool: their content says which.")
    ],
    plot: Annotated[Path | None, typer.Option(help="Draw the one FILE to this file (.png, .svg, .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what measurements hold: GPUs, kernels by class, copies, collectives, streams, steps, gaps, overlap."""
    from stepsim.text_table import plain
    from stepsim.trace_tables import print_tables, tables_as_json
    from stepsim.traces.contents import contents

    if plot is not None and len(files) > 1:
        raise typer.BadParameter("only one FILE can be drawn", param_hint="--plot")
    check_outputs([plot], files)
    check_picture(plot)
    found = [contents(path) for path in files]
    if plot is not None:
        from stepsim.plotting import save_figure
        from stepsim.trace_plot import plot_trace

        if found[0].trace is None:
            raise FileError(files[0], "times", None, f"are not in a {found[0].form}: there is nothing to draw")
        save_figure(plot_trace(found[0].trace), plot)
    facts = []
    for path, what in zip(files, found, strict=True):
        told = "; ".join(f"{key} {value}" for key, value in what.provenance.items())
        STDOUT.print(plain(f"{path}: {what.form}: {told}") + "\n", highlight=False, markup=False, soft_wrap=True)
        print_tables(what.tables, STDOUT)
        facts.append(
            {
                "file": str(path),
                "format": what.form,
                "provenance": dict(what.provenance),
                "tables": tables_as_json(what.tables),
            }
        )
    print_json({"traces": facts}, as_json)
