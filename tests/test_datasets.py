"""Fetching public measurements, from a server on loopback: no test touches the network."""

import gzip
import hashlib
import re
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from command_line import done, refused

from stepsim import StepsimError, datasets
from stepsim.datasets import DataFile, data_folder, fetch, files_named, is_present, known_files

LOG = b"size time\n8 1.5\n" * 100

CHANGED = b"size time\n8 9.9\n" * 100


def known(file="logs/a.log", path="runs/a.log", content=LOG):
    return DataFile(
        file=file,
        repository="someone/bench",
        commit="c0ffee",
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        licence="MIT",
    )


@contextmanager
def serving(answer):
    """The address of a server that gives each request to ``answer(handler)``; ``asked`` holds the paths."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer(self)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sends(content, *, promised=None):
    """Answers with ``content``, whose length is said to be ``promised``."""

    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content) if promised is None else promised))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def breaks_off(handler):
    """Half of what was promised, then the connection closes."""
    sends(LOG[: len(LOG) // 2], promised=len(LOG))(handler)


def knows_nothing(handler):
    handler.send_error(404)


def is_silent(handler):
    threading.Event().wait(0.5)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def everything_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


# --- what is fetched --------------------------------------------------------------------------------------------------


def test_a_file_goes_to_its_place_in_the_folder(tmp_path):
    with serving(sends(LOG)) as (address, asked):
        path = fetch(known(), tmp_path, base_url=address)

    assert path == tmp_path / "logs/a.log"
    assert path.read_bytes() == LOG
    assert asked == ["/someone/bench/c0ffee/runs/a.log"]
    assert everything_in(tmp_path) == [path]


def test_a_compressed_copy_holds_the_original_and_is_the_same_file_each_time(tmp_path):
    file = known(file="logs/a.log.gz")

    with serving(sends(LOG)) as (address, _):
        first = fetch(file, tmp_path / "1", base_url=address).read_bytes()
        second = fetch(file, tmp_path / "2", base_url=address).read_bytes()

    assert gzip.decompress(first) == LOG
    assert first == second


def test_an_original_that_is_compressed_is_kept_as_it_is(tmp_path):
    original = gzip.compress(LOG)
    file = known(file="logs/a.log.gz", path="runs/a.log.gz", content=original)

    with serving(sends(original)) as (address, _):
        path = fetch(file, tmp_path, base_url=address)

    assert path.read_bytes() == original
    assert is_present(file, tmp_path)


def test_what_stands_in_an_address_for_itself_only_is_escaped():
    assert known(path="runs/a b#1?.log").url("http://x") == "http://x/someone/bench/c0ffee/runs/a%20b%231%3F.log"


# --- what is there ----------------------------------------------------------------------------------------------------


def write(folder, file, content):
    path = folder / file.file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("content", "present"),
    [(LOG, True), (CHANGED, False), (LOG[:-1], False), (LOG + b" ", False), (b"", False)],
    ids=["whole", "changed", "truncated", "longer", "empty"],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_present_when_it_is_whole_and_unchanged(tmp_path, content, present, compressed):
    file = known(file="logs/a.log.gz" if compressed else "logs/a.log")
    write(tmp_path, file, gzip.compress(content) if compressed else content)

    assert is_present(file, tmp_path) is present


@pytest.mark.parametrize(
    "content", [b"", LOG, gzip.compress(LOG, mtime=0)[:-9], gzip.compress(LOG, mtime=0)[:-30] + bytes(30)]
)
def test_a_damaged_compressed_copy_is_not_present(tmp_path, content):
    file = known(file="logs/a.log.gz")
    write(tmp_path, file, content)

    assert not is_present(file, tmp_path)


def test_a_folder_in_its_place_or_nothing_at_all_is_not_the_file(tmp_path):
    (tmp_path / "1/logs/a.log").mkdir(parents=True)

    assert not is_present(known(), tmp_path / "1")
    assert not is_present(known(), tmp_path / "2")


# --- what goes wrong --------------------------------------------------------------------------------------------------

FAILURES = {
    "corrupted": (sends(CHANGED), "another checksum than the known one: not kept"),
    "broken off": (breaks_off, "the download broke off"),
    "unknown there": (knows_nothing, "the server answered 404"),
    "silent": (is_silent, "the server was silent for 0.1 s"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_download_that_fails_says_why_and_leaves_nothing(tmp_path, monkeypatch, failure):
    answer, problem = FAILURES[failure]
    monkeypatch.setattr(datasets, "TIMEOUT_S", 0.1)

    with serving(answer) as (address, asked), pytest.raises(StepsimError) as caught:
        fetch(known(), tmp_path, base_url=address)

    assert str(caught.value) == f"logs/a.log: {address}{asked[0]}: {problem}"
    assert everything_in(tmp_path) == []


def test_a_failed_download_keeps_what_was_there(tmp_path):
    write(tmp_path, known(), CHANGED)

    with serving(breaks_off) as (address, _), pytest.raises(StepsimError):
        fetch(known(), tmp_path, base_url=address)

    assert [path.read_bytes() for path in everything_in(tmp_path)] == [CHANGED]


def test_without_a_network_the_server_cannot_be_reached(tmp_path):
    with serving(sends(LOG)) as (address, _):
        pass

    with pytest.raises(StepsimError, match="the server cannot be reached"):
        fetch(known(), tmp_path, base_url=address)

    assert everything_in(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "logs").write_text("a file where a folder should be")

    with serving(sends(LOG)) as (address, _), pytest.raises(StepsimError, match=r"logs/a\.log: output: cannot be"):
        fetch(known(), tmp_path, base_url=address)


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_row_of_the_table_is_whole():
    for file in known_files():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", file.repository), file
        assert re.fullmatch(r"[0-9a-f]{40}", file.commit), file
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256), file
        assert file.size_bytes > 0, file
        assert file.licence, file
        assert not Path(file.file).is_absolute(), file
        assert ".." not in Path(file.file).parts, file


def test_no_place_is_given_twice():
    places = [file.file for file in known_files()]

    assert len(set(places)) == len(places)


def test_a_name_is_a_file_or_a_folder_and_counts_once():
    (graph, *_) = files_named(["pipedream"])

    assert files_named([graph.file]) == [graph]
    assert files_named([graph.file, "pipedream/", graph.file]) == files_named(["pipedream"])
    assert files_named([]) == list(known_files())


@pytest.mark.parametrize("name", ["pipe", "", "/", "nothing", "../pipedream", "pipedream/profiles/nothing"])
def test_an_unknown_name_is_refused_with_those_that_there_are(name):
    with pytest.raises(StepsimError, match=r"^unknown data '.*'; known: chakra, "):
        files_named([name])


def test_the_folder_is_that_of_the_variable_else_a_cache_of_the_user(monkeypatch):
    monkeypatch.setenv("STEPSIM_DATA", "here/data")
    assert data_folder() == Path("here/data")

    for unset in (lambda: monkeypatch.setenv("STEPSIM_DATA", ""), lambda: monkeypatch.delenv("STEPSIM_DATA")):
        unset()
        assert data_folder().name == "stepsim"
        assert data_folder().is_absolute()


def test_the_checksums_of_the_table_are_those_of_the_measured_data(data_dir):
    absent = [file.file for file in known_files() if not is_present(file, data_dir)]

    assert absent == []


# --- the commands -----------------------------------------------------------------------------------------------------

TWO = (known(), known(file="more/b.log.gz", path="runs/b.log"))


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Two known files, the working directory empty, and the data in ``data``."""
    monkeypatch.setattr(datasets, "known_files", lambda: TWO)
    monkeypatch.setenv("STEPSIM_DATA", "data")
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def test_fetch_says_how_many_it_fetched_and_fetches_nothing_twice(two):
    with serving(sends(LOG)) as (address, asked):
        two.setattr(datasets, "fetch", partial(fetch, base_url=address))
        one = done("data", "fetch", "more", "--json")
        rest = done("data", "fetch")
        nothing = done("data", "fetch")

    assert one.facts == {"folder": "data", "fetched": ["more/b.log.gz"]}
    assert rest.out == "1 fetched, 1 were there -> data\n"
    assert nothing.out == "0 fetched, 2 were there -> data\n"
    assert len(asked) == 2


@pytest.mark.parametrize("failure", [name for name in FAILURES if name != "silent"])
def test_a_fetch_that_fails_is_one_line_and_nothing_is_half_written(two, failure):
    answer, problem = FAILURES[failure]
    with serving(answer) as (address, _):
        two.setattr(datasets, "fetch", partial(fetch, base_url=address))

        message = refused("data", "fetch", "logs")

    assert message.startswith("logs/a.log: http://127.0.0.1:")
    assert message.endswith(problem)


def test_list_tells_what_is_here(two, tmp_path):
    write(tmp_path / "data", TWO[0], LOG)

    ran = done("data", "list", "--json")

    assert [(fact["file"], fact["here"]) for fact in ran.facts["files"]] == [
        ("logs/a.log", True),
        ("more/b.log.gz", False),
    ]
    assert ran.facts["files"][0]["source"] == "someone/bench:runs/a.log@c0ffee"
    assert re.search(r"logs/a.log +1.56 KiB +yes +MIT +someone/bench", ran.out)
    assert re.search(r"more/b.log.gz +1.56 KiB +no ", ran.out)


def test_path_tells_the_folder(two):
    assert done("data", "path").out == "data\n"
    assert done("data", "path", "--json").facts == {"folder": "data"}


def test_an_unknown_name_is_one_line(two):
    assert refused("data", "fetch", "kepler") == (
        "unknown data 'kepler'; known: logs, more, and what stepsim data list names"
    )
