import pytest

from stepsim.costmodels.board_power import comparable_power_w
from stepsim.machines import DeviceKind, load_machine, shipped_machines


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
