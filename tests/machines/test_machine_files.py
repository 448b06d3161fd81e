"""Machine files: what survives one, and how a wrong one is refused."""

import pytest
from small_machines import cpu, gpus

from stepsim.errors import FileError, MachineError
from stepsim.machines import DeviceKind, load_machine, save_machine, shipped_machines, this_cpu

GOOD = """
name = "one gpu"

[[devices]]
name = "gpu0"
kind = "gpu"
memory_bytes = 1000
num_sms = 80
[devices.peak_flop_per_s]
float32 = 14e12
[devices.sources]
memory_bytes = "data sheet"
num_sms = "data sheet"
peak_flop_per_s = "data sheet"

[[devices]]
name = "host"
kind = "host"
memory_bytes = 2000
sources = { memory_bytes = "assumed" }

[[links]]
name = "bus"
latency_s = 0
bandwidth_bytes_per_s = 12.4e9
sources = { latency_s = "a log", bandwidth_bytes_per_s = "the same log" }

[[routes]]
source = "gpu0"
destination = "host"
links = ["bus"]
"""


def written(tmp_path, text):
    path = tmp_path / "machine.toml"
    path.write_text(text)
    return path


def test_a_file_written_by_a_person_becomes_a_machine(tmp_path):
    machine = load_machine(written(tmp_path, GOOD))

    assert machine.device("gpu0").peak_flop_per_s == {"float32": 14e12}
    assert machine.device("host").kind is DeviceKind.HOST
    assert machine.route("gpu0", "host")[0].sources["latency_s"] == "a log"


@pytest.mark.parametrize("machine", [gpus(2, copy_engines=2), cpu(), this_cpu()], ids=["gpus", "cpu", "this cpu"])
def test_a_machine_survives_its_file(tmp_path, machine):
    save_machine(machine, tmp_path / "machine.toml")

    assert load_machine(tmp_path / "machine.toml") == machine


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory_bytes = 1000", "", "devices.0.memory_bytes: field required"),
        (
            "memory_bytes = 1000",
            'memory_bytes = "32 GB"',
            "devices.0.memory_bytes: input should be a valid integer, got '32 GB'",
        ),
        (
            "memory_bytes = 1000",
            "memory_bytes = 34e9",
            "devices.0.memory_bytes: input should be a valid integer, got 34000000000.0",
        ),
        ("memory_bytes = 1000", "memory_bytes = -1", "machine: device 'gpu0': memory_bytes must be > 0, got -1"),
        (
            'kind = "gpu"',
            'kind = "tpu"',
            "devices.0.kind: input should be 'gpu', 'cpu', 'host' or 'network', got 'tpu'",
        ),
        ("num_sms = 80", "sms = 80", "devices.0.sms: extra inputs are not permitted, got 80"),
        ('num_sms = "data sheet"', "", "machine: device 'gpu0': num_sms needs a source"),
        ('num_sms = "data sheet"', 'num_sms = ""', "machine: device 'gpu0': num_sms needs a source"),
        (
            'latency_s = "a log", ',
            "",
            "machine: link 'bus': latency_s needs a source",
        ),
        ("latency_s = 0\n", "latency_s = inf\n", "machine: link 'bus': latency_s must be >= 0, got inf"),
        (
            "bandwidth_bytes_per_s = 12.4e9",
            'bandwidth_bytes_per_s = "fast"',
            "links.0.bandwidth_bytes_per_s: input should be a valid number, got 'fast'",
        ),
        (
            'links = ["bus"]',
            'links = ["nvlink"]',
            "machine: machine 'one gpu' has no link 'nvlink'; it has ['bus']",
        ),
        ("float32 = 14e12", "float32 = 0.0", "machine: device 'gpu0': peak_flop_per_s.float32 must be > 0, got 0.0"),
        ('name = "one gpu"', "", "name: field required"),
    ],
)
def test_a_fault_is_told_in_one_line_with_file_field_and_value(tmp_path, old, new, message):
    assert GOOD.count(old) == 1
    path = written(tmp_path, GOOD.replace(old, new))

    with pytest.raises(FileError) as caught:
        load_machine(path)

    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["name = ", "[[devices]", "\x00", '{"name": "json"}'])
def test_a_file_that_is_not_toml_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(FileError) as caught:
        load_machine(written(tmp_path, text))

    assert "file: is not TOML: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "machine.toml"
    path.write_bytes(b"name = '\xff'")

    with pytest.raises(FileError, match="file: is not TOML: "):
        load_machine(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"nowhere\.toml: file: cannot be read: No such file or directory"):
        load_machine(tmp_path / "nowhere.toml")


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(MachineError) as caught:
        load_machine("v1000")

    known = ", ".join((*shipped_machines(), "this_cpu"))
    assert str(caught.value) == f"unknown machine 'v1000'; known: {known}, or a path to a .toml file"


@pytest.mark.parametrize("name", ["../machines/v100_pcie", "", "v100_pcie.json"])
def test_a_name_is_a_name_and_no_path(name):
    with pytest.raises(MachineError, match="unknown machine"):
        load_machine(name)


def test_this_cpu_is_a_machine_with_a_host_to_swap_to():
    machine = load_machine("this_cpu")

    assert [device.kind for device in machine.devices] == [DeviceKind.CPU, DeviceKind.HOST]
    assert machine.device("cpu0").model
    assert machine.route("cpu0", "host")
