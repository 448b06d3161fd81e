"""Predict a recorded step from the other steps of its run.

A replay of a step with its own durations is right by construction wherever the structure is. Here the step that is
predicted lends neither: the rows and what they wait for come from the nearest other step with the same rows, and each
row takes the median of what it took in all such steps but the predicted one: its duration, its launch, and what its
thread did before it. Only where no other step has the same rows does the step lend its own structure; its rows then
take the median of their name in the other steps, and keep what was recorded where the name occurs in none.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from stepsim.plan import NONE
from stepsim.traces.replay import Rebuilt, RecordedStep

NAME = ["thread", "lane", "work"]
PLACE = [*NAME, "occurrence"]
LEARNT = ["seconds", "launch_s", "gap_s"]


@dataclass(frozen=True, kw_only=True)
class LearntStep:
    """A run in which the rows of ``lender`` take what other steps than ``predicted`` tell of them.

    ``alike`` says whether the lender is another step with the same rows. Where it is not, it is the predicted step
    itself, and ``unknown`` is the share of its rows that occur in no other step.
    """

    predicted: RecordedStep
    lender: RecordedStep
    run: Rebuilt
    alike: bool
    unknown: float


def learnt_steps(rebuilt: Rebuilt) -> tuple[LearntStep, ...]:
    """Each step of the run predicted from the others; none for a run of one step."""
    if len(rebuilt.steps) < 2:
        return ()
    rows = pd.concat([_rows_of(rebuilt, number) for number in range(len(rebuilt.steps))], ignore_index=True)
    sequence = {int(str(step)): tuple(map(tuple, own[NAME].to_numpy())) for step, own in rows.groupby("step")}
    return tuple(_learnt(rebuilt, rows, sequence, left_out) for left_out in range(len(rebuilt.steps)))


def _learnt(
    rebuilt: Rebuilt, rows: pd.DataFrame, sequence: dict[int, tuple[tuple[int, ...], ...]], left_out: int
) -> LearntStep:
    alike = [step for step, names in sequence.items() if step != left_out and names == sequence[left_out]]
    lender = min(alike, key=lambda step: abs(step - left_out), default=left_out)
    others = rows[rows["step"].isin(alike) if alike else rows["step"] != left_out]
    lent = rows[rows["step"] == lender]
    by_place, by_name = (_medians(others, lent, columns) for columns in (PLACE, NAME))
    values = by_place.fillna(by_name)
    unknown = values["seconds"].isna()
    return LearntStep(
        predicted=rebuilt.steps[left_out],
        lender=rebuilt.steps[lender],
        run=_with(rebuilt, lent, values.fillna(lent[LEARNT])),
        alike=bool(alike),
        unknown=float(unknown.mean()),
    )


def _medians(others: pd.DataFrame, lent: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """For each row lent the medians of the rows of ``others`` that agree with it in ``columns``, else NaN."""
    found = others.groupby(columns)[LEARNT].median().reindex(pd.MultiIndex.from_frame(lent[columns]))
    return found.set_axis(lent.index)


def _with(rebuilt: Rebuilt, lent: pd.DataFrame, values: pd.DataFrame) -> Rebuilt:
    """The run with other costs of the rows lent.

    Where the lender has no gap before a row, other steps have a few microseconds there at most: they are left out.
    """
    seconds, launch_s = rebuilt.seconds.copy(), rebuilt.launch_s.copy()
    seconds[lent["row"]] = values["seconds"]
    launch_s[lent["row"]] = values["launch_s"]
    behind_gap = lent["gap"] != NONE
    seconds[lent["gap"][behind_gap]] = values["gap_s"][behind_gap]
    return replace(rebuilt, seconds=seconds, launch_s=launch_s)


def _rows_of(rebuilt: Rebuilt, number: int) -> pd.DataFrame:
    """The rows between the borders of a step, thread by thread, each with the gap of its thread before it."""
    plan, step = rebuilt.plan, rebuilt.steps[number]
    at = dict(zip(plan.marks.name, plan.marks.row.tolist(), strict=True))
    rows = np.arange(at[step.begin], at[step.end] + 1)
    rows = rows[np.argsort(plan.tasks.thread[rows], kind="stable")]
    is_gap = rebuilt.gaps[rows]
    gap = np.where(np.roll(is_gap, 1), np.roll(rows, 1), NONE)[~is_gap]
    row = rows[~is_gap]
    found = pd.DataFrame(
        {
            "step": number,
            "row": row,
            "gap": gap,
            "thread": plan.tasks.thread[row],
            "lane": plan.lane_of_rows()[row],
            "work": plan.tasks.work[row],
            "seconds": rebuilt.seconds[row],
            "launch_s": rebuilt.launch_s[row],
            "gap_s": np.where(gap != NONE, rebuilt.seconds[gap], 0.0),
        }
    )
    return found.assign(occurrence=found.groupby(NAME).cumcount())
