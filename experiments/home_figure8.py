"""How soon does HOME's swarm find its policy, and how good is that?

Reproduces: HOME (IEEE TC 2023), figure 8: the step of the best particle and the mean of all, over 500 iterations.
Claim:      the literal swarm is within 0.1 % of its best after at most 10 iterations (the paper's after 16 to 89), and
            that step is within 15 % of the figure's (Inception v3: 25 %). Then it stands still, before the 500th
            iteration, with particles that are not alike. Actions at random beside gain at most 2 %.
Needs:      nothing; under a minute, no GPU.
Writes:     home_figure8.csv and home_figure8.png in the output folder.

Steps are those of HOME's evaluator. The figure has no batches: `experiments.home_paper.figure_8_batch` infers them, and
its seconds are read by eye. The particles of the figure move until the end. Those of the printed algorithm cannot: they
learn only from the leader and from themselves, so that an action that neither takes is not tried again.

What does not hold: Inception v3. Its computing alone takes 0.88 s here, where the figure's whole step takes 0.63 s: the
rooflines, not fitted on it, are too slow. And there actions at random gain a little more than 2 %.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.experiment import Claim
from experiments.home_paper import FIGURE_8, MODELS, figure_8_batch
from experiments.home_setting import FITTED_ON
from experiments.home_swarm import evaluator_at, searched
from stepsim.strategies import HomeExtended
from stepsim.strategies.memory.home.options import Swarm

SWARMS = {"literal": Swarm(), "random": HomeExtended().swarm}
"""The paper's, and a smaller one that tries one action in twenty at random; both by the paper's rules of a step."""

COLOURS = {"literal": "tab:blue", "random": "tab:orange"}

FLAT = 1e-3
"""Of the best step: nearer, the search has found it."""


def run(folder: Path, *, quick: bool) -> list[Claim]:
    table = histories(("vgg16",) if quick else MODELS)
    table.to_csv(folder / "home_figure8.csv", index=False)
    plot(table).savefig(folder / "home_figure8.png", dpi=150)
    return list(claims(table))


def histories(models: Iterable[str]) -> pd.DataFrame:
    """One row for each model, swarm and iteration (0 is the start): seconds of the best particle and of their mean."""
    return pd.concat([_history(model, name) for model in models for name in SWARMS], ignore_index=True)


def _history(model: str, name: str) -> pd.DataFrame:
    batch = figure_8_batch(model)
    found = searched(evaluator_at(model, batch), SWARMS[name]).found
    iterations = range(len(found.best_s))
    columns = {"iteration": iterations, "best_s": found.best_s, "mean_s": found.mean_s}
    return pd.DataFrame({"model": model, "batch": batch, "swarm": name} | columns)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    for model, rows in table.groupby("model", sort=False):
        literal, other = (rows[rows["swarm"] == name] for name in SWARMS)
        yield from _literal(str(model), literal)
        ratio = float(other["best_s"].min() / literal["best_s"].min())
        text = f"{model}: the best step with random actions over the best of the literal swarm is at least 0.98"
        yield Claim(claim=text, ours=ratio, holds=ratio >= 0.98)


def _literal(model: str, rows: pd.DataFrame) -> Iterator[Claim]:
    """Bands are those of the project's plan, and of figure 6 for the seconds."""
    paper, best_s, last = FIGURE_8[model], float(rows["best_s"].min()), rows.iloc[-1]
    flat = flat_after(rows["best_s"].to_numpy())
    text = f"{model}: the literal swarm is within {FLAT:.1%} of its best step after at most 10 iterations"
    yield Claim(claim=text, paper=paper.iterations, ours=flat, holds=flat <= 10)
    told, most = "fitted on" if model in FITTED_ON else "not fitted on", 0.25 if model == "inception_v3" else 0.15
    text = f"{model} ({told}): seconds of that step at batch {last['batch']} are within {most:.0%} of the figure's"
    yield Claim(claim=text, paper=paper.best_s, ours=best_s, holds=abs(best_s / paper.best_s - 1) <= most)
    end, planned = int(last["iteration"]), SWARMS["literal"].num_iterations
    text = f"{model}: nothing changes any more after fewer than {planned} iterations"
    yield Claim(claim=text, paper=planned, ours=end, holds=end < planned)
    above = float(last["mean_s"] / last["best_s"] - 1)
    text = f"{model}: then the mean particle is above the best, by this share"
    yield Claim(claim=text, paper=paper.mean_s / paper.best_s - 1, ours=above, holds=above > 0)


def flat_after(best_s: np.ndarray) -> int:
    """The first iteration within `FLAT` of the best of all; NaN where no particle fits.

    >>> flat_after(np.array([np.nan, 2.0, 1.0005, 1.0]))
    2
    """
    return int(np.argmax(best_s <= np.nanmin(best_s) * (1 + FLAT)))


def plot(table: pd.DataFrame) -> Figure:
    """A panel for each model; grey lines are the paper's best and mean at the end, and when its best was found."""
    models = list(dict.fromkeys(table["model"]))
    columns = min(3, len(models))
    figure = Figure(figsize=(4 * columns, 3 * -(-len(models) // columns)), layout="constrained")
    for number, model in enumerate(models):
        axes = figure.add_subplot(-(-len(models) // columns), columns, number + 1)
        for name, rows in table[table["model"] == model].groupby("swarm"):
            axes.plot(rows["iteration"], rows["best_s"], color=COLOURS[str(name)], label=f"{name}, best")
            axes.plot(rows["iteration"], rows["mean_s"], color=COLOURS[str(name)], linestyle=":", label=f"{name}, mean")
        axes.axhline(FIGURE_8[model].best_s, color="0.5", label="paper: best")
        axes.axhline(FIGURE_8[model].mean_s, color="0.5", linestyle=":", label="paper: mean")
        axes.axvline(FIGURE_8[model].iterations, color="0.8")
        axes.set(title=model, xlabel="iteration", ylabel="seconds of one step")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return figure
