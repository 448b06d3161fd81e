import pytest

from stepsim.errors import FileError
from stepsim.traces.small_kernels import read_small_kernels


def written(tmp_path, text):
    path = tmp_path / "kernels.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_kernel_takes_its_bytes_over_the_bandwidth_of_the_fastest_block_size(tmp_path):
    """4096 elements of 16 bytes at 32 GB/s: 2.048 us."""
    samples = read_small_kernels(written(tmp_path, "4096  64kB     8     32     16\n"), "graph")

    assert samples["mode"].tolist() == ["graph"]
    assert samples["size_bytes"].tolist() == [65536]
    assert samples["seconds"].tolist() == pytest.approx([2.048e-6])


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path):
    samples = read_small_kernels(written(tmp_path, "4096 64kB 8 32 16\n8192 128kB 8 32 16\n16384 256kB 8"), "stream")

    assert samples["size_bytes"].tolist() == [65536, 131072]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("4096 64kB", "line 1: must be elements, a size, and bandwidths"),
        ("many 64kB 8 32", "line 1: elements: must be a whole number of bytes"),
        ("4096 64kB 8 0", "line 1: bandwidth: must be a number > 0, got '0'"),
        ("4096 64kB 8 32\n8192 128kB 8 fast", "line 2: bandwidth: must be a number > 0, got 'fast'"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_the_line(tmp_path, text, message):
    with pytest.raises(FileError, match=message):
        read_small_kernels(written(tmp_path, text), "stream")


def test_every_measured_file_is_read(data_dir):
    paths = sorted((data_dir / "gpu_benches/gpu-small-kernels").glob("*.txt"))

    samples = [read_small_kernels(path, "stream") for path in paths]

    assert len(paths) == 8
    assert all(len(rows) > 100 for rows in samples)
    assert all(5e-7 < rows["seconds"].min() < 5e-6 for rows in samples)
