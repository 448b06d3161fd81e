"""One strategy on one model at one batch, in the setting of the HOME paper: what the simulator says of its plan."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.home_costs import Constants, PaperCosts, limit_bytes, machine_with
from experiments.home_setting import step
from stepsim.plan import Plan, TaskKind
from stepsim.report import Report, report
from stepsim.simulator import simulate
from stepsim.strategies import Proposal, Strategy
from stepsim.timeline import Spans

COPIES = (TaskKind.SWAP_OUT, TaskKind.SWAP_IN)

TIME_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Seconds of one step, split as figure 7 of the paper does: kernels alone, kernels beside copies, copies alone.

    ``recomputing_s`` is a part of the kernels. A plan that is not feasible has a throughput of 0. ``lower_bound_s`` is
    None for strategies without one.
    """

    model: str
    batch: int
    system: str
    feasible: bool
    samples_per_s: float
    step_s: float
    alone_s: float
    overlap_s: float
    exposed_s: float
    recomputing_s: float
    peak_bytes: int
    search_s: float
    lower_bound_s: float | None

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def outcome(
    model: str, batch: int, system: str, strategy: Strategy, constants: Constants, *, all_outputs: bool = True
) -> Outcome:
    """Plan and simulate one step."""
    found, seen = _proposal(model, batch, strategy, constants, all_outputs)
    spans = seen.timeline.spans
    computing, copying = _on(spans, (TaskKind.COMPUTE, TaskKind.RECOMPUTE)), _on(spans, COPIES)
    gaps_s = _gaps_s(spans)
    return Outcome(
        model=model,
        batch=batch,
        system=system,
        feasible=found.feasible,
        samples_per_s=batch / found.predicted_s if found.feasible else 0.0,
        step_s=found.predicted_s,
        alone_s=float(gaps_s[computing & ~copying].sum()),
        overlap_s=float(gaps_s[computing & copying].sum()),
        exposed_s=float(gaps_s[copying & ~computing].sum()),
        recomputing_s=float(gaps_s[_on(spans, (TaskKind.RECOMPUTE,))].sum()),
        peak_bytes=found.predicted_peak_bytes,
        search_s=found.search_seconds,
        lower_bound_s=found.lower_bound_s,
    )


def _proposal(
    model: str, batch: int, strategy: Strategy, constants: Constants, all_outputs: bool
) -> tuple[Proposal, Report]:
    machine, costs = machine_with(constants), PaperCosts(constants)

    @cache
    def evaluate(plan: Plan) -> Report:
        return report(simulate(plan, machine, costs), plan)

    found = strategy.plan(
        step(model, batch, all_outputs=all_outputs),
        machine,
        costs,
        memory_bytes=limit_bytes(constants),
        evaluate=evaluate,
        time_limit_s=TIME_LIMIT_S,
    )
    return found, evaluate(found.plan)


def mean_ratio(outcomes: Mapping[tuple[int, str], Outcome], ours: str, theirs: str) -> float:
    """Mean over the batches at which both fit of the throughput of one system over that of another; NaN without any."""
    rates = {key: found.samples_per_s for key, found in outcomes.items() if found.feasible}
    batches = [batch for batch, system in rates if system == ours and (batch, theirs) in rates]
    return float(np.mean([rates[batch, ours] / rates[batch, theirs] for batch in batches])) if batches else np.nan


def _gaps_s(spans: Spans) -> NDArray[np.float64]:
    """Seconds between any two neighbouring starts and ends."""
    return np.diff(np.sort(np.concatenate([spans.start_s, spans.end_s]), kind="stable"))


def _on(spans: Spans, kinds: tuple[TaskKind, ...]) -> NDArray[np.bool_]:
    """In which of these gaps a row of ``kinds`` runs."""
    order = np.argsort(np.concatenate([spans.start_s, spans.end_s]), kind="stable")
    steps = np.isin(spans.kind, kinds).astype(np.int64)
    return np.cumsum(np.concatenate([steps, -steps])[order])[:-1] > 0
