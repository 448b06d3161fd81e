"""The reference engine: the contract of the simulator (``docs/reference/simulator.md``), written to be read.

Streams and threads are SimPy processes (`queues`). What their rows share has a file each: `kernels` on a device,
`copy_engines`, `flows` over links; `moves` puts the last two together. `instants` says what comes before what at one
time, `settling` how much is left when a rate changes.
"""

from stepsim.simulator.reference.engine import run_reference

__all__ = ["run_reference"]
