"""What reading takes in memory: a long trace no more than three times its size, a bomb next to nothing.

Measured in processes of their own, less what one takes that reads a trace of a few kernels.
"""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from stepsim.units import MIB

ROOT = Path(__file__).parents[2]

TRACE_BYTES = 64 * MIB
TIMES_ITS_SIZE = 3

BOMB_BYTES = 1024 * MIB
BOMB_COST_BYTES = 64 * MIB
"""Refused after 16 MiB; text that is ahead is held twice while more is read."""

READ = """
import resource, sys
from stepsim.errors import FileError
from stepsim.traces import read_any
try:
    print(len(read_any(sys.argv[1]).of("kernel")))
except FileError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""

UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""Of ``ru_maxrss``, by the manuals of getrusage."""

LAUNCHED = (
    '{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 0, "tid": 1, "ts": {at}, "dur": 5, '
    '"args": {{"External id": {number}, "cbid": 211, "correlation": {number}}}}}, '
    '{{"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<{kind}>", "pid": 0, '
    '"tid": 7, "ts": {at}, "dur": 8, "args": {{"device": 0, "context": 1, "stream": 7, "correlation": {number}, '
    '"grid": [640, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 0}}}}'
)


def read_in_a_new_process(path):
    """What came of it, and the peak of resident memory in bytes."""
    ran = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True, cwd=ROOT)
    said, peak = ran.stdout.splitlines()
    return said, int(peak) * UNIT_BYTES


def write_launches(path, size_bytes):
    """Launches and their kernels until ``size_bytes`` are reached; gives the number of kernels."""
    number = 1
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [')
        while file.tell() < size_bytes:
            file.write(
                "".join(LAUNCHED.format(at=10 * n, number=n, kind=n % 100) + ", " for n in range(number, number + 500))
            )
            number += 500
        file.write("{}]}")
    return number - 1


@pytest.fixture(scope="module")
def least_bytes(tmp_path_factory):
    """What the process takes itself."""
    path = tmp_path_factory.mktemp("small") / "t.json"
    write_launches(path, 1000)
    said, peak_bytes = read_in_a_new_process(path)
    assert said == "500"
    return peak_bytes


def test_a_long_trace_takes_at_most_three_times_its_size(tmp_path, least_bytes):
    num_kernels = write_launches(tmp_path / "t.json", TRACE_BYTES)

    said, peak_bytes = read_in_a_new_process(tmp_path / "t.json")

    assert said == str(num_kernels)
    assert peak_bytes - least_bytes < TIMES_ITS_SIZE * (tmp_path / "t.json").stat().st_size


BEGINNINGS = {
    "Kineto trace": b'{"traceEvents": [',
    "execution trace": b'{"schema": "1.0.1", "nodes": [{"rf_id": 1}',
    "nccl-tests log": b"# nccl-tests version 2.13.10\n",
}


@pytest.mark.parametrize("form", BEGINNINGS)
def test_a_bomb_is_refused_before_it_takes_memory(tmp_path, least_bytes, form):
    """A gigabyte of spaces in one megabyte, of many members so that it is quickly made."""
    member = gzip.compress(b" " * MIB, mtime=0)
    (tmp_path / "bomb").write_bytes(gzip.compress(BEGINNINGS[form]) + member * (BOMB_BYTES // MIB))

    said, peak_bytes = read_in_a_new_process(tmp_path / "bomb")

    assert said.endswith("gzip: unpacks to more than 200 times its size, as no recorded trace does")
    assert peak_bytes - least_bytes < BOMB_COST_BYTES
