from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stepsim.costmodels.kernels import UnseenGpuRegression, with_device
from stepsim.costmodels.kernels.features import LAUNCH_S, portable_features, roofline_s
from stepsim.costmodels.kernels.generation import UNKNOWN, generation
from stepsim.costmodels.kernels.trees import Boosting
from stepsim.errors import CalibrationError, NotFittedError
from stepsim.machines import DeviceKind, load_machine, shipped_machines

FEW_TREES = Boosting(trees=40, depth=3, rate=0.2)
P4, P100, V100, T4 = (load_machine(name).devices[0] for name in ("p4", "p100_pcie_4", "v100_pcie", "t4"))
STRONG_V100 = replace(V100, power_w=1e6)


def products(device, free=2.0, seed=0, count=200, op_class="bmm", flop_per_joule=np.inf, largest=1024):
    """Products whose free part is ``free`` times what the data sheet says, joined with what the power gives.

    Up to 1024 none computes for 1 ms, and no power is told from them.
    """
    m, n, k = np.random.default_rng(seed).integers(128, largest, (3, count))
    rows = pd.DataFrame({"op_class": op_class, "dtype": "float32", "batch": 1, "m": m, "n": n, "k": k})
    rows = rows.assign(kernel_area=1, stride=1, flop=2.0 * m * n * k, size_bytes=4.0 * (m * k + n * k + m * n))
    rows = with_device(rows, device).assign(gpu=device.model)
    power_s = rows["flop"] / flop_per_joule / rows["power_w"]
    return rows.assign(seconds=np.hypot(free * (roofline_s(rows) + LAUNCH_S), power_s))


def off(model, tasks):
    """Median of predicted over measured."""
    return float(np.median(model.predict(tasks).seconds / tasks["seconds"]))


def test_gpus_at_half_the_roofline_teach_that_an_unseen_one_is_too():
    seen = pd.concat([products(P4), products(P100, seed=1)])

    model = UnseenGpuRegression(FEW_TREES).fit(seen)

    assert off(model, products(V100, seed=2)) == pytest.approx(1, rel=0.05)


def test_power_and_what_a_kernel_takes_without_that_bound_are_learnt_apart_from_different_gpus():
    """A starved board shows only the FLOP per joule, one of ample power only the free part, twice the roofline.

    Asked is about one whose power gives its peak: sqrt(2 ** 2 + 1 ** 2) times the roofline, and about an ample one.
    """
    kernels = {"flop_per_joule": 50e9, "largest": 8192}
    starved = products(replace(V100, power_w=20.0), **kernels).assign(gpu="starved")
    seen = pd.concat([starved, products(STRONG_V100, **kernels, seed=1)])

    model = UnseenGpuRegression(FEW_TREES).fit(seen)

    even = products(replace(T4, power_w=8.1e12 / 50e9), **kernels, seed=2)
    assert np.median(even["seconds"] / roofline_s(even)) == pytest.approx(5**0.5, rel=0.05)
    assert off(model, even) == pytest.approx(1, rel=0.1)
    assert off(model, products(replace(T4, power_w=1e6), **kernels, seed=2)) == pytest.approx(1, rel=0.1)
    assert off(model, products(replace(T4, power_w=20.0), **kernels, seed=2)) == pytest.approx(1, rel=0.1)


def test_of_a_linear_layer_the_generation_and_the_products_of_all_speak_and_their_geometric_mean_counts():
    """Pascal's linear layers take 8 times the roofline, all batched products twice: 4 times on another Pascal."""
    linear = [products(P100, free=8.0, op_class="linear"), products(T4, free=2.0, op_class="linear")]
    seen = pd.concat([*linear, products(P100), products(T4)])
    model = UnseenGpuRegression(FEW_TREES).fit(seen)

    pascal, volta = (products(device, free=1.0, op_class="linear") for device in (P4, V100))

    assert off(model, pascal) == pytest.approx(4, rel=0.15)
    assert off(model, volta) == pytest.approx(2, rel=0.15)
    assert off(model, pascal.assign(generation=UNKNOWN)) == pytest.approx(2, rel=0.15)


def test_without_batched_products_linear_layers_of_all_speak():
    seen = pd.concat([products(gpu, free=3.0, op_class="linear") for gpu in (P100, T4)])

    model = UnseenGpuRegression(FEW_TREES).fit(seen)

    assert off(model, products(V100, free=3.0, op_class="linear")) == pytest.approx(1, rel=0.05)


def test_of_a_class_that_was_never_timed_nothing_is_said_and_nothing_is_in_range():
    model = UnseenGpuRegression(FEW_TREES).fit(pd.concat([products(P4), products(V100)]))

    said = model.predict(pd.concat([products(T4, count=3), products(T4, count=2, op_class="conv")]))

    assert np.isnan(said.seconds).tolist() == [False] * 3 + [True] * 2
    assert not said.in_range.any()


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        (products(V100), "at least 2 others, got 1"),
        (products(V100).assign(seconds=-1.0), "seconds must be > 0"),
        (products(V100).head(0), "needs samples"),
    ],
    ids=["one GPU", "negative", "none"],
)
def test_samples_that_teach_nothing_of_other_gpus_are_refused(samples, told):
    with pytest.raises(CalibrationError, match=told):
        UnseenGpuRegression(FEW_TREES).fit(samples)


def test_it_cannot_predict_before_it_is_fitted():
    with pytest.raises(NotFittedError):
        UnseenGpuRegression().predict(products(T4))


def test_portable_features_are_equal_on_a_gpu_that_is_twice_as_large_for_a_kernel_of_twice_the_tiles():
    """Twice the rows, SMs, rates and power."""
    double = {name: 2 * getattr(V100, name) for name in ("memory_bandwidth_bytes_per_s", "num_sms", "power_w")}
    twice = replace(V100, peak_flop_per_s={"float32": 2 * V100.peak_flop_per_s["float32"]}, **double)
    one, two = (products(device).head(1).assign(m=m, n=512, k=512) for device, m in ((V100, 4096), (twice, 8192)))
    one, two = (rows.assign(flop=2.0 * rows["m"] * 512**2, size_bytes=4096.0 * rows["m"]) for rows in (one, two))

    first, second = (portable_features(rows, 5e10)[0] for rows in (one, two))

    without_unit = slice(11, 35)  # after batch, m, n, k and their sums, before what depends on the last digits of sizes
    assert first[without_unit] == pytest.approx(second[without_unit])
    assert not np.allclose(first[:11], second[:11])


@pytest.mark.parametrize("name", shipped_machines())
def test_the_generation_of_every_gpu_that_ships_is_known(name):
    gpus = [device for device in load_machine(name).devices if device.kind is DeviceKind.GPU]

    assert all(generation(gpu) != UNKNOWN for gpu in gpus)


def test_the_generation_is_that_of_the_name():
    assert [generation(gpu) for gpu in (P4, P100, V100, T4)] == [6, 6, 7, 7]
    assert generation(replace(P4, model="")) == UNKNOWN
