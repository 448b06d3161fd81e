"""What leaves the device has to fit somewhere: hosts that are too small, and machines without one."""

import pytest
from proposing import MACHINE, count
from small_machines import PLENTY_BYTES, device, machine_of
from small_networks import CONVOLUTION, network
from small_workloads import chain

from stepsim.costmodels import GivenCosts
from stepsim.errors import MachineError
from stepsim.machines import DeviceKind, Machine
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.report import report
from stepsim.simulator import simulate
from stepsim.strategies import STRATEGIES, LeastMemory, Proposal, least_memory
from stepsim.strategies.memory.propose import lacking
from stepsim.workloads import Workload

ALWAYS_SWAPS = network(*[CONVOLUTION, "aten.relu"] * 5)
"""vDNN moves 10 tensors of 10 bytes, or the 4 that convolutions read."""


def with_host(memory_bytes: int) -> Machine:
    devices = [device("gpu0", DeviceKind.GPU), device("host", DeviceKind.HOST, memory_bytes)]
    return machine_of(devices, bandwidth_bytes_per_s=10.0)


def propose(name: str, workload: Workload, machine: Machine, memory_bytes: int) -> Proposal:
    """Simulated on a machine with room for any plan, as the command does."""
    costs = GivenCosts(seconds={op.kind: 1.0 for op in workload.ops})
    return STRATEGIES[name].plan(
        workload,
        machine,
        costs,
        memory_bytes=memory_bytes,
        evaluate=lambda plan: report(simulate(plan, MACHINE, costs), plan),
        time_limit_s=60.0,
    )


def on_host(proposal: Proposal) -> int:
    return memory_profile(proposal.plan).peak_bytes("host")


def test_devices_that_lack_memory_are_told_with_what_they_need_and_have() -> None:
    """The computing device has what the limit gives it, be that more or less than its own."""
    peaks, machine = {"gpu0": 50, "host": 21}, with_host(20)

    assert lacking(peaks, machine, 49) == {"gpu0": (50, 49), "host": (21, 20)}
    assert lacking(peaks, machine, 50) == {"host": (21, 20)}
    assert lacking(peaks, with_host(21), 50) == {}


@pytest.mark.parametrize("host_bytes", [1, 10, 20, 1000])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_plan_is_feasible_if_both_device_and_host_can_hold_it(name: str, host_bytes: int) -> None:
    workload = chain(8)
    for limit_bytes in (41, 61, 1000):
        proposal = propose(name, workload, with_host(host_bytes), limit_bytes)

        fits = proposal.predicted_peak_bytes <= limit_bytes and on_host(proposal) <= host_bytes
        assert proposal.feasible == fits


@pytest.mark.parametrize(
    "name", ["greedy-swap", "vdnn-all", "home", "superneurons-no-cache", "capuchin", "swapadvisor"]
)
def test_one_byte_less_on_the_host_and_the_same_plan_is_not_feasible(name: str) -> None:
    limit_bytes = propose("vdnn-all", ALWAYS_SWAPS, MACHINE, 0).predicted_peak_bytes
    roomy = propose(name, ALWAYS_SWAPS, MACHINE, limit_bytes)
    enough, short = (propose(name, ALWAYS_SWAPS, with_host(on_host(roomy) - lacks), limit_bytes) for lacks in (0, 1))

    assert enough.plan == short.plan == roomy.plan
    assert (roomy.feasible, enough.feasible, short.feasible) == (True, True, False)
    assert short.predicted_s == enough.predicted_s


def test_vdnns_dynamic_choice_moves_only_what_the_host_can_hold() -> None:
    """Within the peak of keeping everything nothing moves; within that of the inputs of convolutions these do."""
    peaks = [propose(name, ALWAYS_SWAPS, MACHINE, 0).predicted_peak_bytes for name in ("keep-all", "vdnn-conv")]
    needs_bytes = on_host(propose("vdnn-conv", ALWAYS_SWAPS, MACHINE, 0))

    def moved(limit_bytes: int, host_bytes: int) -> tuple[bool, int]:
        found = propose("vdnn-dynamic", ALWAYS_SWAPS, with_host(host_bytes), limit_bytes)
        return found.feasible, count(found, TaskKind.SWAP_OUT)

    assert moved(peaks[0], 1) == (True, 0)
    assert moved(peaks[1], needs_bytes) == (True, 4)
    assert moved(peaks[1], needs_bytes - 1) == (False, 10)


@pytest.mark.parametrize("name", ["greedy-swap", "vdnn-dynamic", "capuchin"])
def test_with_a_host_that_is_too_small_the_smallest_limit_swaps_less(name: str) -> None:
    machine = with_host(20)

    def at(memory_bytes: int, time_limit_s: float = 60.0) -> Proposal:
        return propose(name, ALWAYS_SWAPS, machine, memory_bytes)

    limit_bytes = at(0).predicted_peak_bytes
    least = least_memory(at, at(limit_bytes), limit_bytes, 60.0, most_bytes=PLENTY_BYTES)

    assert least is not None
    assert least == LeastMemory(memory_bytes=least.memory_bytes, exact=True)
    assert least.memory_bytes > limit_bytes
    assert (at(least.memory_bytes).feasible, at(least.memory_bytes - 1).feasible) == (True, False)


def test_where_the_same_is_swapped_whatever_the_limit_none_is_found_that_works() -> None:
    def at(memory_bytes: int, time_limit_s: float = 60.0) -> Proposal:
        return propose("vdnn-all", ALWAYS_SWAPS, with_host(20), memory_bytes)

    assert [least_memory(at, at(limit), limit, 60.0) for limit in (0, 1000)] == [None, None]


NEVER_SWAP = ["keep-all", "vdnn-dynamic", "chen-sqrt", "chen-greedy", "checkmate", "greedy-recompute"]


@pytest.mark.parametrize("name", NEVER_SWAP)
def test_what_swaps_nothing_needs_no_host(name: str) -> None:
    machine = machine_of([device("gpu0", DeviceKind.GPU)])

    proposal = propose(name, ALWAYS_SWAPS, machine, 1000)

    assert proposal.feasible
    assert proposal.plan.devices.name == ("gpu0",)


@pytest.mark.parametrize("name", ["greedy", "vdnn-all", "vdnn-dynamic", "home", "superneurons", "capuchin", "refined"])
def test_what_swaps_is_refused_without_a_host(name: str) -> None:
    machine = machine_of([device("gpu0", DeviceKind.GPU)])

    with pytest.raises(MachineError, match=r"^machine 'small' has no host device to swap to$"):
        propose(name, ALWAYS_SWAPS, machine, 71)
