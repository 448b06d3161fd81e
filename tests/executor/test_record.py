import numpy as np
import torch
from tiny_models import conv_net_with_bias, tiny_transformer

from stepsim.executor import BoundProgram, record
from stepsim.executor.eager import eager_step
from stepsim.executor.record import COPY_SIZES_BYTES

REPEATS = 2


def bound_programs() -> list[BoundProgram]:
    return [BoundProgram.of(factory, 2, factory.__name__) for factory in (conv_net_with_bias, tiny_transformer)]


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
    bound = BoundProgram.of(conv_net_with_bias, 2, "net")
    other = BoundProgram.of(conv_net_with_bias, 2, "net")
    for ours, theirs in zip(other.step.inputs, bound.step.inputs, strict=True):
        ours.copy_(theirs)

    record([bound], repeats=REPEATS)

    loss = other.step.module(*other.step.inputs)
    loss.backward()
    other.step.optimizer.step()
    trained = dict(bound.step.module.named_parameters())
    assert all(torch.equal(trained[name], weight) for name, weight in other.step.module.named_parameters())


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


def test_an_eager_step_leaves_module_and_optimizer_as_they_are():
    bound = BoundProgram.of(conv_net_with_bias, 2, "net")
    before = [parameter.detach().clone() for parameter in bound.step.module.parameters()]

    eager_step(bound)

    assert all(map(torch.equal, before, bound.step.module.parameters()))
    assert all(parameter.grad is None for parameter in bound.step.module.parameters())
    assert not bound.step.optimizer.state
