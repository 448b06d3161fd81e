import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepsim.costmodels.distinct import distinct
from stepsim.plan.builder import PlanBuilder


def copies(*facts):
    """Rows of (size, holds its thread) from the device to the host, all behind the work that makes what they copy."""
    builder = PlanBuilder()
    gpu, host = builder.device("gpu0"), builder.device("host")
    stream = builder.stream("d2h", gpu)
    for size_bytes, blocks in facts:
        y = builder.buffer(size_bytes, gpu, owner=stream)
        builder.compute(builder.work("F"), stream, writes=[y], allocates=[y])
        builder.copy(y, builder.buffer(size_bytes, host), stream, blocks_thread=blocks)
    return builder.build()


def test_moves_differ_by_size_and_by_whether_they_hold_their_thread_and_come_in_plan_order():
    found = distinct(copies((7, False), (3, False), (7, True), (7, False), (3, False)))

    assert found.moves[:, 1:].tolist() == [[7, 0], [3, 0], [7, 1]]
    assert found.index[1::2].tolist() == [len(found.works) + place for place in (0, 1, 2, 0, 1)]


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=12))
def test_the_row_of_each_copy_holds_its_own_facts_and_no_row_is_there_twice(facts):
    found = distinct(copies(*facts))

    rows = found.moves[found.index[1::2] - len(found.works), 1:]
    assert rows.tolist() == [[size_bytes, int(blocks)] for size_bytes, blocks in facts]
    assert len(np.unique(found.moves, axis=0)) == len(found.moves)
