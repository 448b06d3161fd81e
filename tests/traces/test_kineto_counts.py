"""Read in blocks, a recorded trace has the rows that it has when it is parsed as a whole."""

import gzip
import json
from collections import Counter

from stepsim.errors import FileError
from stepsim.traces import read_kineto
from stepsim.traces.detect import format_of

ON_DEVICE = {
    "kernel": "kernel",
    "memcpy": "copy",
    "gpu_memcpy": "copy",
    "memset": "memset",
    "gpu_memset": "memset",
}


def counted(path):
    """How many of each kind the file says were on a device, no event counted twice."""
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    events = document["traceEvents"] if isinstance(document, dict) else document
    complete = {json.dumps(event): str(event.get("cat")).lower() for event in events if event.get("ph") == "X"}
    return Counter(ON_DEVICE[category] for category in complete.values() if category in ON_DEVICE)


def is_kineto(path):
    try:
        return format_of(path).name == "Kineto trace"
    except FileError:
        return False


def test_every_recorded_file_has_the_kernels_copies_and_memsets_that_a_plain_count_finds(data_dir):
    files = [path for path in sorted(data_dir.rglob("*.json*")) if is_kineto(path)]

    for path in files:
        kinds = read_kineto(path).events["kind"].replace("collective", "kernel")
        assert Counter(kinds[kinds.isin(ON_DEVICE.values())]) == counted(path), path

    assert len(files) >= 28
