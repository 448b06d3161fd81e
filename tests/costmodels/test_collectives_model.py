import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.costmodels.alpha_beta import AlphaBeta
from stepsim.costmodels.collectives import CollectiveTable
from stepsim.errors import CalibrationError

pytestmark = pytest.mark.filterwarnings("ignore:.*lies outside the fitted range")

SIZES = [4**k for k in range(5, 14)]


def compact():
    return CollectiveTable(compact=True)


TABLES = pytest.mark.parametrize("new", [CollectiveTable, compact])
MODELS = pytest.mark.parametrize("new", [CollectiveTable, compact, AlphaBeta])


def samples(seconds_of, groups, collective="all_reduce", sizes=SIZES):
    """``groups`` are pairs of ranks and nodes; ``seconds_of`` takes ranks, nodes and size."""
    return pd.DataFrame(
        [
            {"collective": collective, "ranks": n, "nodes": m, "size_bytes": size, "seconds": seconds_of(n, m, size)}
            for n, m in groups
            for size in sizes
        ]
    )


def ring_s(ranks, nodes, size_bytes):
    """2 (n - 1) steps of 3 us, and 2 (n - 1) / n S bytes at 100 GB/s."""
    return 2 * (ranks - 1) * 3e-6 + 2 * (ranks - 1) / ranks * size_bytes / 1e11


def hierarchical_s(ranks, nodes, size_bytes):
    """Within nodes 3 us a step and 100 GB/s; across 10 us and 10 GB/s, for a share of the bytes."""
    local = ranks // nodes
    within = ring_s(local, 1, size_bytes)
    across = 2 * (nodes - 1) * 1e-5 + 2 * (nodes - 1) / nodes * size_bytes / local / 1e10
    return within + across


def seconds(model, ranks, size_bytes, nodes=1, collective="all_reduce"):
    task = {"collective": collective, "ranks": ranks, "nodes": nodes, "size_bytes": size_bytes}
    return model.predict(pd.DataFrame([task])).seconds[0]


@MODELS
def test_measured_groups_and_sizes_take_what_was_measured(new):
    measured = samples(ring_s, [(2, 1), (8, 1)])

    assert new().fit(measured).predict(measured).seconds == pytest.approx(measured["seconds"].to_numpy(), rel=1e-3)


@MODELS
def test_a_collective_that_was_not_measured_is_unknown(new):
    model = new().fit(samples(ring_s, [(2, 1), (8, 1)]))

    assert math.isnan(seconds(model, 2, 4096, collective="broadcast"))
    assert math.isnan(seconds(model, 16, 4096, nodes=2))


@TABLES
def test_the_array_of_an_all_gather_is_what_all_members_contribute(new):
    """Times depend on n S alone here, so that S of 4 members and 2 S of 2 take as long."""
    truth = samples(lambda n, _, size: 1e-5 + n * size / 1e10, [(2, 1), (4, 1)], collective="all_gather")

    model = new().fit(truth)

    array = [seconds(model, ranks, 2**20 // ranks, collective="all_gather") for ranks in (2, 4)]
    assert array == pytest.approx([1e-5 + 2**20 / 1e10] * 2, rel=0.02)


@settings(max_examples=15)
@given(
    st.lists(st.floats(1e-6, 1.0), min_size=8, max_size=8, unique=True),
    st.lists(st.integers(1, 2**40), min_size=2, max_size=10),
)
@MODELS
def test_more_bytes_never_take_less_whatever_was_measured(new, measured_s, sizes):
    groups, four = [(2, 1), (8, 1)], SIZES[:4]
    model = new().fit(samples(lambda n, _, size: measured_s[four.index(size) + 4 * (n == 8)], groups, sizes=four))

    for ranks in (2, 4, 8):
        tasks = {"collective": "all_reduce", "ranks": ranks, "nodes": 1, "size_bytes": sorted(sizes)}
        predicted = model.predict(pd.DataFrame(tasks)).seconds
        assert (predicted[1:] >= predicted[:-1] * (1 - 1e-9)).all()


def test_between_two_groups_time_goes_as_a_power_of_the_ranks():
    """From 2 to 8 ranks time grows fourfold, so that 4 ranks take twice as long as 2."""
    model = CollectiveTable().fit(samples(lambda n, _, size: n * (1e-6 + size / 1e9), [(2, 1), (8, 1)]))

    assert seconds(model, 4, 4**6) == pytest.approx(2 * seconds(model, 2, 4**6), rel=1e-12)


def test_the_table_knows_no_group_larger_than_the_largest():
    model = CollectiveTable().fit(samples(ring_s, [(2, 1), (8, 1)]))

    assert math.isnan(seconds(model, 16, 4096))


def test_groups_on_other_numbers_of_nodes_are_no_neighbours():
    model = CollectiveTable().fit(samples(ring_s, [(2, 1), (8, 2)]))

    assert math.isnan(seconds(model, 4, 4096))


def test_the_error_of_a_group_is_that_of_the_one_between_two_others():
    """Powers of the ranks are guessed exactly; where the middle group is twice as slow, the guess is half of it."""
    even = samples(lambda n, _, size: n * (1e-6 + size / 1e9), [(2, 1), (4, 1), (8, 1)])
    slow = even.assign(seconds=even["seconds"] * np.where(even["ranks"] == 4, 2.0, 1.0))

    assert CollectiveTable().fit(even).group_error_ == pytest.approx(0.0, abs=1e-9)
    assert CollectiveTable().fit(slow).group_error_ == pytest.approx(0.5, rel=1e-9)
    assert CollectiveTable().fit(even[even["ranks"] != 4]).group_error_ is None


def test_a_group_of_one_size_is_refused_by_name():
    spoilt = samples(ring_s, [(2, 1), (8, 1)]).iloc[: len(SIZES) + 1]

    with pytest.raises(CalibrationError, match="all_reduce of 8 ranks on 1 nodes: transfers: size_bytes must have"):
        CollectiveTable().fit(spoilt)


def test_alpha_and_beta_of_an_all_gather_count_what_all_members_contribute():
    """n - 1 steps of 3 us, and S over each edge of the ring in each of them."""

    def gather_s(ranks, nodes, size_bytes):
        return (ranks - 1) * (3e-6 + size_bytes / 1e11)

    model = AlphaBeta().fit(samples(gather_s, [(2, 1), (8, 1)], collective="all_gather"))

    assert seconds(model, 4, 10**6, collective="all_gather") == pytest.approx(gather_s(4, 1, 10**6), rel=0.01)


@pytest.mark.parametrize("ranks", [3, 4, 6, 16, 64])
def test_alpha_and_beta_of_a_ring_price_groups_that_nobody_measured(ranks):
    model = AlphaBeta().fit(samples(ring_s, [(2, 1), (8, 1)]))

    assert model.fits_["all_reduce"].algorithm == "ring"
    assert seconds(model, ranks, 10**6) == pytest.approx(ring_s(ranks, 1, 10**6), rel=0.01)


def test_a_tree_is_told_from_a_ring_by_its_logarithmic_latency():
    """2 log2 n steps of 3 us."""

    def tree_s(ranks, nodes, size_bytes):
        return 2 * math.log2(ranks) * 3e-6 + 2 * (ranks - 1) / ranks * size_bytes / 1e11

    model = AlphaBeta().fit(samples(tree_s, [(2**k, 1) for k in range(1, 7)]))

    assert model.fits_["all_reduce"].algorithm == "tree"
    assert seconds(model, 128, 1024) == pytest.approx(tree_s(128, 1, 1024), rel=0.01)


def test_alpha_and_beta_within_and_across_nodes_price_a_larger_cluster():
    groups = [(4, 1), (8, 1), (8, 2), (16, 2), (32, 4)]

    model = AlphaBeta().fit(samples(hierarchical_s, groups))

    assert model.fits_["all_reduce"].algorithm == "hierarchical"
    assert seconds(model, 64, 10**7, nodes=8) == pytest.approx(hierarchical_s(64, 8, 10**7), rel=0.02)


@given(times=st.floats(1.0, 100.0), ranks=st.integers(2, 512), size=st.integers(1, 2**40))
def test_links_of_more_bandwidth_never_make_a_collective_longer(times, ranks, size):
    body = RING.as_json()
    for regime in body["all_reduce"]["regimes"]:
        regime["s_per_byte"] /= times

    assert seconds(AlphaBeta.from_json(body), ranks, size) <= seconds(RING, ranks, size)


RING = AlphaBeta().fit(samples(ring_s, [(2, 1), (8, 1)]))


def test_the_fit_of_one_collective_tells_its_errors_and_ranges():
    model = AlphaBeta().fit(samples(ring_s, [(2, 1), (4, 1), (8, 1)]))

    fit = model.fits_["all_reduce"]

    assert fit.error == pytest.approx(0.0, abs=0.01)
    assert fit.left_out_error == pytest.approx(0.0, abs=0.01)
    assert (fit.ranks, fit.nodes, fit.array_bytes) == ((2, 8), (1, 1), (SIZES[0], SIZES[-1]))
