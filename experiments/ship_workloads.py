"""Captures the workloads that ship, and writes them: python -m experiments.ship_workloads [NAME...]

Each is captured on fake tensors at two small batches, so that it can be had at any other: nothing is computed, and no
memory is taken for tensors. About two minutes.
"""

import sys
from collections.abc import Sequence

from stepsim.errors import StepsimError
from stepsim.workloads import Workload
from stepsim.workloads.capture import capture_workload
from stepsim.workloads.factory import load_factory
from stepsim.workloads.shipped import SHIPPED, path_of

BATCH = 2
"""The smallest for which the numbers of every model are on their line: some take a batch of 1 for no batch at all."""


def captured(name: str) -> Workload:
    """The workload called ``name``, captured anew. Raises `StepsimError` for a name that does not ship."""
    if name not in SHIPPED:
        raise StepsimError(f"unknown workload {name!r}; known: {', '.join(SHIPPED)}")
    return capture_workload(load_factory(SHIPPED[name].factory), BATCH, name)


def main(names: Sequence[str]) -> None:
    for name in names or SHIPPED:
        workload = captured(name)
        workload.save(path_of(name))
        print(f"{name}: {len(workload.ops)} ops, {path_of(name).stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
