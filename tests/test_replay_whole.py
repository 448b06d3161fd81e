"""Replay of traces that were recorded on real GPUs, and of one that is written here."""

import json

import pytest
from loop_files import KINETO

from stepsim.replay import replay

RESNET_TRACES = (
    "resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz",
    "resnet50_num_workers_0/worker0_2d19c63423.pt.trace.json.gz",
    "resnet50_num_workers_0/worker0_d3fb4076d7.pt.trace.json.gz",
    "resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
)
"""Those of the data folder's kineto part that have profiler steps."""


@pytest.mark.parametrize("trace", RESNET_TRACES)
def test_the_steps_of_a_recorded_resnet_50_are_replayed_within_five_percent(data_dir, trace):
    replayed = replay(data_dir / "kineto" / trace)

    assert len(replayed.steps) == 6
    assert replayed.median_error <= 0.05
    assert replayed.num_kernels > 8000
    assert sum(replayed.explained.values()) == pytest.approx(1)
    assert min(replayed.explained.values()) >= 0


def test_a_replay_tells_the_fixed_keys_first(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(KINETO))

    facts = replay(path).as_json()

    assert list(facts)[:6] == ["trace", "events", "kernels", "streams", "steps", "explained"]
    assert [step["name"] for step in facts["steps"]] == ["ProfilerStep#1"]
    assert json.loads(json.dumps(facts)) == facts
