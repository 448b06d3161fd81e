"""Lanes of a GPU: the same values and bytes as on a CPU, and rows that keep the order of the plan."""

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from small_plans import UNLIMITED, policy_of
from tiny_models import conv_net_with_bias, tiny_resnet, tiny_transformer, with_dropout

from stepsim.errors import OutOfMemoryError
from stepsim.executor import BoundProgram, Executor, machine_of, record
from stepsim.executor.cuda_lanes import CudaLanes
from stepsim.executor.eager import eager_step, max_abs_difference
from stepsim.executor.instructions import Instruction
from stepsim.executor.record import GPU_COPY_SIZES_BYTES
from stepsim.memory import memory_profile
from stepsim.plan import Plan
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.schedule import Action
from stepsim.workloads.factory import Factory

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

KEEP, SWAP, RECOMPUTE = Action

REPEATS = 2


@cache
def on_gpu(factory: Factory) -> BoundProgram:
    return BoundProgram.of(factory, 2, factory.__name__, "cuda:0")


def plan_of(bound: BoundProgram, *actions: Action, memory_bytes: int = UNLIMITED) -> Plan:
    return plan_for_policy(bound.workload, machine_of(bound.device), policy_of(bound, *actions), memory_bytes)


def plans_of(bound: BoundProgram) -> Iterator[Plan]:
    yield plan_of(bound, KEEP)
    yield plan_of(bound, SWAP, memory_bytes=0)
    yield plan_of(bound, SWAP)
    yield plan_of(bound, RECOMPUTE)
    yield plan_of(bound, SWAP, RECOMPUTE, KEEP)


@pytest.mark.parametrize("factory", [tiny_resnet, tiny_transformer, conv_net_with_bias])
def test_every_plan_gives_the_values_of_plain_pytorch_and_the_predicted_bytes(factory: Factory) -> None:
    bound = on_gpu(factory)

    for plan in plans_of(bound):
        reference = eager_step(bound)
        execution = Executor(plan, bound).run(metered=True)

        assert max_abs_difference(execution, reference) == pytest.approx(0.0, abs=1e-6)
        assert execution.memory.peak_bytes("gpu0") == memory_profile(plan).peak_bytes("gpu0")


def test_swaps_that_run_beside_the_next_steps_spoil_no_values() -> None:
    """Memory that is given back too early would be overwritten in some run of many, without a metered run's pauses."""
    bound = on_gpu(tiny_resnet)
    executor = Executor(plan_of(bound, SWAP), bound)

    for _ in range(20):
        reference = eager_step(bound)
        assert max_abs_difference(executor.run(), reference) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("action", Action)
def test_dropout_draws_what_plain_pytorch_draws(action: Action) -> None:
    bound = on_gpu(with_dropout)
    reference = eager_step(bound)

    execution = Executor(plan_of(bound, action), bound).run()

    assert max_abs_difference(execution, reference) == pytest.approx(0.0, abs=1e-6)


def test_rows_of_a_lane_never_overlap_and_none_starts_before_what_it_waits_for_has_ended() -> None:
    """Invariants 1 and 2 of a timeline, to the microsecond: about what the clock of an event tells."""
    bound = on_gpu(tiny_transformer)
    plan = plan_of(bound, SWAP)

    spans = Executor(plan, bound).run().timeline.spans

    dependencies = plan.tasks.dependencies
    assert (spans.end_s >= spans.start_s).all()
    assert (spans.start_s[dependencies.owners()] >= spans.end_s[dependencies.values] - 1e-6).all()
    for lane in set(spans.lane.tolist()):
        mine = spans.lane == lane
        assert (spans.start_s[mine][1:] >= spans.end_s[mine][:-1] - 1e-6).all()


def test_the_allocator_has_handed_out_at_least_what_is_alive() -> None:
    bound = on_gpu(tiny_transformer)
    executor = Executor(plan_of(bound, KEEP), bound)

    executor.run()

    assert executor.lanes.allocated_peak_bytes >= memory_profile(executor.plan).peak_bytes("gpu0")


def test_host_storage_is_pinned() -> None:
    assert CudaLanes(torch.device("cuda:0")).new_host_storage(4096).is_pinned()


def test_a_row_that_finds_no_memory_is_named() -> None:
    lanes = CudaLanes(torch.device("cuda:0"))
    there = torch.cuda.get_device_properties(0).total_memory

    def too_much(_: object) -> tuple[torch.Tensor]:
        return (torch.empty(2 * there, dtype=torch.uint8, device="cuda:0"),)

    row = Instruction(row=0, lane=0, waits=(), reads=(), writes=(0,), releases=(), action=too_much)
    lanes.start(1)

    with pytest.raises(OutOfMemoryError, match="row 0: cuda:0 has no memory left"):
        lanes.run(row, ())


def test_a_recording_holds_work_launches_calls_and_copies_of_both_kinds_of_host_memory() -> None:
    bound = on_gpu(conv_net_with_bias)

    trace = record([bound], repeats=REPEATS)

    copies = trace.of("copy").groupby(["source", "destination"])["size_bytes"].agg(set).to_dict()
    ways = {(host, "device") for host in ("pinned", "pageable")} | {("device", host) for host in ("pinned", "pageable")}
    assert copies == {way: set(GPU_COPY_SIZES_BYTES) for way in ways}
    assert set(trace.of("kernel")["work"]) == {op.signature for op in bound.workload.ops}
    assert set(trace.of("kernel")["device"]) == {"gpu0"}
    assert set(trace.events["kind"]) == {"kernel", "copy", "launch", "host", "sync", "record", "wait"}
    assert (trace.events["duration_s"] >= 0).all()
    wanted = {"machine", "gpu", "driver", "cuda", "cudnn", "sms", "memory_bytes", "compute_capability", "torch", "date"}
    assert wanted <= set(trace.provenance)
    assert trace.provenance["machine"] == "this_gpu"
