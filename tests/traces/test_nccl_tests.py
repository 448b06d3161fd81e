import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces import read_nccl_tests
from stepsim.traces.nccl_tests import looks_like_nccl_tests

PLAIN = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong"


def rank_lines(num_ranks=4, gpu="NVIDIA H100", num_nodes=1):
    per_node = num_ranks // num_nodes
    return [
        f"#  Rank {rank:2d} Group  0 Pid {40 + rank} on node{rank // per_node} device {rank % per_node:2d} "
        f"[0000:1b:00] {gpu}"
        for rank in range(num_ranks)
    ]


def row(size, *, count=None, time_us=(100.0, 200.0), algbw=None, wrong=("0", "0")):
    count = size // 4 if count is None else count
    told = [f"{size / took / 1e3:.2f}" if algbw is None else algbw for took in time_us]
    cells = [f"{took:.2f} {rate} 1.00 {bad}" for took, rate, bad in zip(time_us, told, wrong, strict=True)]
    return f"{size} {count} float sum -1 {' '.join(cells)}"


def log(*rows, test="all_reduce", ranks=None, before=(), columns=PLAIN, ends=True):
    lines = [
        "# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902",
        f"# Collective test starting: {test}_perf",
        "# nThread 1 nGpus 1 minBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
        *before,
        *(rank_lines() if ranks is None else ranks),
        "#                    out-of-place                 in-place",
        f"#  {columns}",
        "#  (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)",
        *rows,
    ]
    if ends:
        lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 343.554"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def read(tmp_path):
    def reading(text, name="run.log"):
        path = tmp_path / name
        path.write_text(text)
        return read_nccl_tests(path)

    return reading


@pytest.fixture
def problem(read):
    def refusing(text, name="run.log"):
        with pytest.raises(FileError) as caught:
            read(text, name)
        assert "\n" not in str(caught.value)
        return str(caught.value).partition(f"{name}: ")[2]

    return refusing


# --- what is read -----------------------------------------------------------------------------------------------------


def test_each_size_is_a_collective_out_of_place_and_one_in_place(read):
    events = read(log(row(1024), row(2048))).events

    assert events["kind"].unique().tolist() == ["collective"]
    assert events["name"].unique().tolist() == ["all_reduce"]
    assert events["work"].tolist() == ["out_of_place", "in_place"] * 2
    assert events["size_bytes"].tolist() == [1024, 1024, 2048, 2048]
    assert events["duration_s"].tolist() == pytest.approx([100e-6, 200e-6] * 2, rel=1e-12)


@pytest.mark.parametrize(
    ("test", "kind", "elements", "contributed"),
    [
        ("all_reduce", "all_reduce", 1024, 4096),
        ("broadcast", "broadcast", 1024, 4096),
        ("sendrecv", "send_receive", 1024, 4096),
        ("reduce_scatter", "reduce_scatter", 256, 4096),
        ("alltoall", "all_to_all", 256, 4096),
        ("all_gather", "all_gather", 256, 1024),
    ],
)
def test_a_size_is_what_each_of_four_members_contributes(read, test, kind, elements, contributed):
    events = read(log(row(4096, count=elements), test=test)).events

    assert events["name"].unique().tolist() == [kind]
    assert events["size_bytes"].tolist() == [contributed] * 2


def test_events_lie_one_behind_the_other(read):
    trace = read(log(row(1024), row(2048)))

    ends_s = trace.events["start_s"] + trace.events["duration_s"]
    assert trace.events["start_s"].tolist() == pytest.approx([0.0, *ends_s[:-1]], rel=1e-12)
    assert "not recorded" in trace.provenance["start_s"]


def test_provenance_has_group_gpus_versions_and_settings(read):
    told = [
        "node0:1:1 [0] NCCL INFO NCCL version 2.29.2+cuda12.8",
        "node0:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
    ]

    facts = read(log(row(1024), ranks=rank_lines(4, num_nodes=2), before=told)).provenance

    assert (facts["ranks"], facts["nodes"], facts["gpus"], facts["gpu0"]) == (
        "4",
        "2",
        "4 x NVIDIA H100",
        "NVIDIA H100",
    )
    assert (facts["nccl_tests_version"], facts["nccl_library"]) == ("2.17.8", "22902")
    assert (facts["nccl_version"], facts["NCCL_ALGO"], facts["iterations"]) == ("2.29.2+cuda12.8", "Ring", "20")


def test_several_tests_of_one_group_are_one_trace(read):
    text = log(row(1024)) + "\n" + log(row(4096, count=256), test="all_gather")

    assert read(text).events["name"].tolist() == ["all_reduce"] * 2 + ["all_gather"] * 2


def old_log(*rows, columns="size count type time algbw busbw error time algbw busbw error"):
    ranks = [f"#   Rank {rank:2d} Pid 112 on localhost device {rank:2d} [0x00] A100-SXM4-40GB" for rank in range(2)]
    return "\n".join([*ranks, f"# {columns}", *rows, "# Avg bus bandwidth : 1.0"]) + "\n"


@pytest.mark.parametrize("name", ["nccl_allgather.log", "all_gather_perf.txt", "All-Gather.log"])
def test_an_older_log_is_the_collective_that_the_file_is_named_after(read, name):
    trace = read(old_log("64 8 float 32.0 0.00 0.00 N/A 31.0 0.00 0.00 N/A"), name)

    assert trace.events["name"].unique().tolist() == ["all_gather"]
    assert trace.events["size_bytes"].tolist() == [32, 32]


def test_lines_of_other_programs_between_the_rows_are_passed_over(read):
    text = log("host:34:34 [0] NCCL INFO Launch mode Parallel", row(1024), "", "# a remark")

    assert len(read(text).events) == 2


def test_the_tags_that_mpirun_puts_before_each_line_are_passed_over(read):
    plain = log(row(1024))
    tagged = "".join(f"[1,0]<stdout>: {line}\n" for line in plain.splitlines())

    assert read(tagged).events.equals(read(plain).events)


def test_a_placement_that_was_not_measured_is_no_event(read):
    text = log("1024 256 float none -1 100.0 0.01 0.01 0 N/A N/A N/A N/A")

    assert read(text).events["work"].tolist() == ["out_of_place"]


def test_a_column_of_a_newer_version_is_passed_over_with_one_warning(read):
    two = log(row(1024) + " 7", columns=f"{PLAIN} energy") + log(row(2048) + " 8", columns=f"{PLAIN} energy")

    with pytest.warns(UserWarning, match=r"run\.log: columns that are not known are left out: 'energy'") as caught:
        trace = read(two)

    assert len(caught) == 1
    assert len(trace.events) == 4


def test_a_size_of_zero_keeps_its_time(read):
    events = read(log(row(0))).events

    assert events["size_bytes"].tolist() == [0, 0]
    assert (events["duration_s"] > 0).all()


# --- what is refused --------------------------------------------------------------------------------------------------

BAD_ROWS = {
    "negative size": (row(-1024), "line 11: size: must be a whole number of bytes up to 1125899906842624, got '-1024'"),
    "size that is no number": (
        row(1024).replace("1024", "1K", 1),
        "line 11: size: must be a whole number of bytes up to 1125899906842624, got '1K'",
    ),
    "absurd size": (
        row(2**60),
        f"line 11: size: must be a whole number of bytes up to 1125899906842624, got '{2**60}'",
    ),
    "zero time": (row(1024, algbw="0").replace("100.00", "0"), "line 11: time: must be a number > 0, got '0'"),
    "negative time": (row(1024).replace("100.00", "-1"), "line 11: time: must be a number > 0, got '-1'"),
    "no number": (row(1024).replace("100.00", "soon"), "line 11: time: must be a number > 0, got 'soon'"),
    "infinite": (row(1024).replace("200.00", "inf"), "line 11: time: must be a number > 0, got 'inf'"),
    "wrong results": (row(1024, wrong=("0", "3")), "line 11: #wrong: must be 0: the results were wrong, got '3'"),
    "bandwidth of another time": (
        row(1 << 20, algbw="99.00"),
        "line 11: algbw: must be size by time, 10.49 GB/s, got '99.00'",
    ),
    "bandwidth that is no number": (row(1024, algbw="x"), "line 11: algbw: must be size by time, 0.01 GB/s, got 'x'"),
    "size of other elements": (
        row(1024, count=7),
        "line 11: size: must be 7 elements of 4 B, 1 times, for all_reduce of 4 ranks, got 1024",
    ),
    "half a row": ("1024 256 float sum", "line 11: must have 13 values, has 4, got '1024 256 float sum'"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_with_line_and_value(problem, bad, message):
    assert problem(log(bad)) == message


def test_a_log_without_its_end_is_cut_off(problem):
    text = log(row(1024), ends=False)

    assert problem(text).startswith("line 11: the log is cut off: 'Avg bus bandwidth' must follow, got '1024 256")


def test_a_second_test_without_its_end_is_cut_off(problem):
    assert "line 24: the log is cut off" in problem(log(row(1024)) + log(row(2048), ends=False))


@pytest.mark.parametrize(
    ("text", "said"), [("", "is empty"), (" \n", "is empty"), ("hello\n", "no table"), ("a\0", "no text")]
)
def test_what_is_no_log_is_refused(problem, text, said):
    assert problem(text).startswith("line 1: ")
    assert said in problem(text)


def test_a_table_without_rows_is_refused(problem):
    assert "no size was measured in this test of all_reduce" in problem(log())


def test_a_missing_column_is_named(problem):
    assert "must have 'count'" in problem(log(row(1024), columns=PLAIN.replace("count", "N")))


def test_ranks_on_different_gpus_are_refused(problem):
    ranks = [*rank_lines(2), rank_lines(3, gpu="NVIDIA A100")[2]]

    assert problem(log(row(1024), ranks=ranks)) == (
        "line 6: GPU: must be NVIDIA H100, as of the ranks before, got 'NVIDIA A100'"
    )


def test_the_same_rank_twice_is_refused(problem):
    assert "line 5: rank: is there twice in one test, got 0" in problem(log(ranks=rank_lines(1) * 2))


def test_a_rank_of_thousands_of_digits_is_no_rank(problem):
    absurd = [rank_lines(1)[0].replace("Rank  0", f"Rank {'9' * 5000}")]

    assert "no line '# Rank ...'" in problem(log(row(1024), ranks=absurd))


def test_a_table_of_another_tool_with_the_same_columns_is_no_log():
    assert not looks_like_nccl_tests(b"size_bytes,count,time_us,algbw_gb_per_s,busbw_gb_per_s\n")
    assert looks_like_nccl_tests(log(row(1024)).encode())
    assert looks_like_nccl_tests(f"[1,0]<stdout>: #  {PLAIN}\n".encode())


def test_a_log_may_be_gzipped(tmp_path):
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(log(row(1024)).encode()))

    assert len(read_nccl_tests(path).events) == 2


def test_a_log_without_ranks_is_refused(problem):
    assert "line 1: ranks: must be >= 1" in problem(log(row(1024), ranks=[]))


def test_tests_of_two_groups_are_refused(problem):
    text = log(row(1024)) + log(row(1024), ranks=rank_lines(2))

    assert problem(text).startswith("line 14: ranks: must be as many and the same as in the first test")


def test_a_collective_that_stepsim_does_not_know_is_refused(problem):
    assert "line 1: collective: must be one of allreduce, allgather" in problem(log(row(1024), test="hypercube"))


def test_an_older_log_under_a_name_that_tells_nothing_is_refused(problem):
    text = old_log("64 16 float 32.0 0.00 0.00 N/A 31.0 0.00 0.00 N/A")

    assert "the log does not say which: name the file after one of" in problem(text, "run7.log")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        read_nccl_tests(tmp_path / "none.log")


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(st.integers(0, 10_000), st.binary(max_size=3))
def test_whatever_a_log_is_damaged_to_it_is_read_or_refused_in_one_line(tmp_path_factory, at, junk):
    path = tmp_path_factory.mktemp("fuzz") / "all_reduce.log"
    whole = log(row(1024), row(2048)).encode()
    path.write_bytes(whole[: at % len(whole)] + junk + whole[at % len(whole) + len(junk) :])

    problem = ""
    try:
        trace = read_nccl_tests(path)
    except FileError as error:
        problem = str(error)
    else:
        assert (trace.events["duration_s"] > 0).all()
    assert "\n" not in problem


@given(st.integers(0, 10_000))
def test_a_log_cut_anywhere_before_its_end_is_refused(tmp_path_factory, at):
    path = tmp_path_factory.mktemp("cut") / "all_reduce.log"
    whole = log(row(1024), row(2048))
    path.write_text(whole[: at % whole.index("Avg bus")])

    with pytest.raises(FileError):
        read_nccl_tests(path)


# --- measured logs ----------------------------------------------------------------------------------------------------


def test_the_logs_of_an_h100_node_have_five_collectives_at_ten_sizes(data_dir):
    logs = sorted((data_dir / "nccl_tests_cluster").glob("**/*.log"))
    assert logs

    for path in logs:
        trace = read_nccl_tests(path)
        counts = trace.events.groupby("name").size().to_dict()

        kinds = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter", "send_receive")
        assert counts == dict.fromkeys(kinds, 20)
        assert trace.provenance["gpus"] == f"{trace.provenance['ranks']} x NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "broadcast"])
def test_the_logs_of_an_a100_node_hold_34_sizes(data_dir, kind):
    trace = read_nccl_tests(data_dir / f"superbench/nccl_{kind.replace('_', '')}.log")

    assert trace.events["name"].tolist() == [kind] * 68
    assert trace.events["size_bytes"].max() == 2**33 // (8 if kind == "all_gather" else 1)
