import json
from dataclasses import replace

import pytest

from stepsim.costmodels.shipped import FOLDER, calibration_of, shipped_calibration, shipped_calibrations
from stepsim.errors import CalibrationError
from stepsim.machines import DeviceKind, load_machine, shipped_machines
from stepsim.plan.builder import PlanBuilder

EXTRAPOLATED = {"gtx_1080_ti", "h200", "k40", "l4", "p40", "rtx_2080_ti", "titan_x_maxwell"}

LARGEST_BYTES = 20_000
"""Of a file: parameters are few, tables of measurements are not."""


def one_product(dtype):
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    shapes = {"shapes": "4096x4096, 4096x4096 -> 4096x4096", "flop": 2 * 4096**3, "bytes_read": 2 * 4096**2 * 4}
    builder.compute(builder.work("aten.mm", dtype=dtype, bytes_written=4096**2 * 4, **shapes), stream)
    return builder.build()


def gpus_of(machine):
    return [device for device in machine.devices if device.kind is DeviceKind.GPU]


@pytest.mark.parametrize("name", shipped_machines())
def test_there_is_a_calibration_for_the_gpus_of_each_machine_that_ships(name):
    machine = load_machine(name)

    calibration = calibration_of(machine)

    assert calibration is not None
    assert gpus_of(machine)[0].model in calibration.gpus


@pytest.mark.parametrize("name", shipped_calibrations())
def test_a_calibration_that_ships_tells_its_errors_and_sources_and_holds_no_table(name):
    calibration = shipped_calibration(name)

    assert calibration.name == name
    assert all(0 < error < 1 for error in calibration.errors.values())
    assert {"float32 kernels", "16-bit products", "launch_s"} <= set(calibration.sources)
    assert bool(calibration.extrapolated_from) is (name in EXTRAPOLATED)
    assert (FOLDER / f"{name}.json").stat().st_size < LARGEST_BYTES
    json.loads((FOLDER / f"{name}.json").read_bytes())


@pytest.mark.parametrize("name", ["v100_pcie", "t4", "l4", "a100_pcie"])
def test_a_large_product_takes_longer_than_at_the_peak_and_not_ten_times_as_long(name):
    machine, plan = load_machine(name), one_product("float32")
    (gpu,) = gpus_of(machine)

    costs = calibration_of(machine).task_costs(plan, machine)

    at_peak_s = 2 * 4096**3 / gpu.peak_flop_per_s["float32"]
    assert at_peak_s < costs.seconds_alone(plan, machine)[0] < 10 * at_peak_s


def test_a_16_bit_product_is_faster_than_one_of_float32():
    machine = load_machine("a100_pcie")

    seconds = {
        dtype: calibration_of(machine)
        .task_costs(one_product(dtype), machine)
        .seconds_alone(one_product(dtype), machine)[0]
        for dtype in ("float32", "bfloat16")
    }

    assert seconds["bfloat16"] < seconds["float32"] / 4


def test_a_machine_of_unknown_or_mixed_gpus_has_none():
    machine = load_machine("p100_pcie_4")
    unknown = replace(machine, devices=tuple(replace(device, model="") for device in machine.devices))
    first, *rest = machine.devices
    mixed = replace(machine, devices=(replace(first, model="Tesla T4"), *rest))

    assert calibration_of(unknown) is None
    assert calibration_of(mixed) is None


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(CalibrationError, match=r"unknown calibration 'b200'; known: a100, "):
        shipped_calibration("b200")
