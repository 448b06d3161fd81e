"""The raw memory timeline of torch.profiler as a plan for the memory pass."""

import gzip

import numpy as np
import orjson
import pytest

from stepsim.errors import FileError
from stepsim.memory import memory_profile
from stepsim.traces.memory_timeline import Action, plan_of_allocations, read_memory_timeline

EVENTS = [[-1, 1, 8, 0], [10, 2, 512, 4], [20, 3, -512, 4], [20, 3, 512, 5], [30, 2, 1024, 3], [40, 4, -512, 5]]


def written(folder, entries, compress=True):
    path = folder / "timeline.raw.json.gz"
    content = orjson.dumps(entries)
    path.write_bytes(gzip.compress(content) if compress else content)
    return path


@pytest.mark.parametrize("compress", [True, False])
def test_a_buffer_for_each_that_was_there_or_created_and_none_for_a_new_version(tmp_path, compress):
    plan = plan_of_allocations(read_memory_timeline(written(tmp_path, EVENTS, compress)))

    assert plan.buffers.size_bytes.tolist() == [8, 512, 1024]
    assert plan.buffers.role == ("parameter", "activation", "temporary")
    during, after = memory_profile(plan).by_row("gpu0")
    assert (during.tolist(), after.tolist()) == ([520, 1544, 1544], [520, 1544, 1032])


def test_of_equal_buffers_the_oldest_is_destroyed_first(tmp_path):
    entries = [[1, 2, 512, 4], [2, 2, 512, 5], [3, 4, -512, 4]]

    plan = plan_of_allocations(read_memory_timeline(written(tmp_path, entries)))

    assert plan.tasks.releases.to_lists() == [[], [], [0]]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([[1, 0, 512, 4]], r"\[0\]\.action: must be in 1\.\.4, got 0"),
        ([[1, 2, 512, 4], [1, 2, 512, 9]], r"\[1\]\.category: must be in 0\.\.7, got 9"),
        ([[1, 2, 512]], r"is no list of \[time, action, bytes, category\]"),
        ([[1, 2, 512, 4, 2, 4, -512, 4]], r"is no list of \[time, action, bytes, category\]"),
        ([[1, 2, 512.5, 4]], r"is no list of \[time, action, bytes, category\], in whole numbers"),
        ([[1, 2, 2**63, 4]], r"is no list of \[time, action, bytes, category\]"),
        ([[1, 2, 512, 4], [1, 2]], r"is no list of \[time, action, bytes, category\]"),
        ([], r"is no list of \[time, action, bytes, category\]"),
        ([[1, 2, 2**50 + 1, 4]], r"\[0\]\.bytes: must be in -1125899906842624\.\.1125899906842624, got"),
        ({"a": 1}, r"is no list of \[time, action, bytes, category\]"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, entries, message):
    with pytest.raises(FileError, match=message):
        read_memory_timeline(written(tmp_path, entries))


@pytest.mark.parametrize("compress", [True, False])
def test_more_bytes_than_a_recording_can_have_are_not_read(tmp_path, compress, monkeypatch):
    monkeypatch.setattr("stepsim.traces.memory_timeline.LARGEST_FILE_BYTES", 100)

    with pytest.raises(FileError, match="file: must hold at most 100 bytes, unzipped"):
        read_memory_timeline(written(tmp_path, EVENTS * 9, compress))


def test_times_that_go_back_are_told_once_and_the_order_counts(tmp_path):
    entries = [[30, 2, 512, 4], [20, 2, 64, 4], [10, 4, -512, 4]]

    with pytest.warns(UserWarning, match=r"\[1\]\.time: 2 of 3 entries are earlier") as told:
        timeline = read_memory_timeline(written(tmp_path, entries))

    assert len(told) == 1
    assert timeline.change_bytes.tolist() == [512, 64, -512]


def test_an_end_without_a_beginning_is_refused(tmp_path):
    timeline = read_memory_timeline(written(tmp_path, [[1, 2, 512, 4], [2, 4, -1024, 4]]))

    with pytest.raises(FileError, match=r"\[1\]\.bytes: must end what has begun, got -1024"):
        plan_of_allocations(timeline)


def test_a_measured_timeline_is_exact_at_every_event(data_dir):
    """The file's own signed bytes, added up, against the memory pass, which sees buffers that come and go."""
    path = data_dir / "hta/memory_analysis/memory_timeline.raw.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    timeline = read_memory_timeline(path)
    plan = plan_of_allocations(timeline)

    during, after = memory_profile(plan).by_row("gpu0")

    moves = np.isin(timeline.action, (Action.CREATE, Action.DESTROY))
    assert len(plan) == moves.sum() == 6690
    assert after.tolist() == timeline.change_bytes.cumsum()[moves].tolist()
    assert during.max() == 3_082_832_104


def test_a_measured_size_is_that_of_a_block_which_rounding_leaves_alone(data_dir):
    """What was created has the bytes that the allocator rounds to; a rest that it keeps is at most 1 MiB."""
    path = data_dir / "hta/memory_analysis/memory_timeline.raw.gz"
    if not path.is_file():
        pytest.skip(f"no {path}")
    plan = plan_of_allocations(read_memory_timeline(path))

    profile = memory_profile(plan, "caching")

    created = plan.tasks.allocates.values
    rest = (profile.buffer_bytes - plan.buffers.size_bytes)[created]
    assert (plan.buffers.size_bytes[created] % 512 == 0).all()
    assert rest.max() <= 2**20
    assert (rest[plan.buffers.size_bytes[created] <= 2**20] == 0).all()
    assert profile.peak_bytes("gpu0") == pytest.approx(3_082_832_104, rel=0.01)
