"""The compiled engine: the contract of the simulator on arrays, for searches and for plans of millions of rows.

The meaning is that of `stepsim.simulator.reference`, bit for bit (``docs/reference/simulator.md``). What is different:

- All that moves belongs to a stream or a thread, and each of them has at most one event. The queue is an indexed heap
  over streams and threads, so nothing in it ever goes stale (`events`).
- What a row waits for is a counter: its dependencies, the row before it in its stream, and its issue (`rows`).
- A thread issues ahead: it knows the issue times of all rows up to the next one that blocks it.
- Rates are solved where something changed: on one device (`kernels`), or over the flows that binding links connect
  (`moves`, `flows`).
- A plan that cannot contend for anything needs no events (`sweep`).

`records` are the arrays, `packed` fills them, `loop` runs on them; `engine` is what the rest of stepsim sees.
"""

from stepsim.simulator.compiled.engine import CompiledEngine, run_compiled
from stepsim.simulator.compiled.sweep import is_free_of_contention, sweep

__all__ = ["CompiledEngine", "is_free_of_contention", "run_compiled", "sweep"]
