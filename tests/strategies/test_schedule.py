"""What a policy turns into: which rows, in which order, holding how much."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_workloads import steps
from small_machines import gpus
from small_workloads import chain, op, tensor

from stepsim.errors import WorkloadError
from stepsim.memory import memory_profile
from stepsim.plan import TaskKind
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.strategies.memory.rows import HOST_COPY, Row, resident_bytes
from stepsim.strategies.memory.schedule import Action, can_recompute, candidates, schedule
from stepsim.workloads import Phase, Role, Workload

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


def test_the_loss_is_no_candidate_and_what_writes_in_place_cannot_run_again():
    workload = chain(3, in_place=frozenset({1}))

    assert candidates(workload) == [1, 2, 3]
    assert [tensor for tensor in candidates(workload) if can_recompute(workload, tensor)] == [1, 3]
    with pytest.raises(WorkloadError, match="tensor 'x1': cannot recompute"):
        schedule(workload, {2: Action.RECOMPUTE}, UNLIMITED)
    with pytest.raises(WorkloadError, match="tensor 'loss': cannot swap"):
        schedule(workload, {workload.loss: Action.SWAP}, UNLIMITED)


def two_halves() -> Workload:
    """F makes a and b at once; B1 reads a, B0 reads b.   F L B1 B0"""
    return Workload(
        name="two halves",
        batch=1,
        tensors=(
            tensor("input", Role.INPUT, 10),
            tensor("a", Role.ACTIVATION, 3, saved=True),
            tensor("b", Role.ACTIVATION, 5, saved=True),
            tensor("loss", Role.ACTIVATION, 1),
            tensor("da", Role.GRADIENT, 3),
            tensor("db", Role.GRADIENT, 5),
        ),
        ops=(
            op("F", Phase.FORWARD, (0,), (1, 2)),
            op("L", Phase.FORWARD, (1, 2), (3,)),
            op("Z", Phase.BACKWARD, (), (4,)),
            op("B1", Phase.BACKWARD, (1, 4), (5,)),
            op("Y", Phase.BACKWARD, (5,), ()),
            op("B0", Phase.BACKWARD, (2, 5), ()),
        ),
        loss=3,
    )


def test_recomputing_one_output_leaves_the_other_where_the_policy_put_it():
    workload = two_halves()

    recomputed = rows_of(workload, {1: Action.RECOMPUTE})
    mixed = rows_of(workload, {1: Action.RECOMPUTE, 2: Action.SWAP})

    assert recomputed == ["F", "L", "Z", "F'", "B1", "Y", "B0"]
    assert mixed == ["F", "L", "out b", "Z", "F'", "B1", "free b", "in b", "Y", "B0"]


def test_both_outputs_come_back_at_once_when_both_are_recomputed():
    rows = rows_of(two_halves(), {1: Action.RECOMPUTE, 2: Action.RECOMPUTE})

    assert rows.count("F'") == 1


def test_what_a_recomputation_makes_needlessly_is_dropped_by_its_own_row():
    """b is kept, so that its second copy is of no use."""
    (again,) = (row for row in schedule(two_halves(), {1: Action.RECOMPUTE}, 0) if row.kind is TaskKind.RECOMPUTE)

    assert again.writes == ((1, 1), (2, 1))
    assert again.releases == ((2, 1),)


def test_what_is_swapped_in_for_a_recomputation_serves_later_readers_too():
    """B1 needs x1, which is made again from x0; B0 finds x0 there."""
    rows = rows_of(chain(3), {1: Action.SWAP, 2: Action.RECOMPUTE})

    assert rows.count("in x0") == rows.count("out x0") == 1


@pytest.mark.parametrize("tensor", [-1, 99])
def test_a_policy_for_a_tensor_that_does_not_exist_is_refused(tensor):
    with pytest.raises(WorkloadError, match=f"^policy: tensor {tensor} of 8 does not exist$"):
        schedule(chain(3), {tensor: Action.SWAP}, UNLIMITED)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize(("tensor", "name"), [(0, "input"), (4, "loss"), (5, "g2")])
def test_a_policy_is_only_for_saved_activations(tensor, name, action):
    with pytest.raises(WorkloadError, match=f"^tensor '{name}': cannot {action}$"):
        schedule(chain(3), {tensor: action}, UNLIMITED)


def test_what_an_op_makes_that_writes_in_place_cannot_be_recomputed():
    """A second run would write a second time."""
    workload = chain(2)
    first, *rest = workload.ops
    counting = replace(workload, ops=(replace(first, mutates=first.inputs), *rest))

    assert can_recompute(workload, 1)
    assert not can_recompute(counting, 1)
    with pytest.raises(WorkloadError, match=r"^tensor 'x0': cannot recompute$"):
        schedule(counting, {1: Action.RECOMPUTE}, UNLIMITED)


def test_bytes_of_a_swap_worked_out_by_hand():
    """Input 10, activations 10 each, loss 1, gradients 10 each; x0 is swapped and given back at once."""
    rows = schedule(chain(2), {1: Action.SWAP}, 0)

    levels = dict(zip(rows_of(chain(2), {1: Action.SWAP}, 0), resident_bytes(chain(2), rows), strict=False))

    assert levels == {
        "F0": 10 + 10,
        "F1": 10 + 20,
        "out x0": 10 + 20,
        "free x0": 10 + 20,
        "L": 10 + 10 + 1,
        "in x0": 10 + 10 + 1 + 10,
        "B1": 10 + 20 + 1 + 10,
        "B0": 10 + 10 + 1 + 10 + 10,
    }


# --- any step, any policy -----------------------------------------------------------------------------------------


def rows_by_kind(rows: list[Row], *kinds: TaskKind) -> list[Row]:
    return [row for row in rows if row.kind in kinds]


@given(steps())
def test_every_op_runs_once_and_in_order(step):
    workload, policy, memory_bytes = step

    rows = schedule(workload, policy, memory_bytes)

    assert [row.subject for row in rows_by_kind(rows, TaskKind.COMPUTE)] == list(range(len(workload.ops)))


@given(steps())
def test_only_what_the_policy_names_is_moved_or_made_again(step):
    workload, policy, memory_bytes = step
    chosen = {action: {t for t, taken in policy.items() if taken is action} for action in Action}

    rows = schedule(workload, policy, memory_bytes)

    out, back = ([row.subject for row in rows_by_kind(rows, kind)] for kind in (TaskKind.SWAP_OUT, TaskKind.SWAP_IN))
    again = [row.subject for row in rows_by_kind(rows, TaskKind.RECOMPUTE)]
    assert sorted(out) == sorted(back) == sorted(chosen[Action.SWAP])
    assert set(again) == {workload.producer[tensor] for tensor in chosen[Action.RECOMPUTE]}
    assert len(set(again)) == len(again)


@given(steps())
def test_a_swapped_tensor_goes_out_is_given_back_and_comes_in_in_this_order(step):
    workload, policy, memory_bytes = step
    wanted = [TaskKind.SWAP_OUT, TaskKind.RELEASE, TaskKind.SWAP_IN]

    rows = schedule(workload, policy, memory_bytes)[:-1]

    for subject, action in policy.items():
        about = [row.kind for row in rows_by_kind(rows, *wanted) if row.subject == subject]
        assert about == (wanted if action is Action.SWAP else [])


@given(steps())
def test_room_is_made_first_out_first_and_only_when_there_is_need(step):
    workload, policy, memory_bytes = step
    rows = schedule(workload, policy, memory_bytes)[:-1]
    levels = resident_bytes(workload, rows)
    out: list[int] = []

    for number, row in enumerate(rows):
        if row.kind is TaskKind.SWAP_OUT:
            out.append(row.subject)
        if row.kind is TaskKind.RELEASE:
            wanted = next(later for later in rows[number:] if later.kind is not TaskKind.RELEASE)
            on_device = [index for index, copy in wanted.allocates if copy != HOST_COPY]
            size_bytes = sum(workload.tensors[index].size_bytes for index in on_device)
            comes_back = wanted.kind is TaskKind.SWAP_IN and wanted.subject == row.subject
            assert comes_back or (levels[number] + size_bytes > memory_bytes and out[0] == row.subject)
            out.remove(row.subject)


@given(steps(Action.SWAP))
def test_swapping_never_needs_more_than_keeping(step):
    """Row by row: what lies there while an op runs lies there anyway when everything is kept."""
    workload, policy, memory_bytes = step

    kept, swapped = (
        [level for row, level in zip(rows, resident_bytes(workload, rows), strict=True) if row.kind is TaskKind.COMPUTE]
        for rows in (schedule(workload, {}, 0), schedule(workload, policy, memory_bytes))
    )

    assert all(less <= more for less, more in zip(swapped, kept, strict=True))


@given(steps(), st.randoms(use_true_random=False))
def test_equal_policies_give_equal_schedules_whatever_the_order_of_their_entries(step, random):
    workload, policy, memory_bytes = step
    entries = list(policy.items())
    random.shuffle(entries)

    assert schedule(workload, dict(entries), memory_bytes) == schedule(workload, policy, memory_bytes)


@given(steps())
def test_the_bytes_of_a_schedule_are_those_of_its_plan(step):
    workload, policy, memory_bytes = step

    levels = resident_bytes(workload, schedule(workload, policy, memory_bytes))

    plan = plan_for_policy(workload, gpus(), policy, memory_bytes)
    assert levels == memory_profile(plan).by_row("gpu0")[0].tolist()


@given(steps())
def test_a_step_ends_with_what_was_there_at_its_start(step):
    workload, policy, memory_bytes = step
    profile = memory_profile(plan_for_policy(workload, gpus(), policy, memory_bytes))

    for device, initial in zip(profile.plan.devices.name, profile.resident.initial.tolist(), strict=True):
        assert profile.by_row(device)[1][-1] == initial
