"""Steps predicted from the other steps of their trace: sums of medians where each step is a chain."""

from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_files import KinetoFile
from replayed import US

from stepsim.replay import run_again
from stepsim.traces import machine_of, read_kineto, rebuild
from stepsim.traces.learnt import learnt_steps
from stepsim.traces.replay import seconds_of


def chains(steps, *, names=None):
    """
    step     0------------------gap + launch + runs + tail
    thread   ....LLLLSSSSSSSSSS......                         gap, launch, synchronisation, tail
    stream           kkkkkkkkkk
    """
    file, now = KinetoFile(), 0
    for number, (gap, launch, runs, tail) in enumerate(steps):
        issued = now + gap + launch
        file.step(number, now, gap + launch + runs + tail)
        name = names[number] if names else "gemm"
        file.launched(now + gap, launch, issued, runs, number + 1, name=name)
        file.sync(issued, runs)
        now = issued + runs + tail
    return file


def learnt(file, tmp_path):
    """Each learnt step with its prediction in microseconds."""
    trace = read_kineto(file.write(tmp_path / "t.json"))
    found = learnt_steps(rebuild(trace))
    return [(step, seconds_of(step.lender, run_again(step.run, machine_of(trace))) / US) for step in found]


TOOK = st.integers(1, 40)
STEPS = st.lists(st.tuples(TOOK, TOOK, TOOK, TOOK), min_size=2, max_size=6)
FEW = settings(max_examples=25)


@FEW
@given(steps=STEPS)
def test_a_chain_is_predicted_as_the_sum_of_the_medians_of_the_other_steps(tmp_path_factory, steps):
    found = learnt(chains(steps), tmp_path_factory.mktemp("run"))

    for number, (step, predicted_us) in enumerate(found):
        others = steps[:number] + steps[number + 1 :]
        assert step.alike
        assert predicted_us == pytest.approx(sum(median(parts) for parts in zip(*others, strict=True)))


@FEW
@given(steps=STEPS, own=st.tuples(TOOK, TOOK, TOOK, TOOK), place=st.integers(0, 5))
def test_what_the_predicted_step_took_itself_does_not_matter(tmp_path_factory, steps, own, place):
    number = place % len(steps)
    changed = [*steps[:number], own, *steps[number + 1 :]]

    before = learnt(chains(steps), tmp_path_factory.mktemp("run"))
    after = learnt(chains(changed), tmp_path_factory.mktemp("run"))

    assert after[number][1] == pytest.approx(before[number][1])


def test_the_nearest_step_with_the_same_rows_lends_its_structure(tmp_path):
    file = chains([(1, 2, 3, 4)] * 4, names=["gemm", "conv", "gemm", "gemm"])

    found = learnt(file, tmp_path)

    lenders = [step.lender.name.partition("#")[2] for step, _ in found]
    assert lenders == ["2", "1", "3", "2"]
    assert [step.alike for step, _ in found] == [True, False, True, True]


def test_a_step_without_its_like_keeps_what_no_other_step_tells(tmp_path):
    """Its launch, its synchronisation and its border have names that occur elsewhere; its kernel has not."""
    file = chains([(1, 2, 3, 4), (10, 20, 30, 40), (2, 2, 3, 6)], names=["gemm", "conv", "gemm"])

    step, predicted_us = learnt(file, tmp_path)[1]

    assert (step.alike, step.lender) == (False, step.predicted)
    assert step.unknown == pytest.approx(1 / 4)
    assert predicted_us == pytest.approx(10 + 20 + 30 + (4 + 6) / 2)


def test_a_run_of_one_step_has_nothing_to_learn_from(tmp_path):
    assert learnt(chains([(1, 2, 3, 4)]), tmp_path) == []


def test_what_the_stream_does_beside_the_host_is_simulated_not_added(tmp_path):
    """
    thread   .LLL........    gap 1, launch 3, tail 8 without a synchronisation; the kernel runs beside
    stream       kkkkkk
    """
    file = KinetoFile()
    for number in range(3):
        file.step(number, 12 * number, 12)
        file.launched(12 * number + 1, 3, 12 * number + 4, 6 + number, number + 1)

    assert [predicted_us for _, predicted_us in learnt(file, tmp_path)] == pytest.approx([12, 12, 12])
