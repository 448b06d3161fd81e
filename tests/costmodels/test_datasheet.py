from dataclasses import replace

import pytest
from small_machines import gpus, link

from stepsim.costmodels import DataSheetCosts
from stepsim.errors import CalibrationError
from stepsim.machines import Device, DeviceKind, Link, Machine, Route, load_machine
from stepsim.plan import Origin
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate

BANDWIDTH, PEAK = "memory_bandwidth_bytes_per_s", "peak_flop_per_s"


def gpu(name, **numbers):
    given = {"memory_bytes": 10**6, **numbers}
    return Device(name=name, kind=DeviceKind.GPU, sources=dict.fromkeys(given, "test"), **given)


HOST = Device(name="host", kind=DeviceKind.HOST, memory_bytes=10**6, sources={"memory_bytes": "test"})

SLOW = gpu("gpu0", **{BANDWIDTH: 10.0, PEAK: {"float32": 100.0}})
FAST = gpu("gpu1", **{BANDWIDTH: 20.0, PEAK: {"float32": 400.0}})


def two_hops(latency_s=0.25):
    sources = {"latency_s": "test", "bandwidth_bytes_per_s": "test"}
    switch = Link(name="switch", latency_s=latency_s, bandwidth_bytes_per_s=4.0, sources=sources)
    uplink = Link(name="uplink", latency_s=2 * latency_s, bandwidth_bytes_per_s=2.0, sources=sources)
    return Machine(
        name="two GPUs",
        devices=(SLOW, FAST, HOST),
        links=(switch, uplink, link("back")),
        routes=(
            Route(source="gpu0", destination="host", links=("switch", "uplink")),
            Route(source="host", destination="gpu0", links=("back",)),
        ),
    )


def one_row(machine, kind="op", **work):
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    builder.compute(builder.work(kind, **work), stream)
    plan = builder.build()
    return DataSheetCosts().task_costs(plan, machine).seconds_alone(plan, machine).tolist()


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        ({"flop": 1000, "dtype": "float32", "bytes_read": 20, "bytes_written": 10}, 1000 / 100),
        ({"flop": 100, "dtype": "float32", "bytes_read": 20, "bytes_written": 10}, 30 / 10),
        ({"bytes_read": 20, "bytes_written": 10}, 30 / 10),
        ({}, 0.0),
    ],
    ids=["compute bound", "memory bound", "no FLOP", "nothing"],
)
def test_work_takes_the_longer_of_its_flop_and_its_bytes_at_the_peaks(work, seconds):
    assert one_row(two_hops(), **work) == [seconds]


def test_the_same_work_is_priced_for_each_device_that_runs_it():
    builder = PlanBuilder()
    streams = [builder.stream("compute", builder.device(name)) for name in ("gpu0", "gpu1")]
    work = builder.work("matrix", flop=1000, dtype="float32")
    for stream in (*streams, *streams):
        builder.compute(work, stream)
    plan, machine = builder.build(), two_hops()

    costs = DataSheetCosts().task_costs(plan, machine)

    assert costs.seconds_alone(plan, machine).tolist() == [10.0, 2.5, 10.0, 2.5]
    assert len(costs.table) == 2 + 1  # and one for what costs nothing


def test_a_copy_takes_the_latencies_of_its_links_and_its_bytes_on_the_slowest():
    builder = PlanBuilder()
    gpu0, host = builder.device("gpu0"), builder.device("host")
    stream, d2h = builder.stream("compute", gpu0), builder.stream("d2h", gpu0)
    y = builder.buffer(10, gpu0, owner=stream)
    builder.compute(builder.work("F"), stream, writes=[y], allocates=[y])
    builder.swap_out(y, builder.buffer(10, host), d2h)
    plan, machine = builder.build(), two_hops(latency_s=0.25)

    timeline = simulate(plan, machine, DataSheetCosts())

    assert timeline.makespan_s == pytest.approx((0.25 + 0.5) + 10 / 2.0, rel=1e-12)


def test_every_price_says_that_it_is_a_bound_and_that_launches_are_free():
    builder = PlanBuilder()
    builder.compute(builder.work("F", bytes_read=1), builder.stream("compute", builder.device("gpu0")))

    costs = DataSheetCosts().task_costs(builder.build(), two_hops())

    assert set(costs.table.origin.tolist()) == {Origin.ROOFLINE}
    assert not costs.table.launch_s.any()


@pytest.mark.parametrize(
    ("numbers", "work", "problem"),
    [
        ({BANDWIDTH: 10.0}, {"flop": 1, "dtype": "float32"}, "'gpu0' has no peak_flop_per_s for 'float32'"),
        ({BANDWIDTH: 10.0, PEAK: {"float16": 1.0}}, {"flop": 1, "dtype": "int8"}, r"'int8'; it has \['float16'\]"),
        ({PEAK: {"float32": 1.0}}, {"bytes_read": 1}, "'gpu0' has no memory_bandwidth_bytes_per_s"),
    ],
    ids=["no peaks", "no such peak", "no bandwidth"],
)
def test_a_data_sheet_without_the_number_is_refused_by_the_name_of_the_number(numbers, work, problem):
    machine = Machine(name="bare", devices=(gpu("gpu0", **numbers), HOST))

    with pytest.raises(CalibrationError, match=problem):
        one_row(machine, **work)


def test_host_work_of_no_length_is_free_and_other_host_work_is_refused():
    machine, costs = two_hops(), DataSheetCosts()

    def host_row(**work):
        builder = PlanBuilder()
        builder.host(builder.work("update", **work))
        return builder.build()

    assert simulate(host_row(), machine, costs).makespan_s == 0.0
    with pytest.raises(CalibrationError, match="'update' takes on the host"):
        costs.task_costs(host_row(bytes_read=8), machine)


def test_a_collective_takes_its_steps_and_its_bytes_over_the_links_of_its_team():
    builder = PlanBuilder()
    devices = [builder.device(f"gpu{i}") for i in range(4)]
    group = builder.group()
    for device in devices:
        builder.collective(
            "all_reduce", devices, builder.stream("reduce", device), group, size_bytes=400, algorithm="ring"
        )
    plan, machine = builder.build(), gpus(4, bandwidth_bytes_per_s=100.0)
    machine = replace(machine, links=tuple(replace(link, latency_s=0.25) for link in machine.links))

    alone_s = DataSheetCosts().task_costs(plan, machine).seconds_alone(plan, machine)

    assert alone_s.tolist() == [6 * 0.25 + 2 * 3 / 4 * 400 / 100.0] * 4


def test_a_copy_within_a_device_reads_and_writes_its_memory():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    source, target = (builder.buffer(1550, gpu) for _ in range(2))
    builder.copy(source, target, builder.stream("copy", gpu))
    plan, machine = builder.build(), load_machine("dgx_a100")

    alone_s = DataSheetCosts().task_costs(plan, machine).seconds_alone(plan, machine)

    assert alone_s[0] == pytest.approx(2 * 1550 / machine.device("gpu0").memory_bandwidth_bytes_per_s)
