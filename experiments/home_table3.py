"""How long do HOME's search and one call of its evaluator take?

Reproduces: HOME (IEEE TC 2023), table 3: on 16 threads 9 to 350 s a search, and 0.5 to 21.8 ms a call.
Claim:      the literal swarm takes at most 10 s on VGG16 and 400 s on Inception v3, on one core, and on the others at
            most what the paper's took on 16 threads. One call takes at most what the paper's took.
Needs:      nothing; under a minute, no GPU.
Writes:     home_table3.csv and home_table3.png in the output folder.

Seconds are of one core of the machine that runs this: all are claimed as "at most". The swarm has 500 particles and 500
iterations, and tries 2 n actions a particle, for n layers. What a particle does already is not tried again, and no
particle that nothing can change any more: both leave the result as it is. So the swarm stands still after a dozen
iterations, and most of the 500 take no time. ``unskipped_s`` in the table is what all 500 x 500 x 2 n trials would take
if each were a whole call: computed, not run. The paper does not give its batches: these are the largest of figure 6.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.experiment import Claim
from experiments.home_paper import FIGURE_6_BATCHES, MODELS, TABLE_3
from experiments.home_swarm import SEED, evaluator_at, searched
from stepsim.strategies.memory.home.options import Rules, Swarm

MOST_S = {model: TABLE_3[model][0] for model in MODELS} | {"vgg16": 10.0, "inception_v3": 400.0}
"""The two are demands of the project's plan."""

NUM_CALLS = 2000


def run(folder: Path, *, quick: bool) -> list[Claim]:
    table = search_times(("vgg16",) if quick else MODELS)
    table.to_csv(folder / "home_table3.csv", index=False)
    plot(table).savefig(folder / "home_table3.png", dpi=150)
    return list(claims(table))


def search_times(models: Iterable[str]) -> pd.DataFrame:
    """One row for each model: seconds of one core, and the numbers of iterations and trials that were not skipped."""
    return pd.DataFrame([_row(model) for model in models])


def _row(model: str) -> dict[str, Any]:
    batch, swarm = FIGURE_6_BATCHES[model][-1], Swarm()
    evaluator = evaluator_at(model, batch)
    took, call_s, num_layers = searched(evaluator, swarm), _call_s(model, batch), evaluator.problem.num_layers
    return {
        "model": model,
        "batch": batch,
        "layers": num_layers,
        "search_s": took.seconds,
        "iterations": len(took.found.best_s) - 1,
        "trials": took.found.num_trials,
        "call_s": call_s,
        "unskipped_s": swarm.num_particles * swarm.num_iterations * 2 * num_layers * call_s,
    }


def _call_s(model: str, batch: int) -> float:
    """Mean over random policies. With a penalty, or the call would end where a policy does not fit."""
    evaluator = evaluator_at(model, batch, Rules(penalty=True))
    shape = (NUM_CALLS, evaluator.problem.num_layers)
    policies = np.random.default_rng(SEED).integers(0, evaluator.problem.num_actions, shape, dtype=np.int8)
    evaluator.all_ticks(policies[:1])  # compiles
    began_s = time.process_time()
    evaluator.all_ticks(policies)
    return (time.process_time() - began_s) / NUM_CALLS


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    for row in table.itertuples():
        paper_s, paper_call_s = TABLE_3[row.model]
        text = f"{row.model}: seconds of the literal swarm on one core are at most {MOST_S[row.model]:g}"
        yield Claim(claim=text, paper=paper_s, ours=float(row.search_s), holds=bool(row.search_s <= MOST_S[row.model]))
        text = f"{row.model}: seconds of one call of the evaluator are at most the paper's"
        yield Claim(claim=text, paper=paper_call_s, ours=float(row.call_s), holds=bool(row.call_s <= paper_call_s))


def plot(table: pd.DataFrame) -> Figure:
    """Bars are ours, dots the paper's."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = (("search_s", "whole search, s", 0), ("call_s", "one call of the evaluator, s", 1))
    for axes, (column, told, number) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.bar(table["model"], table[column], label="one core")
        axes.plot(table["model"], [TABLE_3[model][number] for model in table["model"]], "ko", label="paper")
        axes.set(yscale="log", ylabel=told)
        axes.tick_params(axis="x", rotation=30)
    axes.legend()
    return figure
