"""PyTorch's caching allocator: each published rule by hand, then all of them against a slow one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_allocator import SlowAllocator

from stepsim.memory.allocator import CachingAllocator, no_blocks
from stepsim.memory.allocator_rules import UNLIMITED
from stepsim.units import KIB, MIB


class Served:
    """Requests (bytes, or bytes and stream) and frees (``free(request)``), served in order."""

    def __init__(self, *script, limit_bytes=UNLIMITED):
        asked = [entry for entry in script if not isinstance(entry, free)]
        asked = [entry if isinstance(entry, tuple) else (entry, 0) for entry in asked]
        numbers = iter(range(len(asked)))
        request = [entry.request if isinstance(entry, free) else next(numbers) for entry in script]
        self.size_bytes = np.array([size for size, _ in asked], np.int64)
        self.held, self.levels = no_blocks(len(asked)), np.zeros((len(script), 2), np.int64)
        allocator = CachingAllocator(len(asked), limit_bytes=limit_bytes)
        self.num_served = allocator.serve(
            np.array(request, np.int32),
            np.array([isinstance(entry, free) for entry in script], np.bool_),
            self.size_bytes,
            np.array([stream for _, stream in asked], np.int32),
            self.held,
            self.levels,
        )
        self.blocks = allocator.blocks()
        self.address, self.block_bytes = self.held["address"].tolist(), self.held["size"].tolist()

    @property
    def allocated(self):
        return self.levels[:, 0].tolist()

    @property
    def reserved(self):
        return self.levels[:, 1].tolist()


class free:
    def __init__(self, request):
        self.request = request


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_a_request_is_rounded_up_to_512_bytes():
    assert Served(1, 512, 513).block_bytes == [512, 512, 1024]


def test_nothing_takes_no_block_and_may_be_given_back():
    assert Served(0, free(0)).levels.tolist() == [[0, 0], [0, 0]]


def test_small_requests_share_a_segment_of_2_mib():
    served = Served(MIB, MIB, 1)

    assert served.reserved == [2 * MIB, 2 * MIB, 4 * MIB]
    assert served.address == [0, MIB, 2 * MIB]


def test_requests_above_1_mib_share_a_segment_of_20_mib():
    served = Served(8 * MIB, 8 * MIB, 4 * MIB, MIB + 1)

    assert served.reserved == [20 * MIB, 20 * MIB, 20 * MIB, 40 * MIB]
    assert served.address == [0, 8 * MIB, 16 * MIB, 20 * MIB]


def test_requests_from_10_mib_on_get_a_segment_of_their_own_in_steps_of_2_mib():
    assert Served(10 * MIB, 10 * MIB + 1, 10 * MIB - 512).reserved == [10 * MIB, 22 * MIB, 42 * MIB]


def test_a_rest_of_up_to_1_mib_stays_with_a_large_block():
    assert Served(11 * MIB).block_bytes == [12 * MIB]
    assert Served(11 * MIB - 512).block_bytes == [11 * MIB - 512]


def test_any_rest_is_cut_from_a_small_block():
    assert Served(MIB - 512, MIB, 512).address == [0, MIB - 512, 2 * MIB - 512]


# --- which block ----------------------------------------------------------------------------------------------------


def test_the_smallest_block_that_fits_is_taken_even_behind_others():
    served = Served(6 * MIB, 2 * MIB, 4 * MIB, 8 * MIB, free(0), free(2), 4 * MIB)

    assert served.address[-1] == 8 * MIB


def test_of_equal_blocks_the_lowest_is_taken():
    served = Served(4 * MIB, 4 * MIB, 4 * MIB, 8 * MIB, free(2), free(0), 4 * MIB)

    assert served.address[-1] == 0


def test_small_requests_do_not_take_from_large_blocks():
    assert Served(20 * MIB, free(0), 512).reserved == [20 * MIB, 20 * MIB, 22 * MIB]


def test_a_stream_does_not_take_what_another_has_freed():
    served = Served((20 * MIB, 0), free(0), (20 * MIB, 1), (20 * MIB, 0))

    assert served.reserved == [20 * MIB, 20 * MIB, 40 * MIB, 40 * MIB]
    assert served.address == [0, 20 * MIB, 0]


def test_free_neighbours_on_both_sides_become_one_block():
    served = Served(4 * MIB, 4 * MIB, 4 * MIB, 8 * MIB, free(0), free(2), free(1), 12 * MIB)

    assert served.address[-1] == 0
    assert served.reserved[-1] == 20 * MIB


# --- limits ---------------------------------------------------------------------------------------------------------


def test_free_segments_of_all_streams_go_back_before_the_driver_refuses():
    served = Served((20 * MIB, 0), (512, 0), free(0), (40 * MIB, 1), limit_bytes=42 * MIB)

    assert served.num_served == 4
    assert served.reserved == [20 * MIB, 22 * MIB, 22 * MIB, 42 * MIB]


def test_segments_that_are_in_use_in_part_do_not_go_back():
    served = Served(8 * MIB, 8 * MIB, free(0), 20 * MIB, limit_bytes=39 * MIB)

    assert served.num_served == 3
    assert served.levels[3].tolist() == [8 * MIB, 20 * MIB]


def test_fragments_fail_a_request_though_enough_bytes_are_free():
    """Five blocks of 4 MiB fill one segment: two that are not neighbours leave 8 MiB free, and 6 MiB find no place."""
    apart, together = ((0, 2), (0, 1))

    def asked_after_freeing(*requests):
        script = (*[4 * MIB] * 5, *(free(request) for request in requests), 6 * MIB)
        return Served(*script, limit_bytes=20 * MIB)

    assert asked_after_freeing(*apart).num_served == 7
    assert asked_after_freeing(*apart).levels[7].tolist() == [12 * MIB, 20 * MIB]
    assert asked_after_freeing(*together).num_served == 8


# --- all rules together ---------------------------------------------------------------------------------------------

SIZES = st.sampled_from((0, 1, 512, 100 * KIB, MIB - 512, MIB, MIB + 1, 3 * MIB, 9 * MIB, 10 * MIB, 11 * MIB, 31 * MIB))
LIMITS = st.sampled_from((30 * MIB, 100 * MIB, UNLIMITED))


@st.composite
def scripts(draw):
    """Requests on two streams, and frees of what is live."""
    script, live, asked = [], [], 0
    for _ in range(draw(st.integers(1, 60))):
        if live and draw(st.booleans()):
            script.append(free(live.pop(draw(st.integers(0, len(live) - 1)))))
        else:
            script.append((draw(SIZES), draw(st.integers(0, 1))))
            live.append(asked)
            asked += 1
    return script


def slowly(script, limit_bytes):
    """Address and bytes of each block, and both levels after each event, as far as there is room."""
    allocator, blocks, handed_out, levels = SlowAllocator(limit_bytes), [], [], []
    for entry in script:
        if isinstance(entry, free):
            if blocks[entry.request]:
                allocator.give_back(blocks[entry.request])
        else:
            size, stream = entry
            blocks.append(allocator.allocate(size, stream) if size else [])
            if blocks[-1] is None:
                break
            handed_out.append(tuple(blocks[-1][:2]) or (0, 0))
        levels.append([allocator.allocated, allocator.reserved])
    return handed_out, levels


@settings(max_examples=300)
@given(scripts(), LIMITS)
def test_the_allocator_does_what_a_slow_one_does(script, limit_bytes):
    handed_out, levels = slowly(script, limit_bytes)

    served = Served(*script, limit_bytes=limit_bytes)

    assert served.num_served == len(levels)
    assert served.levels[: len(levels)].tolist() == levels
    assert list(zip(served.address, served.block_bytes, strict=True))[: len(handed_out)] == handed_out


@settings(max_examples=100)
@given(scripts())
def test_blocks_fill_their_segments_and_no_two_neighbours_are_free(script):
    served = Served(*script)

    blocks = served.blocks
    same = blocks.segment[1:] == blocks.segment[:-1]
    assert (blocks.address[1:][same] == (blocks.address + blocks.size_bytes)[:-1][same]).all()
    assert not (blocks.free[1:] & blocks.free[:-1] & same).any()
    assert blocks.size_bytes.sum() == served.reserved[-1]
    assert blocks.size_bytes[~blocks.free].sum() == served.allocated[-1]
