import numpy as np
import pytest
import torch
from small_plans import bind, bound_to
from tiny_models import EXACT, conv_net_with_bias, tiny_transformer

from stepsim.executor import BoundProgram, Recorder, record
from stepsim.executor.record import COPY_SIZES_BYTES

REPEATS = 2


def bound_programs() -> list[BoundProgram]:
    return [bound_to(conv_net_with_bias), bound_to(tiny_transformer)]


def test_each_piece_of_work_and_each_size_of_copy_is_sampled_once_a_repeat():
    programs = bound_programs()
    signatures = {op.signature for bound in programs for op in bound.workload.ops}

    events = record(programs, repeats=REPEATS).events

    work = events[events["kind"] == "kernel"]
    copies = events[events["kind"] == "copy"]
    assert set(work["work"]) == signatures
    assert (work.groupby("work").size() == REPEATS).all()
    sampled = copies.groupby(["source", "destination", "size_bytes"]).size()
    assert (sampled == REPEATS).all()
    assert len(sampled) == 2 * len(COPY_SIZES_BYTES)


def test_repeats_are_interleaved_and_samples_never_overlap():
    events = record(bound_programs(), repeats=REPEATS).events

    work = events[events["kind"] == "kernel"]
    half = len(work) // REPEATS
    assert list(work["work"][:half]) == list(work["work"][half:])
    start_s, end_s = events["start_s"].to_numpy(), (events["start_s"] + events["duration_s"]).to_numpy()
    order = np.argsort(start_s, kind="stable")
    assert (start_s[order][1:] >= end_s[order][:-1] - 1e-9).all()
    assert (events["duration_s"] > 0).all()


def test_work_carries_the_flop_and_the_bytes_of_its_op():
    (bound, _) = programs = bound_programs()

    events = record(programs, repeats=REPEATS).events

    op = bound.workload.ops[0]
    sample = events[events["work"] == op.signature].iloc[0]
    assert (sample["name"], sample["flop"], sample["size_bytes"]) == (
        op.kind,
        op.flop,
        op.bytes_read + op.bytes_written,
    )


def test_the_module_is_trained_by_exactly_the_one_step_that_gives_the_inputs():
    bound, twin = (bind(conv_net_with_bias) for _ in range(2))

    record([bound], repeats=REPEATS)

    twin.step.module(*twin.step.inputs).backward()
    twin.step.optimizer.step()
    assert all(map(torch.equal, bound.step.module.parameters(), twin.step.module.parameters()))
    momenta = [
        [state["momentum_buffer"] for state in trained.step.optimizer.state.values()] for trained in (bound, twin)
    ]
    assert all(map(torch.equal, *momenta))


@pytest.mark.parametrize("factory", EXACT, ids=lambda factory: factory.__name__)
def test_whatever_the_executor_can_run_can_be_recorded(factory):
    bound = bind(factory)

    trace = record([bound], repeats=1)

    assert set(trace.of("kernel")["work"]) == {op.signature for op in bound.workload.ops}


def test_work_that_two_models_share_is_timed_once():
    bound, twin = (bind(conv_net_with_bias) for _ in range(2))

    trace = record([bound, twin], repeats=1)

    assert len(trace.of("kernel")) == len({op.signature for op in bound.workload.ops})


def test_nothing_but_single_rows_and_the_gaps_between_them_is_in_the_trace():
    """No step is timed: what is predicted from it is never an echo of what it is compared with."""
    events = record(bound_programs(), repeats=REPEATS).events

    assert set(events["kind"]) == {"kernel", "copy", "launch"}
    rows, gaps = (events[events["kind"].isin(kinds)] for kinds in (["kernel", "copy"], ["launch"]))
    assert len(gaps) == len(rows) - REPEATS
    assert (gaps["duration_s"] >= 0).all()


def test_a_recorder_adds_a_sample_of_everything_with_each_pass_and_goes_on_from_there():
    recorder = Recorder([bound_to(conv_net_with_bias)])
    sizes = []

    for _ in range(3):
        recorder.run_pass()
        sizes.append(len(recorder.trace().events))

    assert sizes == [sizes[0], 2 * sizes[0], 3 * sizes[0]]
    assert recorder.trace().provenance["repeats"] == "3"
    timed = recorder.trace().of("kernel", "copy")
    assert timed["start_s"].is_monotonic_increasing


def test_provenance_says_what_was_measured_with_what_on_what():
    provenance = record(bound_programs(), repeats=REPEATS).provenance

    wanted = {"machine", "processor", "system", "python", "torch", "threads", "repeats", "workloads", "date", "source"}
    assert set(provenance) == wanted
    assert all(provenance.values())
    assert "conv_net_with_bias (batch 2)" in provenance["workloads"]


def test_progress_counts_every_pass():
    seen: list[tuple[int, int]] = []

    record(bound_programs()[:1], repeats=REPEATS, progress=lambda done, number: seen.append((done, number)))

    assert seen == [(done, REPEATS) for done in range(1, REPEATS + 1)]
