"""Fits the constants that the HOME paper does not give, and prints them: python -m experiments.home_fit

On `FITTED_ON` alone. Efficiencies: what the computing of a step may take at most, if HOME's best throughput (figure 6)
is to be reached. Reserve: PyTorch's largest batches (table 2). The link: HOME's mean advantage over vDNN (figure 6).
The result stands in `experiments.home_constants`.
"""

import sys
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from experiments.home_costs import Constants, PaperCosts, gpu_of, limit_bytes, machine_with
from experiments.home_paper import FIGURE_6, FIGURE_6_BATCHES, TABLE_2, mean_ratio
from experiments.home_runs import outcome
from experiments.home_setting import FITTED_ON, MACHINE, step
from stepsim.machines import load_machine
from stepsim.strategies import STRATEGIES
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import schedule

NOMINAL = Constants(
    compute_efficiency=0.9,
    memory_efficiency=0.5,
    depthwise_efficiency=0.1,
    link_bytes_per_s=12e9,
    reserve_bytes=0,
)
"""Where the fits start."""

FREE_RESERVE_BYTES = 750_000_000
"""Of the proportional form: what a CUDA context with cuDNN's and cuBLAS's kernels and workspaces takes, about."""


def computing_s(model: str, batch: int, constants: Constants) -> float:
    """All work of one step, one after another."""
    machine = machine_with(constants)
    plan = plan_for_policy(step(model, batch), machine, {}, 10**15)
    return float(PaperCosts(constants).task_costs(plan, machine).seconds_alone(plan, machine).sum())


def fit_efficiencies(start: Constants) -> Constants:
    """Nothing computes faster than its data sheet."""

    def of(logs: np.ndarray) -> Constants:
        compute, memory, depthwise = np.minimum(np.exp(logs), 1.0).tolist()
        return replace(start, compute_efficiency=compute, memory_efficiency=memory, depthwise_efficiency=depthwise)

    def error(logs: np.ndarray) -> float:
        return sum(np.log(_computing_ratio(model, of(logs))) ** 2 for model in FITTED_ON)

    first = np.log([start.compute_efficiency, start.memory_efficiency, start.depthwise_efficiency])
    return of(minimize(error, first, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6}).x)


def _computing_ratio(model: str, constants: Constants) -> float:
    """The throughput of computing alone over the best that the paper has of HOME."""
    batch = FIGURE_6_BATCHES[model][-1]
    best = max(rate for rate in FIGURE_6[model]["home"] if rate)
    return batch / computing_s(model, batch, constants) / best


def as_fast_as_published(model: str, constants: Constants) -> Constants:
    """``constants`` with all efficiencies so that computing alone gives HOME's best throughput of ``model``."""
    ratio = _computing_ratio(model, constants)
    return replace(
        constants,
        compute_efficiency=constants.compute_efficiency / ratio,
        memory_efficiency=constants.memory_efficiency / ratio,
        depthwise_efficiency=constants.depthwise_efficiency / ratio,
    )


def keep_all_bytes(model: str, *, all_outputs: bool = True) -> tuple[float, float]:
    """Peak of keep-all as ``fixed + batch x each``, from two batches."""
    batches = (256, 512)
    peaks = [_peak_bytes(model, batch, all_outputs) for batch in batches]
    each = (peaks[1] - peaks[0]) / (batches[1] - batches[0])
    return peaks[0] - batches[0] * each, each


def _peak_bytes(model: str, batch: int, all_outputs: bool) -> int:
    workload = step(model, batch, all_outputs=all_outputs)
    return max(resident_bytes(workload, schedule(workload, {}, 10**15)))


def largest_batch(model: str, constants: Constants, *, all_outputs: bool = True) -> int:
    """Of plain PyTorch."""
    fixed, each = keep_all_bytes(model, all_outputs=all_outputs)
    return int((limit_bytes(constants) - fixed) / each)


def fit_reserve(start: Constants, *, proportional: bool) -> Constants:
    """One number: bytes that are not the plan's, or the share that is lost beside `FREE_RESERVE_BYTES`."""
    memory_bytes = gpu_of(load_machine(MACHINE)).memory_bytes
    lines = {model: keep_all_bytes(model) for model in FITTED_ON}

    def of(number: float) -> Constants:
        if proportional:
            return replace(start, reserve_bytes=FREE_RESERVE_BYTES, reserve_share=number)
        return replace(start, reserve_bytes=int(number * memory_bytes), reserve_share=0.0)

    def error(number: float) -> float:
        limit = limit_bytes(of(number))
        ratios = ((limit - lines[m][0]) / lines[m][1] / TABLE_2[m]["pytorch"].batch for m in FITTED_ON)
        return float(sum(np.log(ratio) ** 2 for ratio in ratios))

    return of(float(minimize_scalar(error, bounds=(0.0, 0.5), method="bounded").x))


LINK_BATCHES = 3
"""Of figure 6, spread evenly: enough for a mean."""


def fit_link(start: Constants) -> Constants:
    """Copies' rate, between half of the nominal one and all of it."""

    def of(rate: float) -> Constants:
        return replace(start, link_bytes_per_s=rate)

    def error(rate: float) -> float:
        ratios = (_home_over_vdnn(model, of(rate)) / mean_ratio(model, "vdnn") for model in FITTED_ON)
        return float(sum(np.log(ratio) ** 2 for ratio in ratios))

    nominal = NOMINAL.link_bytes_per_s
    found = minimize_scalar(error, bounds=(nominal / 2, nominal), method="bounded", options={"xatol": 5e7})
    return of(round(float(found.x), -7))


def _home_over_vdnn(model: str, constants: Constants) -> float:
    """Mean ratio of their throughputs, with the vDNN that offloads what every gradient takes."""
    batches = FIGURE_6_BATCHES[model]
    chosen = batches[:: (len(batches) - 1) // (LINK_BATCHES - 1)]
    pairs = (
        [outcome(model, batch, name, STRATEGIES[name], constants).step_s for name in ("vdnn-every", "home-extended")]
        for batch in chosen
    )
    return float(np.mean([theirs / ours for theirs, ours in pairs]))


def main() -> int:
    fixed = fit_link(fit_reserve(fit_efficiencies(NOMINAL), proportional=False))
    print("FITTED =", fixed)
    print("PROPORTIONAL =", fit_reserve(fixed, proportional=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
