"""What a policy turns into: which rows, in which order, holding how much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_machines import gpus
from small_workloads import chain

from stepsim.errors import WorkloadError
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.schedule import (
    Action,
    can_recompute,
    candidates,
    resident_bytes,
    schedule,
)
from stepsim.workloads import Workload

UNLIMITED = 10**9


def rows_of(workload: Workload, policy: dict[int, Action], memory_bytes: int = UNLIMITED) -> list[str]:
    """Rows as ``F0``, ``F0'`` (again), ``out x0``, ``in x0``, ``free x0``."""
    names = []
    for row in schedule(workload, policy, memory_bytes)[:-1]:
        op = workload.ops[row.subject].name if row.kind in (TaskKind.COMPUTE, TaskKind.RECOMPUTE) else ""
        moved = workload.tensors[row.subject].name if row.subject < len(workload.tensors) else ""
        match row.kind:
            case TaskKind.COMPUTE:
                names.append(op)
            case TaskKind.RECOMPUTE:
                names.append(f"{op}'")
            case TaskKind.SWAP_OUT:
                names.append(f"out {moved}")
            case TaskKind.SWAP_IN:
                names.append(f"in {moved}")
            case _:
                names.append(f"free {moved}")
    return names


def test_the_empty_policy_runs_the_ops_and_nothing_else():
    assert rows_of(chain(3), {}) == ["F0", "F1", "F2", "L", "B2", "B1", "B0"]


def test_a_swapped_tensor_leaves_after_its_last_forward_reader_and_comes_back_one_op_ahead():
    """It is given back when it is swapped in, for want of an earlier need."""
    rows = rows_of(chain(3), {1: Action.SWAP})

    assert rows == ["F0", "F1", "out x0", "F2", "L", "B2", "free x0", "in x0", "B1", "B0"]


def test_a_recomputed_tensor_is_made_again_from_what_is_kept():
    rows = rows_of(chain(3), {2: Action.RECOMPUTE})

    assert rows == ["F0", "F1", "F2", "L", "B2", "F1'", "B1", "B0"]


def test_recomputing_revives_what_its_op_reads_and_leaves_it_for_later_readers():
    rows = rows_of(chain(3), {1: Action.RECOMPUTE, 2: Action.RECOMPUTE, 3: Action.RECOMPUTE})

    assert rows == ["F0", "F1", "F2", "L", "F0'", "F1'", "F2'", "B2", "B1", "B0"]


def test_recomputing_swaps_in_what_its_op_reads():
    rows = rows_of(chain(3), {1: Action.SWAP, 2: Action.RECOMPUTE})

    assert rows == ["F0", "F1", "out x0", "F2", "L", "B2", "free x0", "in x0", "F1'", "B1", "B0"]


def test_room_is_made_only_when_it_is_needed_first_out_first():
    """Bytes held, input and all, with 10 each:  F2 would make 40. F3 would make 40 again.

    F0 20 | F1 30 | out x0 | out x1 | free x0 | F2 30 | free x1 | ...
    """
    policy = {1: Action.SWAP, 2: Action.SWAP}

    rows = rows_of(chain(4), policy, memory_bytes=30)

    assert rows[:8] == ["F0", "F1", "out x0", "free x0", "F2", "out x1", "free x1", "F3"]
    assert rows_of(chain(4), policy, memory_bytes=40)[:6] == ["F0", "F1", "out x0", "F2", "out x1", "free x0"]


def test_a_chain_of_a_thousand_layers_is_recomputed_without_recursion():
    workload = chain(1000)

    rows = rows_of(workload, dict.fromkeys(candidates(workload), Action.RECOMPUTE))

    assert rows.count("F500'") == 1


def test_the_loss_and_what_was_drawn_at_random_are_no_candidates():
    workload = chain(3, random=frozenset({1}))

    assert candidates(workload) == [1, 2, 3]
    assert [tensor for tensor in candidates(workload) if can_recompute(workload, tensor)] == [1, 3]
    with pytest.raises(WorkloadError, match="tensor 'x1': cannot recompute"):
        schedule(workload, {2: Action.RECOMPUTE}, UNLIMITED)
    with pytest.raises(WorkloadError, match="tensor 'loss': cannot swap"):
        schedule(workload, {workload.loss: Action.SWAP}, UNLIMITED)


@given(
    actions=st.lists(st.sampled_from(list(Action)), min_size=1, max_size=12),
    memory_bytes=st.integers(0, 200),
)
def test_the_bytes_of_a_schedule_are_those_of_its_plan(actions, memory_bytes):
    workload = chain(len(actions))
    policy = dict(zip(candidates(workload), actions, strict=True))

    levels = resident_bytes(workload, schedule(workload, policy, memory_bytes))

    plan = plan_for_policy(workload, gpus(), policy, memory_bytes)
    assert levels == memory_profile(plan).during[0].tolist()


@given(actions=st.lists(st.sampled_from(list(Action)), min_size=1, max_size=12))
def test_a_step_ends_with_what_was_there_at_its_start(actions):
    workload = chain(len(actions))
    plan = plan_for_policy(workload, gpus(), dict(zip(candidates(workload), actions, strict=True)), 0)

    profile = memory_profile(plan)

    assert profile.after[:, -1].tolist() == profile.initial.tolist()
