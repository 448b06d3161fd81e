import numpy as np
import pytest

from stepsim.costmodels import DataSheetCosts
from stepsim.costmodels.board_power import comparable_power_w
from stepsim.costmodels.model import uniform
from stepsim.costmodels.modelled import ModelledCosts
from stepsim.machines import DeviceKind, load_machine, shipped_machines
from stepsim.plan import Origin
from stepsim.plan.builder import PlanBuilder

MACHINE = load_machine("v100_pcie")


class Knows:
    """A model that says ``seconds`` of one op class and nothing of the others."""

    features = ("op_class",)

    def __init__(self, op_class, seconds):
        self.op_class, self.seconds = op_class, seconds

    def fit(self, samples):
        return self

    def predict(self, tasks):
        known = (tasks["op_class"] == self.op_class).to_numpy()
        return uniform(np.where(known, self.seconds, np.nan), Origin.REGRESSED, spread=0.5)


def plan_of(*kinds):
    """The work of ``kinds`` in a row, then one swap out of 12 GB."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    stream = builder.stream("compute", gpu)
    y = builder.buffer(12 * 10**9, gpu, owner=stream)
    for kind in kinds:
        given = {"shapes": "2x3, 2x3 -> 2x3", "dtype": "float32", "bytes_read": 9 * 10**9}
        builder.compute(builder.work(kind, **given), stream)
    builder.compute(builder.work("aten.sort"), stream, writes=[y], allocates=[y])
    builder.swap_out(y, builder.buffer(12 * 10**9, host), stream)
    return builder.build()


def prices(models, *kinds):
    plan = plan_of(*kinds)
    costs = ModelledCosts(models=models).task_costs(plan, MACHINE)
    return costs.seconds_alone(plan, MACHINE), costs


def test_the_first_model_that_knows_a_class_prices_its_work():
    models = [Knows("elementwise", 1.0), Knows("elementwise", 2.0), Knows("softmax", 3.0)]

    seconds, costs = prices(models, "aten.add", "aten._softmax")

    assert seconds[:2].tolist() == [1.0, 3.0]
    assert costs.table.origin[costs.index[:2]].tolist() == [Origin.REGRESSED] * 2
    assert costs.table.spread[costs.index[:2]].tolist() == [0.5] * 2


def test_work_that_no_model_knows_and_transfers_cost_what_the_data_sheet_says():
    kinds = ("aten.cumsum", "aten.add")
    plan = plan_of(*kinds)
    bound_s = DataSheetCosts().task_costs(plan, MACHINE).seconds_alone(plan, MACHINE)

    seconds, costs = prices([Knows("elementwise", 7.0)], *kinds)

    assert seconds.tolist() == [bound_s[0], 7.0, *bound_s[2:]]
    assert bound_s[0] == pytest.approx(0.01)
    assert bound_s[-1] > 0.5
    assert costs.table.origin[costs.index[0]] == Origin.ROOFLINE


def test_board_power_of_a_finer_process_counts_for_more():
    power_w = {}
    for name in ("p4", "t4", "l4", "a40", "a100_pcie", "hgx_h100"):
        gpu = next(device for device in load_machine(name).devices if device.kind is DeviceKind.GPU)
        power_w[name] = (gpu.power_w, comparable_power_w(gpu))

    assert {name for name, (board, comparable) in power_w.items() if board == comparable} == {"p4", "t4"}
    assert power_w["l4"] == (72, pytest.approx(72 / 0.28))
    assert power_w["a100_pcie"] == (250, pytest.approx(625))
    assert power_w["a40"] == (300, pytest.approx(300 / 0.54))
    assert power_w["hgx_h100"][1] == pytest.approx(power_w["hgx_h100"][0] / 0.28)


def test_no_shipped_gpu_of_another_process_is_forgotten():
    """What ships is of 28 nm (Kepler, Maxwell: older than any that was measured), of 16 or 12 nm, or named."""
    plain = set()
    for name in shipped_machines():
        for device in load_machine(name).devices:
            if device.kind is DeviceKind.GPU and comparable_power_w(device) == device.power_w:
                plain.add(device.model.split("-")[0])

    assert plain == {
        *("Tesla K40", "GeForce GTX Titan X", "Tesla P4", "Tesla P40", "Tesla P100", "GeForce GTX 1080 Ti"),
        *("Tesla V100", "Tesla T4", "GeForce RTX 2080 Ti"),
    }


def test_a_plan_without_work_costs_nothing():
    builder = PlanBuilder()
    builder.device("gpu0")

    assert len(ModelledCosts(models=[Knows("linear", 1.0)]).task_costs(builder.build(), MACHINE).index) == 0
