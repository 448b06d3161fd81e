"""The setting of the HOME paper with one thing changed, and what a strategy reaches there."""

from dataclasses import dataclass, replace
from functools import cache

from experiments.home_constants import FITTED
from experiments.home_costs import Constants, PaperCosts, limit_bytes, machine_with
from experiments.home_runs import TIME_LIMIT_S
from experiments.home_setting import step
from stepsim.machines import Machine
from stepsim.plan import Plan, TaskKind
from stepsim.report import Report, report
from stepsim.simulator import simulate
from stepsim.strategies import Strategy
from stepsim.strategies.memory.rows import resident_bytes
from stepsim.strategies.memory.schedule import schedule
from stepsim.tables import Ragged


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What steps run in. The defaults are the setting of `experiments.home_figure6`.

    duplex
        Copies out and in have a link each; else they share one.
    all_outputs
        Every output is kept; else what autograd saves, and the memory is the same share of what keeping all takes.
    in_flight
        What goes out takes room until it is out; else only until it was read last.
    """

    constants: Constants = FITTED
    duplex: bool = True
    all_outputs: bool = True
    in_flight: bool = True


def samples_per_s(world: World, model: str, batch: int, strategy: Strategy) -> float:
    """What the plan of ``strategy`` reaches; 0 if it does not fit."""
    constants = world.constants
    machine, costs = machine_with(constants), PaperCosts(constants)
    machine = machine if world.duplex else one_link(machine)

    @cache
    def evaluate(plan: Plan) -> Report:
        run = plan if world.in_flight else without_waits_for_room(plan)
        return report(simulate(run, machine, costs), run)

    found = strategy.plan(
        step(model, batch, all_outputs=world.all_outputs),
        machine,
        costs,
        memory_bytes=memory_bytes(world, model, batch),
        evaluate=evaluate,
        time_limit_s=TIME_LIMIT_S,
    )
    return batch / found.predicted_s if found.feasible else 0.0


def memory_bytes(world: World, model: str, batch: int) -> int:
    """What a plan may take."""
    limit = limit_bytes(world.constants)
    if world.all_outputs:
        return limit
    return limit * _kept_bytes(model, batch, False) // _kept_bytes(model, batch, True)


@cache
def _kept_bytes(model: str, batch: int, all_outputs: bool) -> int:
    workload = step(model, batch, all_outputs=all_outputs)
    return max(resident_bytes(workload, schedule(workload, {}, 0)))


def one_link(machine: Machine) -> Machine:
    """``machine``, all of whose routes lead over its first link, in both directions."""
    link = machine.links[0]
    routes = tuple(replace(route, links=(link.name,)) for route in machine.routes)
    return replace(machine, links=(link,), routes=routes)


def without_waits_for_room(plan: Plan) -> Plan:
    """``plan`` with room given back while the copy out may still run. No real plan may: it is for simulating only."""
    tasks = plan.tasks
    owner, waited = tasks.dependencies.owners(), tasks.dependencies.values
    stays = (tasks.kind[owner] != TaskKind.RELEASE) | (tasks.kind[waited] != TaskKind.SWAP_OUT)
    dependencies = Ragged.from_pairs(owner[stays], waited[stays], len(plan))
    return replace(plan, tasks=replace(tasks, dependencies=dependencies))
