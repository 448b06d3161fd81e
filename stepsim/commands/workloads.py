"""The verb that shows the workloads that ship."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepsim.commands.options import STDOUT, AsJson, print_json
from stepsim.units import format_bytes

if TYPE_CHECKING:
    from stepsim.workloads import Workload


def workloads(as_json: AsJson = False) -> None:
    """List the captured workloads that ship, with what one sample takes; plan and show take their names as files."""
    from stepsim.text_table import print_table
    from stepsim.workloads.shipped import SHIPPED, load_workload

    facts = [
        {"name": name, "about": known.about, "factory": known.factory, **_facts(load_workload(name))}
        for name, known in SHIPPED.items()
    ]
    heads = ("name", "of", "ops", "parameters", "FLOP a sample", "saved a sample", "all outputs a sample")
    print_table(STDOUT, "workloads", heads, [_row(one) for one in facts])
    print_json({"workloads": facts}, as_json)


def _facts(workload: "Workload") -> dict[str, float]:
    from stepsim.workloads import Role
    from stepsim.workloads.storage import every_output_kept, saved_bytes

    larger = workload.at_batch(2 * workload.batch)

    def a_sample(count: "Callable[[Workload], int]") -> float:
        return (count(larger) - count(workload)) / workload.batch

    return {
        "ops": len(workload.ops),
        "parameter_bytes": sum(t.size_bytes for t in workload.tensors if t.role is Role.PARAMETER),
        "flop_per_sample": a_sample(lambda step: step.flop),
        "saved_bytes_per_sample": a_sample(saved_bytes),
        "output_bytes_per_sample": a_sample(lambda step: saved_bytes(every_output_kept(step))),
    }


def _row(facts: dict[str, Any]) -> tuple[object, ...]:
    sizes = (format_bytes(facts[f"{name}_bytes_per_sample"]) for name in ("saved", "output"))
    parameters, flop = format_bytes(facts["parameter_bytes"]), f"{facts['flop_per_sample']:.3g}"
    return (facts["name"], facts["about"], facts["ops"], parameters, flop, *sizes)
