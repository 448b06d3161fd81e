"""The tables of traces by hand, then of published ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import collective, copy, event, kernel, on_host, trace_of

from stepsim.traces.detect import read_any
from stepsim.traces.summary import devices, kernels_by_class, moves, steps, streams, summary, unclassed

ADD = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >(int)"


def rows_of(table, *columns):
    return list(table[list(columns)].itertuples(index=False, name=None))


def test_kernels_are_counted_by_class_and_share_the_sum_of_their_times():
    trace = trace_of(kernel(0, 1, ADD), kernel(1, 2), kernel(3, 4), collective(0, 3))

    table = kernels_by_class(trace)

    assert rows_of(table, "class", "count", "total_s", "share", "median_s") == [
        ("matrix product", 2, 6, 0.6, 3),
        ("elementwise", 1, 1, 0.1, 1),
        ("collective", 1, 3, 0.3, 3),
    ]


def test_kernels_that_took_no_time_have_no_share():
    assert kernels_by_class(trace_of(kernel(0, 0)))["share"].tolist() == [0]


def test_names_of_no_class_are_told_the_longest_first():
    trace = trace_of(kernel(0, 1, "mine"), kernel(1, 5, "yours"), kernel(6, 1, "mine"), kernel(7, 9))

    assert rows_of(unclassed(trace), "name", "count", "total_s") == [("yours", 1, 5), ("mine", 2, 2)]


def test_copies_are_told_by_direction_and_by_powers_of_sixteen():
    """All below 4 KiB are one group."""
    out = {"source": "device", "destination": "pinned"}
    trace = trace_of(copy(0, 1, 0), copy(1, 1, 4095), copy(2, 2, 4096), copy(4, 2, 65535), copy(6, 1, 65536, **out))

    table = moves(trace, "copy", ["source", "destination"])

    assert rows_of(table, "source", "smallest_bytes", "largest_bytes", "count", "bytes_per_s") == [
        ("device", 65536, 65536, 1, 65536),
        ("pinned", 0, 4095, 2, 2047.5),
        ("pinned", 4096, 65535, 2, 69631 / 4),
    ]


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=20))
def test_groups_by_size_keep_every_byte_and_do_not_overlap(sizes):
    table = moves(trace_of(*[copy(0, 1, size) for size in sizes]), "copy", ["source"])

    assert table["moved_bytes"].sum() == sum(sizes)
    assert table["count"].sum() == len(sizes)
    assert (table["smallest_bytes"].to_numpy()[1:] > table["largest_bytes"].to_numpy()[:-1]).all()
    assert (
        (table["smallest_bytes"] == table["largest_bytes"])
        | (table["largest_bytes"] < 4096)
        | (table["largest_bytes"] < 16 * table["smallest_bytes"])
    ).all()


def test_a_copy_that_took_no_time_has_no_rate():
    assert moves(trace_of(copy(0, 0, 64)), "copy", ["source"])["bytes_per_s"].tolist() == [0]


def test_columns_that_say_nothing_are_left_out():
    table = moves(trace_of(collective(0, 1, size_bytes=8)), "collective", ["device", "name", "work"])

    assert list(table.columns[:3]) == ["device", "name", "smallest_bytes"]


def test_devices_have_their_names_and_the_share_of_time_in_which_something_ran():
    trace = trace_of(
        kernel(0, 2), copy(1, 3, 8), kernel(8, 2), kernel(0, 1, device="gpu1"), gpu0="P4", **{"gpu0 memory_bytes": "9"}
    )

    assert rows_of(devices(trace), "device", "name", "memory_bytes", "kernels", "copies", "busy_share") == [
        ("gpu0", "P4", 9, 2, 1, 0.6),
        ("gpu1", "", 0, 1, 0, 1),
    ]


@pytest.mark.parametrize("told", ["", "-5", "24 GB", "9" * 5000])
def test_a_memory_that_is_no_number_of_bytes_is_unknown(told):
    assert devices(trace_of(kernel(0, 1), **{"gpu0 memory_bytes": told}))["memory_bytes"].tolist() == [0]


def test_streams_are_of_devices():
    trace = trace_of(kernel(0, 2), event("memset", 3, 1), copy(2, 2, 8, stream=9), kernel(0, 1, device="gpu1"))

    assert rows_of(streams(trace), "device", "stream", "kernel", "copy", "memset", "busy_share") == [
        ("gpu0", 7, 1, 0, 1, 0.75),
        ("gpu0", 9, 0, 1, 0, 0.5),
        ("gpu1", 7, 1, 0, 0, 1),
    ]


def test_steps_tell_what_was_active():
    trace = trace_of(
        on_host("step", 0, 4, name="first"), on_host("step", 4, 8, name="second"), kernel(1, 1), kernel(6, 4)
    )

    assert rows_of(steps(trace), "name", "duration_s", "kernels_share", "idle_share") == [
        ("first", 4, 0.25, 0.75),
        ("second", 8, 0.5, 0.5),
    ]


def test_without_steps_the_whole_trace_is_one():
    assert rows_of(steps(trace_of(kernel(1, 1), kernel(4, 1))), "name", "duration_s") == [("whole trace", 4)]


def test_a_step_that_took_no_time_has_no_shares():
    trace = trace_of(on_host("step", 0, 0, name="empty"), kernel(1, 1))

    assert rows_of(steps(trace), "name", "duration_s") == [("empty", 0)]


def test_a_log_that_does_not_say_when_has_no_tables_about_time():
    trace = trace_of(copy(0, 1, 64), start_s="not recorded: one behind the other")

    assert list(summary(trace)) == ["copies"]


def test_collectives_alone_are_no_kernels_of_classes():
    assert list(summary(trace_of(collective(0, 1), start_s="not recorded"))) == ["collectives"]


def test_an_empty_trace_has_no_tables():
    assert summary(trace_of()) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["kernel", "collective", "copy", "memset", "launch", "sync", "host", "step"]),
            st.floats(0, 100),
            st.floats(0, 10),
            st.sampled_from(["gpu0", "gpu1"]),
            st.integers(1, 3),
            st.integers(0, 2**40),
        ),
        max_size=12,
    )
)
def test_any_trace_can_be_summed_up(events):
    rows = [
        event(kind, start_s, took_s, device=device, stream=lane, correlation=lane, size_bytes=size, name=kind)
        for kind, start_s, took_s, device, lane, size in events
    ]

    tables = summary(trace_of(*rows))

    for table in tables.values():
        assert len(table)
        assert not table.isna().any().any()
        for column in table.columns[[name.endswith("share") for name in table.columns]]:
            assert table[column].between(-1e-9, 1 + 1e-9).all(), column


# --- measured ---------------------------------------------------------------------------------------------------------


def test_a_step_of_a_distributed_job_is_summed_up_as_its_source_says(data_dir):
    """245 kernels on 4 streams, 8 of them of NCCL, that run for 0.261 ms beside others; 16 copies in 4 directions."""
    files = sorted(data_dir.glob("param/dlrm_kineto/worker0_*"))
    if not files:
        pytest.skip(f"no param/dlrm_kineto in {data_dir}")

    tables = summary(read_any(files[0]))

    (device,) = tables["devices"].to_dict(orient="records")
    assert (device["name"], device["kernels"], device["copies"]) == ("Tesla V100-SXM2-32GB", 245, 16)
    assert len(tables["streams"]) == 4
    assert tables["collectives"]["count"].sum() == 8
    hidden_s = tables["overlap"].set_index("kind").loc["collective", "beside_kernels_s"]
    assert hidden_s == pytest.approx(0.261e-3, abs=1e-6)
    ends = tables["copies"].groupby(["source", "destination"])["count"].sum()
    assert ends.to_dict() == {
        ("device", "device"): 1,
        ("device", "pageable"): 2,
        ("pageable", "device"): 8,
        ("pinned", "device"): 5,
    }
