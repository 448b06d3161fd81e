"""Reader for gpu-small-kernels of te42kyfo/gpu-benches: many small kernels back to back, by array size.

A row has the elements of an array, its size as text (of changing units over the versions: not read), and the bandwidth
in GB/s for each of several block sizes. A kernel reads one array of doubles and writes another, so that an element is
16 bytes.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from stepsim.errors import FileError
from stepsim.traces.log_lines import positive, read_lines, size_in_bytes

ELEMENT_BYTES = 16
"""One double read, one written (gpu-benches, gpu-small-kernels/main.cu)."""


def read_small_kernels(path: Path, mode: str) -> pd.DataFrame:
    """``mode`` (as given), ``size_bytes`` and ``seconds`` of a kernel with its fastest block size, a row for each size.

    The last line of some files is cut off: rows without a bandwidth for each block size are left out. Bandwidths have
    no digits behind the point, so that the seconds of the smallest sizes are known to 2 %. Raises `FileError`.
    """
    rows = [(number, text.split()) for number, text in read_lines(path)]
    full = max(len(cells) for _, cells in rows)
    if full < 3:
        raise FileError(path, "line 1", rows[0][1], "must be elements, a size, and bandwidths in GB/s")
    samples = []
    for number, (elements, _, *rates) in [row for row in rows if len(row[1]) == full]:
        size = size_in_bytes(path, number, "elements", elements) * ELEMENT_BYTES
        fastest = max(positive(path, number, "bandwidth", rate) for rate in rates)
        samples.append({"mode": mode, "size_bytes": size, "seconds": size / (fastest * 1e9)})
    return pd.DataFrame(samples).astype({"size_bytes": np.int64})
