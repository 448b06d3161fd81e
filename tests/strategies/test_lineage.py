"""What recomputing costs, when what a tensor is made from is recomputed as well."""

from dataclasses import replace

from small_networks import CONVOLUTION, RELU, network, without_saving
from small_workloads import chain
from test_accesses import prices

from stepsim.strategies.memory.earlier import live_bytes
from stepsim.strategies.memory.lineage import Lineage
from stepsim.strategies.memory.schedule import Action, forward_only, order
from stepsim.workloads import Workload


def lineage(workload: Workload) -> Lineage:
    return Lineage(workload, prices(workload))


def test_a_target_is_made_from_the_nearest_sources_that_are_there() -> None:
    """x0 x1 x2 are tensors 1 2 3."""
    found = lineage(chain(4))

    assert [found.seconds(tensor) for tensor in (1, 2, 3, 4)] == [1, 1, 1, 1]

    found.choose(2)

    assert found.seconds(3) == 2
    assert found.seconds(4) == 1


def test_a_source_of_targets_counts_once_more_for_each() -> None:
    found = lineage(chain(4))
    found.choose(2)

    assert found.seconds(1) == 2

    found.choose(3)

    assert found.seconds(1) == 3


def test_targets_take_over_the_sources_of_a_source() -> None:
    """x2 is made from x1; once x1 is gone it is made from x0, and so is x1."""
    found = lineage(chain(4))
    found.choose(3)
    found.choose(2)

    assert found.seconds(1) == 3


def test_what_is_gone_after_the_forward_pass_is_made_on_the_way() -> None:
    found = lineage(without_saving(network(CONVOLUTION, RELU, CONVOLUTION), 0))

    assert found.seconds(2) == 2


def test_a_source_that_cannot_be_made_again_is_taken_to_be_there() -> None:
    found = lineage(without_saving(network(CONVOLUTION, RELU, RELU, in_place=frozenset({0})), 0))

    assert found.seconds(2) == 1


def test_an_op_that_makes_two_sources_runs_once() -> None:
    workload = chain(3)
    both = replace(workload.ops[2], inputs=(1, 2))
    found = lineage(replace(workload, ops=(*workload.ops[:2], both, *workload.ops[3:])))
    found.choose(1)
    found.choose(2)

    assert found.seconds(3) == 3


def test_what_nobody_reads_after_the_forward_pass_can_be_gone_until_it_is_made_again() -> None:
    """conv makes x0, which only F1 reads; to make x1 again takes x0. It is there for F1 alone, twice."""
    workload = without_saving(network(CONVOLUTION, RELU, CONVOLUTION), 0)

    assert forward_only(workload) == [1]

    again = {2: Action.RECOMPUTE}
    stays, goes = (order(workload, policy, 0) for policy in (again, again | {1: Action.RECOMPUTE}))

    assert [workload.ops[row.subject].name for row in goes[-3:]] == ["F1", "B1", "B0"]
    assert len(goes) == len(stays) + 1
    assert live_bytes(workload, goes)[3] == live_bytes(workload, stays)[3] - 10


def test_what_writes_in_place_is_not_taken_to_be_gone() -> None:
    assert forward_only(without_saving(network(CONVOLUTION, RELU, in_place=frozenset({0})), 0)) == []
