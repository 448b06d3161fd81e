"""The verb that shows the machines a plan can be simulated on."""

from pathlib import Path
from typing import Annotated

import typer

from stepsim.commands.options import STDOUT, AsJson, print_json
from stepsim.commands.outputs import check_outputs, check_picture


def machines(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A shipped machine, a .toml file, or this_cpu; all if left out."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw how it is joined to this file (.png, .svg, .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """List the machines, or show one: devices, links, routes, and where each number comes from."""
    if name is None:
        _list(plot, as_json)
    else:
        _show(name, plot, as_json)


def _list(plot: Path | None, as_json: bool) -> None:
    from stepsim.machine_tables import print_machines, what_computes
    from stepsim.machines import load_machine, shipped_machines

    if plot is not None:
        raise typer.BadParameter("name the machine to draw", param_hint="--plot")
    loaded = [load_machine(known) for known in (*shipped_machines(), "this_cpu")]
    print_machines(loaded, STDOUT)
    facts = [
        {"name": machine.name, "devices": what_computes(machine), "description": machine.description}
        for machine in loaded
    ]
    print_json({"machines": facts}, as_json)


def _show(name: str, plot: Path | None, as_json: bool) -> None:
    from stepsim.machine_tables import print_machine
    from stepsim.machines import load_machine
    from stepsim.machines.files import machine_fields

    check_outputs([plot], [name])
    check_picture(plot)
    machine = load_machine(name)
    if plot is not None:
        from stepsim.plotting import save_figure
        from stepsim.topology_plot import plot_topology

        save_figure(plot_topology(machine), plot)
    print_machine(machine, STDOUT)
    print_json(machine_fields(machine), as_json)
