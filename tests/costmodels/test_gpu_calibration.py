from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stepsim.costmodels import DataSheetCosts
from stepsim.costmodels.copies import CopyModel
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
    """Out: 1 ms and 10 GB/s. In: unknown."""
    size_bytes = np.array([1e3, 1e6, 1e8, 1e9])
    return CopyModel().fit(
        pd.DataFrame(
            {
                "source": "device",
                "destination": "pinned",
                "size_bytes": size_bytes,
                "seconds": 1e-3 + size_bytes / 10e9,
                "opposite": False,
                "at_once": 1,
            }
        )
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


def test_a_swap_alone_takes_what_the_copy_model_says_and_one_of_an_unknown_way_what_the_links_need():
    plan = swapped(100 * MIB)

    seconds, origins, _ = alone(calibration(copies=copies(), work=(Says(1.0),)), plan)
    links = DataSheetCosts().task_costs(plan, V100).seconds_alone(plan, V100)

    assert seconds[1] == pytest.approx(1e-3 + 100 * MIB / 10e9, rel=1e-3)
    assert seconds[2] == links[2]
    assert origins[1:3] == [Origin.INTERPOLATED, Origin.ROOFLINE]


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
