import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces import read_bandwidth_log

MIB = 2**20

TEXT = """[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: Tesla V100-PCIE-32GB
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   1000\t\t\t\t0.5
   32000000\t\t\t12.8

 Device to Host Bandwidth, 1 Device(s)
 PAGEABLE Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t6.4

 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t640.0

Result = PASS
"""

CSV = """[CUDA Bandwidth Test] - Starting...

 Device 0: Tesla V100-PCIE-32GB
 Shmoo Mode

bandwidthTest-H2D-Pinned, Bandwidth = 12.8 GB/s, Time = 0.00250 s, Size = 32000000 bytes, NumDevsUsed = 1
bandwidthTest-D2H-Paged, Bandwidth = 6.4 GB/s, Time = 0.00500 s, Size = 32000000 bytes, NumDevsUsed = 1
bandwidthTest-D2D, Bandwidth = 640.0 GB/s, Time = 0.00005 s, Size = 32000000 bytes, NumDevsUsed = 1
Result = PASS
"""

HIP = """Device:Device 738c Mem=32.0GB #CUs=120 Freq=1502Mhz  MallocMode=pinned
                   test        atts        units        median  mean    stddev  min     max
   H2D_Bandwidth_pinned      +064By       GB/sec        0.0000  0.0000  0.0000  0.0000  0.0000
   H2D_Bandwidth_pinned         2kB       GB/sec        0.0828  0.0824  0.0018  0.0683  0.0862
         H2D_Timepinned      +064By           ms        0.0245  0.0253  0.0240  0.0232  0.7821
         H2D_Timepinned         2kB           ms        0.0250  0.0243  0.0005  0.0232  0.0293
 D2H_Bandwidth_unpinned         4kB       GB/sec        0.0828  0.0824  0.0018  0.0683  0.0862
       D2H_Timeunpinned         4kB           ms        0.0500  0.0243  0.0005  0.0232  0.0293
"""

GPU_COPY = """cpu_to_gpu0_by_sm_under_numa0 25.6
gpu0_to_cpu_by_dma_under_numa1 12.8
gpu0_to_gpu0_by_dma 682.667
gpu0_to_gpu1_write_by_sm 256
cpu_and_gpu1_by_dma_under_numa0 51.2
gpu_all_to_gpu0_write_by_sm 56.2
"""

NVBANDWIDTH = """nvbandwidth Version: v0.5
Built from Git version: v0.5

CUDA Runtime Version: 12040
CUDA Driver Version: 12040
Driver Version: 550.54.15

Device 0: NVIDIA H100 80GB HBM3 (00000000:1b:00)
Device 1: NVIDIA H100 80GB HBM3 (00000000:43:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     64.00     32.00

SUM host_to_device_memcpy_ce 96.00

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     16.00       N/A

Running host_to_device_bidirectional_memcpy_ce.
memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)
           0         1
 0     18.00     18.00

Running device_to_device_memcpy_read_sm.
memcpy SM GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0      0.00    256.00
 1    128.00      0.00
"""

LOGS = {"text": TEXT, "csv": CSV, "hip": HIP, "gpu_copy": GPU_COPY, "nvbandwidth": NVBANDWIDTH}


@pytest.fixture
def read(tmp_path):
    def reading(text):
        path = tmp_path / "sweep.log"
        path.write_text(text)
        return read_bandwidth_log(path)

    return reading


@pytest.fixture
def problem(read):
    def refusing(text):
        with pytest.raises(FileError) as caught:
            read(text)
        assert "\n" not in str(caught.value)
        return str(caught.value).partition("sweep.log: ")[2]

    return refusing


def copies(trace):
    """Source, destination, bytes and bytes per second of each copy."""
    events = trace.events
    assert (events["kind"] == "copy").all()
    rates = (events["size_bytes"] / events["duration_s"]).round(3)
    return list(zip(events["source"], events["destination"], events["size_bytes"], rates, strict=True))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_copy_takes_its_size_by_the_bandwidth_and_nothing_on_top(read):
    events = read(CSV).events

    assert events["duration_s"][0] == pytest.approx(32e6 / 12.8e9, rel=1e-12)


def test_the_text_of_bandwidth_test_tells_direction_and_memory(read):
    trace = read(TEXT)

    assert copies(trace) == [
        ("pinned", "device", 1000, 0.5e9),
        ("pinned", "device", 32_000_000, 12.8e9),
        ("device", "pageable", 32_000_000, 6.4e9),
        ("device", "device", 32_000_000, 320e9),
    ]
    assert trace.provenance["gpu0"] == "Tesla V100-PCIE-32GB"


def test_within_a_device_bandwidth_test_counts_each_byte_twice(read):
    assert read(CSV).events["duration_s"][2] == pytest.approx(2 * 32e6 / 640e9, rel=1e-12)


def test_csv_lines_and_text_of_bandwidth_test_read_alike(read):
    assert copies(read(CSV)) == copies(read(TEXT))[1:]


def test_the_megabytes_of_older_bandwidth_tests_are_1024000_bytes(read):
    assert copies(read(CSV.replace("12.8 GB/s", "1000.0 MB/s")))[0][3] == pytest.approx(1.024e9)


def test_of_hip_the_median_times_are_read(read):
    events = read(HIP).events

    assert events["size_bytes"].tolist() == [64, 2048, 4096]
    assert events["duration_s"].tolist() == pytest.approx([24.5e-6, 25e-6, 50e-6], rel=1e-12)
    assert events["source"].tolist() == ["pinned", "pinned", "device"]
    assert events["destination"].tolist() == ["device", "device", "pageable"]


def test_copies_of_superbench_have_the_size_that_it_takes_by_default(read):
    trace = read(GPU_COPY)

    assert copies(trace) == [
        ("pinned", "device", 256 * MIB, 25.6e9),
        ("device", "pinned", 256 * MIB, 12.8e9),
        ("device", "device", 256 * MIB, 256e9),
        ("pinned", "device", 256 * MIB, 25.6e9),
        ("device", "pinned", 256 * MIB, 25.6e9),
    ]
    assert trace.provenance["size_bytes"] == "not in the log: 268435456, the default of the tool"


def test_both_ways_at_once_are_two_copies_that_begin_together(read):
    events = read(GPU_COPY).events

    assert events["start_s"][3] == events["start_s"][4] > events["start_s"][2]


def test_superbench_copies_within_a_gpu_and_of_all_gpus_are_left_out_by_name(read):
    assert read(GPU_COPY).provenance["left_out"] == "gpu0_to_gpu0_by_dma gpu_all_to_gpu0_write_by_sm"


def test_matrices_of_nvbandwidth_go_the_way_of_their_arrow(read):
    trace = read(NVBANDWIDTH)

    assert copies(trace) == [
        ("pinned", "device", 512 * MIB, 64e9),
        ("pinned", "device", 512 * MIB, 32e9),
        ("device", "pinned", 512 * MIB, 16e9),
        ("device", "device", 512 * MIB, 256e9),
        ("device", "device", 512 * MIB, 128e9),
    ]
    assert trace.events["device"].tolist() == ["gpu0", "gpu1", "gpu0", "gpu0", "gpu1"]


def test_provenance_of_nvbandwidth_has_gpus_versions_and_what_was_left_out(read):
    facts = read(NVBANDWIDTH).provenance

    assert (facts["gpu0"], facts["gpu1"]) == ("NVIDIA H100 80GB HBM3",) * 2
    assert (facts["nvbandwidth_version"], facts["driver_version"]) == ("v0.5", "550.54.15")
    assert facts["left_out"] == "host_to_device_bidirectional_memcpy_ce"


# --- what is refused --------------------------------------------------------------------------------------------------

POSITIVE = "must be a number > 0"

BAD = {
    "text zero": (TEXT, "12.8", "0.0", f"line 11: bandwidth: {POSITIVE}, got '0.0'"),
    "text negative": (TEXT, "6.4", "-6.4", f"line 16: bandwidth: {POSITIVE}, got '-6.4'"),
    "text no number": (TEXT, "640.0", "fast", f"line 21: bandwidth: {POSITIVE}, got 'fast'"),
    "text cut": (TEXT, "Result = PASS\n", "", "line 22: the log is cut off: 'Result = PASS' must follow, got ''"),
    "text failed": (TEXT, "PASS", "FAIL", "line 23: must be Result = PASS, got 'Result = FAIL'"),
    "text devices": (
        TEXT,
        "Device Bandwidth, 1",
        "Device Bandwidth, 2",
        "line 7: devices: must be 1: the bandwidths are sums over all of them, got '2'",
    ),
    "text unit": (TEXT, "(GB/s)", "(furlongs)", "line 10: unit: must be GB/s or MB/s, got 'furlongs'"),
    "text size": (
        TEXT,
        "   1000",
        "   -1000",
        "line 10: size: must be a whole number of bytes up to 1125899906842624, got '-1000'",
    ),
    "text direction": (
        TEXT,
        " Device to Host",
        "Device Host",
        "line 16: direction: must be told before the sizes",
    ),
    "csv size": (
        CSV,
        "32000000",
        "-1",
        "line 6: size: must be a whole number of bytes up to 1125899906842624, got '-1'",
    ),
    "csv half a line": (
        CSV,
        ", NumDevsUsed = 1\nbandwidthTest-D2H",
        "\nbandwidthTest-D2H",
        "line 6: must have Bandwidth, Time, Size and NumDevsUsed, got",
    ),
    "hip cut": (HIP, HIP.splitlines()[-1] + "\n", "", "line 7: the log is cut off: 3 bandwidths, but 2 times, got"),
    "hip zero": (HIP, "ms        0.0245", "ms        0.0", f"line 5: median: {POSITIVE}, got '0.0'"),
    "hip half a row": (HIP, "  0.0232  0.7821", "", "line 5: must have 8 values, has 6, got"),
    "hip size": (HIP, "Timepinned      +064By", "Timepinned      64", "line 5: size: must be like +064By or 2kB"),
    "hip unit": (HIP, "2kB           ms", "2kB           us", "line 6: unit: must be ms, got 'us'"),
    "gpu_copy zero": (GPU_COPY, "12.8", "0", f"line 2: gpu0_to_cpu_by_dma_under_numa1: {POSITIVE}, got '0'"),
    "gpu_copy cut": (GPU_COPY, " 256", "", f"line 4: gpu0_to_gpu1_write_by_sm: {POSITIVE}, got ''"),
    "gpu_copy label": (GPU_COPY, "gpu0_to_cpu", "gpu0_zu_cpu", "line 2: must be a name such as gpu0_to_cpu_by_dma"),
    "nvbandwidth negative": (NVBANDWIDTH, "32.00", "-3", f"line 14: host_to_device_memcpy_ce: {POSITIVE}, got '-3'"),
    "nvbandwidth cut row": (NVBANDWIDTH, "    256.00", "", "line 31: must have 2 values behind its name, got"),
    "nvbandwidth cut rows": (
        NVBANDWIDTH,
        " 1    128.00      0.00\n",
        "",
        "line 30: rows: must be 2: the matrix is cut off, got 1",
    ),
    "nvbandwidth no matrix": (
        NVBANDWIDTH,
        NVBANDWIDTH[NVBANDWIDTH.index("memcpy SM") :],
        "",
        "line 28: must be the bandwidth (GB/s) of device_to_device_memcpy_read_sm, with its matrix, got",
    ),
}


@pytest.mark.parametrize(("text", "good", "bad", "message"), BAD.values(), ids=BAD)
def test_a_bad_log_is_refused_with_line_and_value(problem, text, good, bad, message):
    assert good in text

    assert problem(text.replace(good, bad, 1)).startswith(message)


def test_a_log_of_two_devices_is_refused(problem):
    both = TEXT.replace(" Quick Mode", " Device 1: Tesla V100-PCIE-32GB\n Quick Mode")

    assert problem(both) == "devices: must be 1: the bandwidths are sums over all of them, got 2"


@pytest.mark.parametrize("text", ["", "hello\n", "cpu_to_nowhere 5\n"])
def test_what_is_no_log_is_refused(problem, text):
    assert problem(text).startswith("line 1: ")


def test_a_log_without_a_copy_is_refused(problem):
    assert "ends without a copy" in problem("[CUDA Bandwidth Test] - Starting...\nResult = PASS\n")


@given(st.sampled_from(sorted(LOGS)), st.integers(0, 10_000), st.binary(max_size=3))
def test_whatever_a_log_is_damaged_to_it_is_read_or_refused_in_one_line(tmp_path_factory, which, at, junk):
    path = tmp_path_factory.mktemp("fuzz") / "sweep.log"
    whole = LOGS[which].encode()
    path.write_bytes(whole[: at % len(whole)] + junk + whole[at % len(whole) + len(junk) :])

    problem = ""
    try:
        trace = read_bandwidth_log(path)
    except FileError as error:
        problem = str(error)
    else:
        assert (trace.events["duration_s"] > 0).all()
    assert "\n" not in problem


# --- measured logs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "num_copies", "ends"),
    [
        ("cuda_memory_h2d_bw", 81, {("pinned", "device")}),
        ("cuda_memory_d2d_bw", 81, {("device", "device")}),
        ("rocm_memory_h2d_bw", 23, {("pinned", "device")}),
        ("gpu_copy_bw_performance", 64, {("pinned", "device"), ("device", "pinned"), ("device", "device")}),
    ],
)
def test_the_logs_of_superbench_are_read(data_dir, name, num_copies, ends):
    trace = read_bandwidth_log(data_dir / f"superbench/{name}.log")

    assert len(trace.events) == num_copies
    assert set(zip(trace.events["source"], trace.events["destination"], strict=True)) == ends


def test_the_times_that_bandwidth_test_prints_beside_are_those_read(data_dir):
    path = data_dir / "superbench/cuda_memory_h2d_bw.log"
    printed_s = [float(line.split("Time = ")[1].split()[0]) for line in path.read_text().splitlines() if "Time" in line]

    read_s = read_bandwidth_log(path).events["duration_s"]

    for one_s, other_s in zip(read_s[40:], printed_s[40:], strict=True):
        assert abs(one_s - other_s) <= 5e-6 + 0.01 * other_s
