from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stepsim.costmodels import DataSheetCosts
from stepsim.costmodels.copies import CopyModel
from stepsim.costmodels.demands import DemandModel
from stepsim.costmodels.gpu_calibration import GpuCalibration
from stepsim.costmodels.model import uniform
from stepsim.costmodels.trust import ForDtypes, unknown
from stepsim.errors import CalibrationError
from stepsim.machines import load_machine
from stepsim.plan import Origin
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate

V100 = load_machine("v100_pcie")
NODE = load_machine("dgx_a100")

MIB = 2**20


class Says:
    """The same seconds of whatever it is asked, and the columns that it was asked with."""

    def __init__(self, seconds):
        self.seconds, self.asked = seconds, []

    def predict(self, tasks):
        self.asked.append(tasks)
        return uniform(np.full(len(tasks), self.seconds), Origin.REGRESSED, spread=0.25)


class SaysNothing:
    def predict(self, tasks):
        return unknown(len(tasks))


def copies():
    """Out: 1 ms, and 10 GB/s to pinned memory, 2 GB/s to pageable. In: unknown."""
    size_bytes = np.array([1e3, 1e6, 1e8, 1e9])
    ways = [
        {"destination": memory, "size_bytes": size_bytes, "seconds": 1e-3 + size_bytes / bytes_per_s}
        for memory, bytes_per_s in (("pinned", 10e9), ("pageable", 2e9))
    ]
    return CopyModel().fit(
        pd.concat([pd.DataFrame(way) for way in ways]).assign(source="device", opposite=False, at_once=1)
    )


def calibration(**fields):
    return GpuCalibration(**{"name": "v", "gpus": ("Tesla V100-PCIE-32GB", "A100-SXM4-40GB"), "work": (), **fields})


def one_work(**facts):
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    builder.compute(builder.work("op", dtype="float32", **facts), stream)
    return builder.build()


def swapped(size_bytes):
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    stream = builder.stream("compute", gpu)
    y, away, back = (
        builder.buffer(size_bytes, gpu, owner=stream),
        builder.buffer(size_bytes, host),
        builder.buffer(size_bytes, gpu, owner=stream),
    )
    builder.compute(builder.work("op"), stream, writes=[y], allocates=[y])
    builder.swap_out(y, away, stream)
    builder.swap_in(away, back, stream)
    return builder.build()


def all_reduced(size_bytes, ranks):
    builder = PlanBuilder()
    team = [builder.device(f"gpu{rank}") for rank in range(ranks)]
    streams = [builder.stream(f"nccl{rank}", device) for rank, device in enumerate(team)]
    for stream in streams:
        builder.collective("all_reduce", team, stream, 0, size_bytes=size_bytes)
    return builder.build()


def alone(costs, plan, machine=V100):
    found = costs.task_costs(plan, machine)
    return found.seconds_alone(plan, machine), [Origin(code) for code in found.table.origin[found.index]], found


def test_work_costs_what_the_first_model_that_knows_says():
    seconds, origins, found = alone(calibration(work=(SaysNothing(), Says(0.5))), one_work(flop=7))

    assert seconds.tolist() == [0.5]
    assert origins == [Origin.REGRESSED]
    assert found.table.spread[found.index].tolist() == [0.25]


def test_work_that_no_model_knows_costs_what_the_data_sheet_says():
    plan = one_work(bytes_read=9 * 10**8)

    seconds, origins, _ = alone(calibration(work=(SaysNothing(),)), plan)

    assert seconds.tolist() == DataSheetCosts().task_costs(plan, V100).seconds_alone(plan, V100).tolist()
    assert origins == [Origin.ROOFLINE]


def test_a_model_of_other_dtypes_is_not_asked():
    halves = Says(0.5)

    seconds, *_ = alone(calibration(work=(ForDtypes(model=halves, dtypes=("float16",)), Says(2.0))), one_work(flop=7))

    assert seconds.tolist() == [2.0]
    assert [len(tasks) for tasks in halves.asked] == [0]


def test_work_takes_the_share_of_the_bandwidth_that_its_bytes_need():
    _, _, found = alone(calibration(work=(Says(2e-3),)), one_work(bytes_read=9 * 10**8))

    assert found.table.bandwidth_share[found.index] == pytest.approx([0.5])  # 1 ms at the V100's 900 GB/s


def two_additions(elements):
    """One on each of two streams."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    work = builder.work("add", dtype="float32", shapes=f"{elements} -> {elements}", bytes_read=4 * elements)
    for name in ("left", "right"):
        builder.compute(work, builder.stream(name, gpu))
    return builder.build()


BLOCKS_OF_512 = DemandModel.from_json({"elementwise": {"rows": 1, "columns": 512}})


@pytest.mark.parametrize(("blocks", "makespan_s"), [(20, 1.0), (40, 1.0), (60, 5 / 3), (80, 2.0), (800, 2.0)])
def test_two_kernels_at_once_take_as_long_as_one_while_their_blocks_find_free_sms(blocks, makespan_s):
    """Of 80 SMs the first takes ``blocks``; the second runs on the rest, and on all it needs once the first has ended.

    With 60 blocks each: a third of the second is done when the first ends at 1 s.
    """
    calibrated = calibration(work=(Says(1.0),), demands=BLOCKS_OF_512)

    timeline = simulate(two_additions(512 * blocks), V100, calibrated)

    assert timeline.makespan_s == pytest.approx(makespan_s)


def test_without_demands_no_two_kernels_run_at_once():
    assert simulate(two_additions(512), V100, calibration(work=(Says(1.0),))).makespan_s == pytest.approx(2.0)


def beside_a_collective(ranks):
    """A kernel of 1 s on each device, and a collective beside it."""
    builder = PlanBuilder()
    team = [builder.device(f"gpu{rank}") for rank in range(ranks)]
    for rank, device in enumerate(team):
        stream = builder.stream(f"nccl{rank}", device)
        builder.collective("all_reduce", team, stream, 0, size_bytes=8 * MIB)
        builder.compute(builder.work("op", dtype="float32", flop=7), builder.stream(f"compute{rank}", device))
    return builder.build()


def test_a_kernel_that_needs_all_sms_runs_on_those_that_a_collective_leaves():
    """At 3/4 of its speed the kernel of 1 s takes 4/3 s, all of them beside the collective of 2 s."""
    calibrated = calibration(
        work=(Says(1.0),), collectives=(Says(2.0),), fabrics=("dgx_a100",), collective_sm_share=0.25
    )

    timeline = simulate(beside_a_collective(8), NODE, calibrated)

    assert timeline.spans.end_s[1::2] == pytest.approx([4 / 3] * 8)


def test_a_collective_of_one_gpu_moves_nothing_and_takes_no_sms():
    costs = calibration(work=(Says(1.0),), collective_sm_share=0.25).task_costs(beside_a_collective(1), NODE)

    assert costs.table.sm_share[costs.index].tolist() == [0.0, 1.0]


def test_a_swap_alone_takes_what_the_copy_model_says_and_one_of_an_unknown_way_what_the_links_need():
    plan = swapped(100 * MIB)

    seconds, origins, _ = alone(calibration(copies=copies(), work=(Says(1.0),)), plan)
    links = DataSheetCosts().task_costs(plan, V100).seconds_alone(plan, V100)

    assert seconds[1] == pytest.approx(1e-3 + 100 * MIB / 10e9, rel=1e-3)
    assert seconds[2] == links[2]
    assert origins[1:3] == [Origin.INTERPOLATED, Origin.ROOFLINE]


def test_a_copy_that_holds_its_thread_costs_what_one_of_pageable_memory_does():
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    stream = builder.stream("compute", gpu)
    y, away = builder.buffer(100 * MIB, gpu, owner=stream), builder.buffer(100 * MIB, host)
    builder.compute(builder.work("op"), stream, writes=[y], allocates=[y])
    for blocks in (False, True):
        builder.copy(y, away, stream, blocks_thread=blocks)
    plan = builder.build()

    seconds, *_ = alone(calibration(copies=copies(), work=(Says(1.0),)), plan)

    assert seconds[1:] == pytest.approx([1e-3 + 100 * MIB / 10e9, 1e-3 + 100 * MIB / 2e9], rel=1e-3)


def test_a_collective_on_a_known_fabric_takes_what_its_model_says():
    plan = all_reduced(64 * MIB, ranks=8)
    model = Says(0.5)

    timeline = simulate(plan, NODE, calibration(collectives=(model,), fabrics=("dgx_a100",)))

    assert timeline.makespan_s == pytest.approx(0.5)
    assert model.asked[0].to_dict("records") == [
        {"collective": "all_reduce", "ranks": 8, "nodes": 1, "size_bytes": 64 * MIB}
    ]


def test_a_collective_elsewhere_takes_what_its_links_need():
    plan = all_reduced(64 * MIB, ranks=8)

    timeline = simulate(plan, NODE, calibration(collectives=(Says(0.5),), fabrics=("hgx_h100",)))

    assert timeline.makespan_s == pytest.approx(simulate(plan, NODE, DataSheetCosts()).makespan_s)


def test_links_that_need_longer_than_the_model_says_win():
    plan = all_reduced(64 * MIB, ranks=8)

    timeline = simulate(plan, NODE, calibration(collectives=(Says(1e-9),), fabrics=("dgx_a100",)))

    assert 0 < timeline.makespan_s <= simulate(plan, NODE, DataSheetCosts()).makespan_s


def test_another_gpu_is_refused_with_both_names():
    plan = one_work(flop=7)
    other = replace(V100, devices=tuple(replace(device, model="Tesla K40") for device in V100.devices))

    with pytest.raises(CalibrationError, match=r"'v' is of Tesla V100-PCIE-32GB, .*; device 'gpu0' is a Tesla K40"):
        calibration().task_costs(plan, other)


def test_a_plan_without_work_costs_nothing():
    builder = PlanBuilder()
    builder.device("gpu0")

    assert len(calibration(work=(Says(1.0),)).task_costs(builder.build(), V100).index) == 0
