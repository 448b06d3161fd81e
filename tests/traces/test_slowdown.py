import pytest

from stepsim.costmodels.demands import collective_sm_share, slowdown
from stepsim.traces.kineto import read_kineto
from stepsim.traces.slowdown import slowdowns
from stepsim.traces.trace import Trace, events_of


def event(kind, start_s, duration_s, name="", **more):
    return {"kind": kind, "name": name, "start_s": start_s, "duration_s": duration_s, "device": "gpu0", **more}


def steps_of(*kernels_s, beside=(), kind="collective", name="add"):
    """One step every 10 s, one kernel in each, which starts 1 s after its launch; ``beside`` are (start, duration)."""
    rows = []
    for number, duration_s in enumerate(kernels_s):
        begin_s = 10.0 * number
        rows += [
            event("step", begin_s, 9.0, f"ProfilerStep#{number}", device=""),
            event("launch", begin_s + 1, 0.1, "cudaLaunchKernel", correlation=number + 1, device=""),
            event("kernel", begin_s + 2, duration_s, name, correlation=number + 1),
        ]
    rows += [event(kind, start_s, duration_s) for start_s, duration_s in beside]
    return Trace(events=events_of(rows), provenance={})


def test_a_kernel_that_ran_beside_a_collective_in_one_step_is_held_against_another_where_it_ran_alone():
    found = slowdowns(steps_of(2.0, 3.0, 2.0, beside=[(11.5, 5.0)]), "collective")

    assert found.to_dict("records") == [{"name": "add", "alone_s": 2.0, "beside_s": 3.0, "ratio": 1.5}]


def test_a_kernel_that_was_partly_beside_counts_for_neither():
    found = slowdowns(steps_of(2.0, 3.0, beside=[(11.5, 2.0)]), "collective")

    assert found.empty


def test_collectives_that_overlap_each_other_count_once():
    """The kernel of the second step runs from 12 to 15: beside the first until 13, beside the second until 14."""
    partly = slowdowns(steps_of(2.0, 3.0, beside=[(11.0, 2.0), (12.0, 2.0)]), "collective")
    whole = slowdowns(steps_of(2.0, 3.0, beside=[(11.0, 2.0), (12.0, 3.0)]), "collective")

    assert partly.empty
    assert whole["ratio"].tolist() == [1.5]


def test_only_the_kinds_that_are_asked_for_count():
    trace = steps_of(2.0, 3.0, beside=[(11.5, 5.0)], kind="copy")

    assert slowdowns(trace, "collective").empty
    assert slowdowns(trace, "copy", "collective")["ratio"].tolist() == [1.5]


def test_what_runs_on_another_device_slows_nobody():
    trace = steps_of(2.0, 3.0, beside=[(11.5, 5.0)])
    trace.events.loc[trace.events["kind"] == "collective", "device"] = "gpu1"

    assert slowdowns(trace, "collective").empty


def test_a_trace_without_steps_says_nothing():
    trace = steps_of(2.0, 3.0, beside=[(11.5, 5.0)])
    events = trace.events[trace.events["kind"] != "step"].reset_index(drop=True)

    assert slowdowns(Trace(events=events, provenance={}), "collective").empty


def test_large_kernels_beside_eight_channels_of_nccl_on_an_a100_slow_as_the_sms_say(data_dir):
    """8 of 108 SMs are gone: a kernel that needs all of them takes 108 / 100 = 1.08 times as long; measured 1.076.

    The grids of the collectives in the file are (8, 1, 1).
    """
    found = slowdowns(read_kineto(data_dir / "hta/nccl_parser_config/nccl_data.json.gz"), "collective")
    large = found[found["alone_s"] > 20e-6]

    assert len(large) >= 20
    assert large["ratio"].median() == pytest.approx(slowdown([1.0], collective_sm_share(8, 108))[0], abs=0.02)
