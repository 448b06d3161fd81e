import json
import warnings
from dataclasses import replace

import pandas as pd
import pytest

from stepsim.costmodels.shipped import FOLDER, calibration_of, shipped_calibration, shipped_calibrations
from stepsim.errors import CalibrationError
from stepsim.machines import DeviceKind, load_machine, shipped_machines
from stepsim.plan import Origin
from stepsim.plan.builder import PlanBuilder

EXTRAPOLATED = {"h200", "k40", "l4", "p40", "rtx_2080_ti", "titan_x_maxwell"}

LARGEST_BYTES = 30_000
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


def seconds_of_product(machine, dtype="float32", **dimensions):
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    sizes = {"m": 4096, "n": 4096, "k": 4096, **dimensions}
    m, n, k = (sizes[name] for name in "mnk")
    shapes = {"shapes": f"{m}x{k}, {k}x{n} -> {m}x{n}", "flop": 2 * m * n * k, "bytes_read": 4 * (m * k + k * n)}
    builder.compute(builder.work("aten.mm", dtype=dtype, bytes_written=4 * m * n, **shapes), stream)
    plan = builder.build()
    found = calibration_of(machine).task_costs(plan, machine)
    return found.seconds_alone(plan, machine)[0], Origin(int(found.table.origin[found.index[0]]))


@pytest.mark.parametrize(
    ("name", "dtype", "origin"),
    [
        ("v100_pcie", "float32", Origin.REGRESSED),
        ("v100_pcie", "float16", Origin.ROOFLINE),
        ("a100_pcie", "float16", Origin.REGRESSED),
        ("a100_pcie", "float32", Origin.ROOFLINE),
        ("l4", "float32", Origin.ROOFLINE),
    ],
)
def test_a_regression_serves_the_dtype_and_the_gpu_that_were_measured(name, dtype, origin):
    assert seconds_of_product(load_machine(name), dtype)[1] is origin


@pytest.mark.parametrize("name", ["p4", "p100_pcie_4", "v100_pcie", "t4"])
def test_a_product_twice_as_tall_as_any_that_was_measured_takes_about_twice_as_long_and_is_warned_of(name):
    """Trees keep the distance from the roofline that they saw at the border."""
    machine = load_machine(name)

    border_s, _ = seconds_of_product(machine, m=8192)
    with pytest.warns(UserWarning, match="m 16384 lies outside the fitted range"):
        beyond_s, _ = seconds_of_product(machine, m=16384)

    assert beyond_s == pytest.approx(2 * border_s, rel=0.15)


@pytest.mark.parametrize("op_class", ["linear", "bmm", "conv"])
def test_products_and_convolutions_of_measured_gpus_are_known_to_12_percent_in_the_mean(op_class):
    errors = [
        shipped_calibration(name).errors[f"float32 {op_class}, left out"] for name in ("p4", "p100", "v100", "t4")
    ]

    assert sum(errors) / len(errors) < 0.12


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


@pytest.mark.parametrize("name", shipped_calibrations())
def test_a_kernel_of_few_blocks_leaves_sms_to_others_and_collectives_take_some(name):
    calibration = shipped_calibration(name)
    tasks = pd.DataFrame({"op_class": ["elementwise"], "batch": 1, "m": 1, "n": 4 * 512, "num_sms": 40})

    assert calibration.demands.sm_share(tasks).tolist() == [0.1]
    assert calibration.collective_sm_share == pytest.approx(0.1 if name == "v100" else 0.129, abs=5e-4)


@pytest.mark.parametrize(("name", "bytes_per_s"), [("a100", 5.3e9), ("v100", 10.0e9)])
def test_pageable_memory_is_slower_than_pinned_and_the_same_both_ways(name, bytes_per_s):
    copies = shipped_calibration(name).copies
    facts = {"size_bytes": 100_000_000, "opposite": False, "at_once": 1}
    ways = [("pageable", "device"), ("device", "pageable"), ("pinned", "device")]
    tasks = pd.DataFrame([{**facts, "source": source, "destination": destination} for source, destination in ways])

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lies outside the fitted range")
        there_s, back_s, pinned_s = copies.predict(tasks).seconds

    assert there_s == back_s == pytest.approx(0.1 * 1e9 / bytes_per_s, rel=0.01)
    assert pinned_s < there_s


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(CalibrationError, match=r"unknown calibration 'b200'; known: a100, "):
        shipped_calibration("b200")
