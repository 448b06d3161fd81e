"""The memory pass: by hand on small plans, and against plain counting on random ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import ANY_SECONDS, costs_of, plans

from stepsim.errors import OutOfMemoryError, PlanError, StepsimError
from stepsim.memory import check_memory, lifetimes, memory_profile, memory_steps
from stepsim.plan.builder import PlanBuilder
from stepsim.simulator import simulate
from stepsim.units import MIB


def two_layers(unit_bytes=1):
    """W of 5 and x of 3 are there from the start; y of 4 and g of 2 come and go; y is copied to the host meanwhile.

    row      0     1     2     3     4      5
    compute  F y         r y         B g    r g
    copies         out         in y'
    gpu      12    12    12→8  12    14→10  10→8
    host     0     4     4     4→0   0      0
    """
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    compute, copies = builder.stream("compute", gpu), builder.stream("copies", gpu, role="d2h")

    def on_gpu(size, name, role="activation", owner=compute):
        return builder.buffer(size * unit_bytes, gpu, owner=owner, name=name, role=role)

    weights, x = on_gpu(5, "W", "parameter", owner=-1), on_gpu(3, "x", "input", owner=-1)
    y, again, g = on_gpu(4, "y"), on_gpu(4, "y'"), on_gpu(2, "g", "gradient")
    h = builder.buffer(4 * unit_bytes, host, name="y on host")
    builder.compute(builder.work("F"), compute, reads=[x, weights], writes=[y], allocates=[y])
    builder.swap_out(y, h, copies)
    builder.release([y], compute)
    builder.swap_in(h, again, copies)
    builder.compute(builder.work("B"), compute, reads=[again, weights], writes=[g], allocates=[g], releases=[again])
    builder.release([g], compute)
    return builder.build()


def by_row(profile, device):
    during, after = profile.by_row(device)
    return during.tolist(), after.tolist()


def test_a_row_holds_what_it_allocates_and_what_it_releases():
    profile = memory_profile(two_layers())

    assert profile.resident.initial.tolist() == [8, 0]
    assert by_row(profile, "gpu0") == ([12, 12, 12, 12, 14, 10], [12, 12, 8, 12, 10, 8])
    assert by_row(profile, "host") == ([0, 4, 4, 4, 0, 0], [0, 4, 4, 0, 0, 0])


def test_only_the_rows_that_change_a_device_are_kept():
    resident = memory_profile(two_layers()).resident

    assert resident.rows.to_lists() == [[0, 2, 3, 4, 5], [1, 3]]


def test_the_peak_is_the_highest_row_of_each_device():
    profile = memory_profile(two_layers())

    assert profile.peaks() == {"gpu0": 14, "host": 4}
    assert (profile.peak_row("gpu0"), profile.peak_row("host")) == (4, 1)


def test_bytes_at_the_peak_are_told_by_role():
    profile = memory_profile(two_layers())

    assert profile.by_role("gpu0", 4) == {"parameter": 5, "input": 3, "activation": 4, "gradient": 2}
    assert profile.by_role("host", 1) == {"activation": 4}


def test_a_buffer_that_no_row_allocates_is_there_from_the_start_and_one_that_none_releases_stays():
    first, last = lifetimes(two_layers())

    assert first.tolist() == [-1, -1, 0, 3, 4, 1]
    assert last.tolist() == [6, 6, 2, 4, 5, 3]


def test_what_is_there_from_the_start_is_the_peak_when_nothing_is_allocated():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    builder.buffer(7, gpu, role="parameter")

    assert memory_profile(builder.build()).peaks() == {"gpu0": 7}


def test_a_row_that_allocates_and_releases_its_workspace_holds_it_while_it_runs():
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    stream = builder.stream("compute", gpu)
    workspace = builder.buffer(9, gpu, owner=stream, role="workspace")
    builder.compute(builder.work("F"), stream, writes=[workspace], allocates=[workspace], releases=[workspace])

    profile = memory_profile(builder.build())

    assert by_row(profile, "gpu0") == ([9], [0])


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_plan_at_its_peak_fits_and_one_byte_below_does_not():
    plan = two_layers()

    check_memory(plan, {"gpu0": 14, "host": 4})

    with pytest.raises(OutOfMemoryError):
        check_memory(plan, {"gpu0": 13})


def test_out_of_memory_names_row_buffer_and_roles():
    plan = two_layers(unit_bytes=MIB)

    with pytest.raises(OutOfMemoryError) as caught:
        check_memory(plan, {"gpu0": 13 * MIB})

    assert str(caught.value) == (
        "out of memory on gpu0: row 4 (B g) allocates buffer 'g' of 2.00 MiB: 14.00 MiB resident "
        "(parameter 5.00 MiB, input 3.00 MiB, activation 4.00 MiB, gradient 2.00 MiB), limit 13.00 MiB"
    )


def test_out_of_memory_names_the_first_row_that_does_not_fit():
    with pytest.raises(OutOfMemoryError, match=r"on gpu0: row 0 \(F y\) allocates buffer 'y' of 4 B: 12 B resident"):
        check_memory(two_layers(), {"gpu0": 8})


def test_the_host_has_a_limit_of_its_own():
    with pytest.raises(OutOfMemoryError, match=r"on host: row 1 \(swap out y on host\) allocates .* limit 3 B$"):
        check_memory(two_layers(), {"gpu0": 14, "host": 3})


def test_what_is_too_much_from_the_start_is_told_so():
    with pytest.raises(OutOfMemoryError) as caught:
        check_memory(two_layers(), {"gpu0": 7})

    assert str(caught.value) == (
        "out of memory on gpu0: before the first task: 8 B resident (parameter 5 B, input 3 B), limit 7 B"
    )


def test_a_device_that_the_plan_does_not_use_is_named():
    with pytest.raises(PlanError, match=r"the plan has no device 'gpu7'; it has \['gpu0', 'host'\]"):
        memory_profile(two_layers()).peak_bytes("gpu7")
    with pytest.raises(PlanError, match="the plan has no device 'gpu7'"):
        check_memory(two_layers(), {"gpu7": 1})


# --- caching accounting ---------------------------------------------------------------------------------------------


def test_with_an_allocator_a_buffer_takes_a_block_and_the_host_its_bytes():
    profile = memory_profile(two_layers(unit_bytes=100), accounting="caching")

    assert profile.buffer_bytes.tolist() == [512, 512, 512, 512, 512, 400]
    assert by_row(profile, "gpu0") == ([1536, 1536, 1536, 1536, 2048, 1536], [1536, 1536, 1024, 1536, 1536, 1024])
    assert by_row(profile, "host") == ([0, 400, 400, 400, 0, 0], [0, 400, 400, 0, 0, 0])
    assert profile.by_role("gpu0", 4) == {"parameter": 512, "input": 512, "activation": 512, "gradient": 512}


def test_buffers_without_an_owner_are_reserved_for_apart_from_those_of_streams():
    """W and x lie in one segment of 2 MiB, what compute owns in another, though both would fit in one."""
    profile = memory_profile(two_layers(), accounting="caching")

    assert profile.reserved.initial.tolist() == [2 * MIB, 0]
    assert profile.peak_reserved_bytes("gpu0") == 4 * MIB
    assert profile.peak_reserved_bytes("host") == profile.peak_bytes("host") == 4


def on_two_streams(release_first):
    """30 MiB on s0, then 30 MiB on s1, which cannot have the block that s0 gave back."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    y, z = builder.buffer(30 * MIB, gpu, owner=s0, name="y"), builder.buffer(30 * MIB, gpu, owner=s1, name="z")
    releases = [y] if release_first else []
    builder.compute(builder.work("F"), s0, writes=[y], allocates=[y], releases=releases)
    builder.compute(builder.work("G"), s1, writes=[z], allocates=[z])
    return builder.build()


def test_each_stream_has_a_cache_of_its_own():
    profile = memory_profile(on_two_streams(release_first=True), accounting="caching")

    assert (profile.peak_bytes("gpu0"), profile.peak_reserved_bytes("gpu0")) == (30 * MIB, 60 * MIB)


def test_under_a_limit_the_cache_of_another_stream_is_given_back():
    plan = on_two_streams(release_first=True)

    profile = check_memory(plan, {"gpu0": 30 * MIB}, accounting="caching")

    assert profile.peak_reserved_bytes("gpu0") == 30 * MIB


def test_out_of_memory_says_what_is_resident_and_what_is_reserved():
    with pytest.raises(OutOfMemoryError) as caught:
        check_memory(on_two_streams(release_first=False), {"gpu0": 59 * MIB}, accounting="caching")

    assert str(caught.value) == (
        "out of memory on gpu0: row 1 (G z) allocates buffer 'z' of 30.00 MiB: 30.00 MiB resident "
        "(activation 30.00 MiB), 30.00 MiB reserved, 0 B of it in free blocks that cannot serve it, limit 59.00 MiB"
    )


def fragments(num_blocks=5):
    """Blocks of 4 MiB fill a segment of 20 MiB; the first and the third go, and 6 MiB are wanted."""
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    stream = builder.stream("compute", gpu)
    blocks = [builder.buffer(4 * MIB, gpu, owner=stream, name=f"y{i}") for i in range(num_blocks)]
    wanted = builder.buffer(6 * MIB, gpu, owner=stream, name="wanted", role="gradient")
    for block in blocks:
        builder.compute(builder.work("F"), stream, writes=[block], allocates=[block])
    builder.release([blocks[0], blocks[2]], stream)
    builder.compute(builder.work("B"), stream, writes=[wanted], allocates=[wanted])
    return builder.build()


def test_fragments_fail_a_plan_whose_bytes_would_fit():
    limit = {"gpu0": 20 * MIB}

    assert check_memory(fragments(), limit).peak_bytes("gpu0") == 20 * MIB

    with pytest.raises(OutOfMemoryError) as caught:
        check_memory(fragments(), limit, accounting="caching")
    assert str(caught.value) == (
        "out of memory on gpu0: row 6 (B wanted) allocates buffer 'wanted' of 6.00 MiB: 12.00 MiB resident "
        "(activation 12.00 MiB), 20.00 MiB reserved, 8.00 MiB of it in free blocks that cannot serve it, "
        "limit 20.00 MiB"
    )


def test_what_finds_no_room_from_the_start_is_told_so():
    with pytest.raises(OutOfMemoryError, match="gpu0: before the first task, buffer 'W' of 5 B: nothing resident"):
        check_memory(two_layers(), {"gpu0": MIB}, accounting="caching")


def test_the_host_is_held_to_its_bytes_whatever_the_accounting():
    with pytest.raises(OutOfMemoryError, match=r"on host: row 1 \(swap out y on host\) allocates .* limit 3 B$"):
        check_memory(two_layers(), {"host": 3}, accounting="caching")


def test_an_unknown_accounting_is_refused():
    with pytest.raises(StepsimError, match=r"accounting must be one of \['exact', 'caching'\], got 'exactly'"):
        memory_profile(two_layers(), accounting="exactly")


@settings(max_examples=50)
@given(st.data())
def test_a_plan_runs_up_to_what_it_reserves_and_blocks_are_never_smaller_than_their_buffers(data):
    plan, _ = data.draw(plans())
    profile = memory_profile(plan, "caching")

    limits = {name: profile.peak_reserved_bytes(name) for name in plan.devices.name}
    again = check_memory(plan, limits, "caching")

    assert (profile.buffer_bytes >= plan.buffers.size_bytes).all()
    for device in plan.devices.name:
        assert np.array_equal(again.by_row(device), profile.by_row(device))
        assert profile.peak_reserved_bytes(device) >= profile.peak_bytes(device)
        for row in range(len(plan)):
            assert sum(profile.by_role(device, row).values()) == profile.by_row(device)[0][row]


# --- many devices ---------------------------------------------------------------------------------------------------


def test_devices_do_not_add_up_and_one_that_the_plan_leaves_alone_stays_at_nothing():
    """Three GPUs in turn, the second idle: what comes and goes on one is not seen on another."""
    builder = PlanBuilder()
    gpus = [builder.device(f"gpu{i}") for i in range(3)]
    streams = [builder.stream("compute", gpu) for gpu in gpus]
    builder.buffer(7, gpus[2], role="parameter")
    for gpu in (2, 0):
        y = builder.buffer(10 + gpu, gpus[gpu], owner=streams[gpu])
        builder.compute(builder.work("F"), streams[gpu], writes=[y], allocates=[y], releases=[y])

    profile = memory_profile(builder.build())

    assert profile.peaks() == {"gpu0": 10, "gpu1": 0, "gpu2": 19}
    assert [by_row(profile, f"gpu{i}") for i in range(3)] == [([0, 10], [0, 0]), ([0, 0], [0, 0]), ([19, 7], [7, 7])]


# --- over time ------------------------------------------------------------------------------------------------------


def steps_of(plan, start_s, end_s):
    """(device, time, bytes) of each step."""
    steps = memory_steps(memory_profile(plan), np.array(start_s, float), np.array(end_s, float))
    columns = (steps.device.tolist(), steps.time_s.tolist(), steps.resident_bytes.tolist())
    return list(zip(*columns, strict=True))


def test_memory_over_time_follows_the_rows():
    """
    compute  F[0,1]               r[3]         B[6,8] r[8]
    copies          out[1,3]           in[3,6]
    """
    steps = steps_of(two_layers(), [0, 1, 3, 3, 6, 8], [1, 3, 3, 6, 8, 8])

    on_gpu = [(0, 8), (0, 12), (3, 8), (3, 12), (6, 14), (8, 10), (8, 8)]
    on_host = [(0, 0), (1, 4), (6, 0)]
    assert steps == [(0, *step) for step in on_gpu] + [(1, *step) for step in on_host]


def test_a_release_is_seen_no_later_than_the_next_row_in_issue_order_which_counts_on_it():
    """The host frees y when it issues the release, though s0 gets there at 9; the row on s1 allocates from 2 on.

    s0       F[0,9] releases y
    s1       G[2,4] allocates z
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    y, z = builder.buffer(6, gpu, owner=s0), builder.buffer(5, gpu, owner=s1)
    builder.compute(builder.work("F"), s0, writes=[y], allocates=[y], releases=[y])
    builder.compute(builder.work("G"), s1, writes=[z], allocates=[z])

    assert steps_of(builder.build(), [0, 2], [9, 4]) == [(0, 0, 0), (0, 0, 6), (0, 2, 0), (0, 2, 5)]


def test_a_row_counts_no_earlier_than_one_that_was_issued_before_it():
    """
    s0       F[5,6] allocates y
    s1       G[0,1] allocates z, issued behind F
    """
    builder = PlanBuilder()
    gpu = builder.device("gpu0")
    s0, s1 = builder.stream("s0", gpu), builder.stream("s1", gpu)
    y, z = builder.buffer(6, gpu, owner=s0), builder.buffer(5, gpu, owner=s1)
    builder.compute(builder.work("F"), s0, writes=[y], allocates=[y])
    builder.compute(builder.work("G"), s1, writes=[z], allocates=[z])

    assert steps_of(builder.build(), [5, 0], [6, 1]) == [(0, 0, 0), (0, 5, 6), (0, 5, 11)]


def test_a_plan_without_rows_or_devices_has_no_steps_but_the_first():
    builder = PlanBuilder()
    assert steps_of(builder.build(), [], []) == []

    builder.buffer(3, builder.device("gpu0"))
    assert steps_of(builder.build(), [], []) == [(0, 0, 3)]


# --- invariant 5, on random plans -----------------------------------------------------------------------------------


def counted(plan):
    """Bytes by device while each row runs and after it, counted one buffer at a time."""
    tasks, sizes, homes = plan.tasks, plan.buffers.size_bytes.tolist(), plan.buffers.device.tolist()
    live = set(range(len(sizes))) - set(tasks.allocates.values.tolist())
    during, after = [], []
    for allocates, releases in zip(tasks.allocates.to_lists(), tasks.releases.to_lists(), strict=True):
        live |= set(allocates)
        during.append(total(live, sizes, homes, len(plan.devices)))
        live -= set(releases)
        after.append(total(live, sizes, homes, len(plan.devices)))
    return during, after


def total(live, sizes, homes, num_devices):
    return [sum(sizes[buffer] for buffer in live if homes[buffer] == device) for device in range(num_devices)]


@settings(max_examples=50)
@given(plans())
def test_5_the_pass_equals_counting_one_buffer_at_a_time(drawn):
    plan, _ = drawn

    profile = memory_profile(plan)

    during, after = counted(plan)
    for device, name in enumerate(plan.devices.name):
        assert by_row(profile, name) == ([row[device] for row in during], [row[device] for row in after])


@settings(max_examples=50)
@given(st.data())
def test_5_steps_over_time_are_the_changes_among_all_rows(data):
    """Each row has a level at its begin and one at its finish; of these, in issue order, the changes are kept."""
    plan, _ = data.draw(plans())
    start_s = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(plan), max_size=len(plan))), float)
    end_s = start_s + data.draw(st.integers(0, 5))
    begin_s = np.maximum.accumulate(start_s)
    finish_s = np.minimum(np.maximum(begin_s, end_s), np.append(begin_s[1:], np.inf))
    profile = memory_profile(plan)

    expected = []
    for index, device in enumerate(plan.devices.name):
        levels = np.column_stack(profile.by_row(device)).ravel().tolist()
        points = zip(np.column_stack([begin_s, finish_s]).ravel().tolist(), levels, strict=True)
        last = int(profile.resident.initial[index])
        expected.append((index, 0.0, last))
        for time_s, level in points:
            if level != last:
                expected.append((index, time_s, level))
            last = level

    assert steps_of(plan, start_s, end_s) == expected


@settings(max_examples=50)
@given(plans())
def test_5_resident_bytes_are_never_negative_and_roles_add_up_to_them(drawn):
    plan, _ = drawn
    profile = memory_profile(plan)

    for device in plan.devices.name:
        during, after = profile.by_row(device)
        assert (after >= 0).all()
        for row in range(len(plan)):
            assert sum(profile.by_role(device, row).values()) == during[row]


@settings(max_examples=50)
@given(plans())
def test_5_memory_returns_to_its_start_but_for_what_stays_and_what_of_the_start_is_released(drawn):
    plan, _ = drawn
    first, last = lifetimes(plan)
    stays, leaves = (first >= 0) & (last == len(plan)), (first < 0) & (last < len(plan))
    profile = memory_profile(plan)

    for device, name in enumerate(plan.devices.name):
        sizes, initial = np.where(plan.buffers.device == device, plan.buffers.size_bytes, 0), profile.resident.initial
        end = profile.by_row(name)[1][-1] if len(plan) else initial[device]
        assert end == initial[device] + sizes[stays].sum() - sizes[leaves].sum()


@settings(max_examples=50)
@given(st.data())
def test_5_a_plan_runs_up_to_its_peak_and_is_refused_a_byte_below(data):
    plan, _ = data.draw(plans())
    peak_bytes = memory_profile(plan).peak_bytes("gpu0")

    assert check_memory(plan, {"gpu0": peak_bytes}).peak_bytes("gpu0") == peak_bytes

    with pytest.raises(OutOfMemoryError):
        check_memory(plan, {"gpu0": peak_bytes - 1})


@settings(max_examples=50)
@given(st.data())
def test_5_the_highest_step_over_time_is_the_peak_and_time_never_runs_back(data):
    plan, machine = data.draw(plans())
    costs = data.draw(costs_of(plan, ANY_SECONDS))

    memory = simulate(plan, machine, costs).memory

    profile = memory_profile(plan)
    for index, device in enumerate(plan.devices.name):
        here = memory.device == index
        assert memory.resident_bytes[here].max() == profile.peak_bytes(device)
        assert memory.resident_bytes[here][0] == profile.resident.initial[index]
        assert (np.diff(memory.time_s[here]) >= 0).all()
        assert (np.diff(memory.resident_bytes[here]) != 0).all()
