"""The verb that shows the calibrations that ship."""

from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.commands.options import STDOUT, AsJson, print_json

if TYPE_CHECKING:
    from stepsim.costmodels.gpu_calibration import GpuCalibration


def calibrations(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One that ships; all if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the calibrations that ship, with their held-out errors, or show one with its sources."""
    from stepsim.costmodels.shipped import shipped_calibration, shipped_calibrations
    from stepsim.text_table import print_table

    if name is None:
        found = [shipped_calibration(known) for known in shipped_calibrations()]
        table = [(each.name, ", ".join(each.gpus), _worth(each), _told(each)) for each in found]
        print_table(STDOUT, "calibrations", ("name", "GPUs", "from", "mean held-out errors"), table)
        print_json({"calibrations": [_facts(each) for each in found]}, as_json)
        return
    one = shipped_calibration(name)
    rows = [("GPU", gpu, "") for gpu in one.gpus]
    rows += [("error", what, f"{error:.1%}") for what, error in one.errors.items()]
    rows += [("source", what, source) for what, source in one.sources.items()]
    print_table(STDOUT, f"{one.name}: {_worth(one)}", ("", "of", "value"), rows)
    print_json(_facts(one), as_json)


def _worth(calibration: "GpuCalibration") -> str:
    origin = calibration.extrapolated_from
    return f"extrapolated from {origin}" if origin else "measured"


def _told(calibration: "GpuCalibration") -> str:
    return "; ".join(f"{what} {error:.0%}" for what, error in calibration.errors.items())


def _facts(calibration: "GpuCalibration") -> dict[str, object]:
    return {
        "name": calibration.name,
        "gpus": list(calibration.gpus),
        "extrapolated_from": calibration.extrapolated_from,
        "errors": dict(calibration.errors),
        "sources": dict(calibration.sources),
    }
