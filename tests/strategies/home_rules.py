"""HOME's algorithms in plain Python: the specification that the compiled ones are held against."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from stepsim.plan import TaskKind
from stepsim.strategies.memory.home.options import Rules, Swarm
from stepsim.strategies.memory.home.problem import Actions, HomeProblem
from stepsim.strategies.memory.prices import Prices
from stepsim.strategies.memory.rows import Copy, Row, resident_bytes
from stepsim.strategies.memory.schedule import Policy, candidates, schedule
from stepsim.workloads import Workload

WAYS = (TaskKind.SWAP_OUT, TaskKind.SWAP_IN)


def named_prices(workload: Workload, out_s: float = 0.0, in_s: float = 0.0, **seconds: float) -> Prices:
    """Ops by name take ``seconds``, or 1; every tensor takes as long as every other."""
    prices = {(TaskKind.COMPUTE, index): seconds.get(op.name, 1.0) for index, op in enumerate(workload.ops)}
    again = {(TaskKind.RECOMPUTE, op): value for (_, op), value in prices.items()}
    moves = {(way, t): value for t in candidates(workload) for way, value in zip(WAYS, (out_s, in_s), strict=True)}
    return prices | again | moves


def whole_prices(workload: Workload, rng: np.random.Generator) -> Prices:
    """Whole seconds, so that all sums are exact; copies take longer than ops."""
    prices = {(TaskKind.COMPUTE, op): float(rng.integers(0, 8)) for op in range(len(workload.ops))}
    again = {(TaskKind.RECOMPUTE, op): seconds for (_, op), seconds in prices.items()}
    moves = {(way, t): float(rng.integers(0, 24)) for t in candidates(workload) for way in WAYS}
    return prices | again | moves


def sized(workload: Workload, size_bytes: Mapping[int, int]) -> Workload:
    """The same with other bytes of some tensors."""
    changed = (replace(t, size_bytes=size_bytes.get(index, t.size_bytes)) for index, t in enumerate(workload.tensors))
    return replace(workload, tensors=tuple(changed))


def random_actions(problem: HomeProblem, rng: np.random.Generator) -> Actions:
    return rng.integers(0, problem.num_actions, problem.num_layers, dtype=np.int8)


def walk(
    workload: Workload, prices: Prices, policy: Policy, memory_bytes: int, rules: Rules, num_alone: int
) -> tuple[float, dict[int, float], int]:
    """Algorithm 2 on the rows of the schedule: seconds, what each tensor adds to them, and the bytes over the limit.

    Ops from ``num_alone`` on are a single stage.

    What computing waits for is charged to the tensor that it waits for; a recomputation to the first of its outputs
    that the policy names.
    """
    rows = schedule(workload, policy, memory_bytes, rules.prefetch_stages)
    now_s, out_end_s, there_s = 0.0, dict[int, float](), dict[Copy, float]()
    made_s = dict[Copy, float]()
    free_s = dict.fromkeys(WAYS, 0.0)
    added_s: dict[int, float] = {}

    def wait(tensor: int, until_s: float) -> None:
        nonlocal now_s
        if until_s > now_s:
            added_s[tensor] = added_s.get(tensor, 0.0) + until_s - now_s
            now_s = until_s

    def copy(kind: TaskKind, tensor: int, ready_s: float) -> float:
        start_s = ready_s if rules.queues == "none" else max(ready_s, free_s[kind])
        for served in WAYS if rules.queues == "one" else (kind,):
            free_s[served] = start_s + prices[kind, tensor]
        return start_s + prices[kind, tensor]

    for row in rows[:-1]:
        match row.kind:
            case TaskKind.SWAP_OUT:
                ready_s = made_s[row.reads[0]] if rules.out_after == "made" else now_s
                out_end_s[row.subject] = copy(row.kind, row.subject, ready_s)
            case TaskKind.SWAP_IN:
                ready_s = max(now_s, out_end_s[row.subject])
                there_s[row.writes[0]] = copy(row.kind, row.subject, ready_s)
            case TaskKind.RELEASE:
                wait(row.subject, out_end_s[row.subject])
            case _:
                for read in row.reads:
                    wait(read[0], there_s.get(read, 0.0))
                now_s += prices[row.kind, row.subject]
                made_s |= dict.fromkeys(row.writes, now_s)
                if row.kind is TaskKind.RECOMPUTE:
                    named = next(t for t in workload.ops[row.subject].outputs if t in policy)
                    added_s[named] = added_s.get(named, 0.0) + prices[row.kind, row.subject]
    return now_s, added_s, over_bytes(workload, rows, memory_bytes, num_alone)


def over_bytes(workload: Workload, rows: list[Row], memory_bytes: int, num_alone: int) -> int:
    """Summed over the rows that allocate."""
    merged_bytes, sum_bytes = 0, 0
    for row, level in zip(rows, resident_bytes(workload, rows), strict=True):
        if row.kind is TaskKind.COMPUTE and row.subject >= num_alone:
            merged_bytes = max(merged_bytes, level - memory_bytes)
        elif row.kind in (TaskKind.COMPUTE, TaskKind.RECOMPUTE, TaskKind.SWAP_IN):
            sum_bytes += max(0, level - memory_bytes)
    return sum_bytes + merged_bytes


def added_by_layer(problem: HomeProblem, added_s: dict[int, float]) -> list[float]:
    layer = dict(zip(problem.tensor.tolist(), problem.layer.tolist(), strict=True))
    sums = [0.0] * problem.num_layers
    for tensor, seconds in added_s.items():
        sums[layer[tensor]] += seconds
    return sums


Score = Callable[[Actions], float]
"""Of a policy, the lower the better; infinite where it is unusable."""


def swarm(
    problem: HomeProblem, score: Score, options: Swarm, rng: np.random.Generator
) -> tuple[Actions | None, list[list[float]]]:
    """Algorithms 1 and 3 with every trial scored anew: the best policy ever, and all scores after each iteration."""
    shape = (options.num_particles, problem.num_layers)
    particles = list(rng.integers(0, problem.num_actions, shape, dtype=np.int8))
    scores = [score(particle) for particle in particles]
    own = list(zip(scores, (particle.copy() for particle in particles), strict=True))
    history = [list(scores)]
    for _ in range(options.num_iterations):
        pool = own if options.leader == "ever" else zip(scores, particles, strict=True)
        leader = tuple(min(pool, key=lambda entry: entry[0]))
        leader = leader[0], leader[1].copy()
        wild = np.full(shape, -1)
        if options.random_share:
            chosen = rng.random(shape) < options.random_share
            wild[chosen] = rng.integers(0, problem.num_actions, shape, dtype=np.int8)[chosen]
        for number, particle in enumerate(particles):
            teachers = [teacher for value, teacher in (leader, own[number]) if value < np.inf]
            for layer in range(problem.num_layers):
                actions = [teacher[layer] for teacher in teachers]
                actions += [wild[number, layer]] if wild[number, layer] >= 0 else []
                trials = [(score(_with(particle, layer, action)), action) for action in actions]
                best = min(trials, key=lambda trial: trial[0], default=(np.inf, -1))
                if best[0] < np.inf:
                    scores[number], particle[layer] = best
            if scores[number] < own[number][0]:
                own[number] = (scores[number], particle.copy())
        history.append(list(scores))
    best = min(own, key=lambda entry: entry[0])
    return (best[1] if best[0] < np.inf else None), history


def _with(actions: Actions, layer: int, action: int) -> Actions:
    changed = actions.copy()
    changed[layer] = action
    return changed
