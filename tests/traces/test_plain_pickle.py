"""Pickles of plain containers are read; whatever could import, call or blow up is refused, and nothing happens."""

import os
import pickle
import pickletools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces import plain_pickle
from stepsim.traces.plain_pickle import LARGEST_FILE_BYTES, load_plain, looks_like_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner), max_leaves=30
)

SAMPLE = {
    "segments": [{"address": 2**63, "size": 70_000, "name": "ä\n", "is": True, "not": False, "none": None}],
    "trace": [[{"time": -1, "ratio": 1.5, "pool": (0, 0), "three": (1, 2, 3), "one": (7,), "four": (1, 2, 3, 4)}], ()],
    "long": "x" * 300,
}


def load(folder, content):
    path = folder / "snapshot.pickle"
    path.write_bytes(content)
    return load_plain(path)


def typed(value):
    """A value with its types, because 1 == True == 1.0."""
    match value:
        case dict():
            return dict, [(typed(key), typed(inner)) for key, inner in value.items()]
        case list() | tuple():
            return type(value), [typed(inner) for inner in value]
    return type(value), value


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_containers_come_back_with_their_types(tmp_path, protocol):
    assert typed(load(tmp_path, pickle.dumps(SAMPLE, protocol))) == typed(SAMPLE)


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_bytes_come_back(tmp_path, protocol):
    value = {"short": b"\x00\xff", "long": b"x" * 300}

    assert load(tmp_path, pickle.dumps(value, protocol)) == value


@given(value=PLAIN, protocol=st.sampled_from(PROTOCOLS))
def test_whatever_is_plain_comes_back(tmp_path_factory, value, protocol):
    folder = tmp_path_factory.getbasetemp()

    assert typed(load(folder, pickle.dumps(value, protocol))) == typed(value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_shared_stays_shared(tmp_path, protocol):
    frames = ["frame"]

    first, second = load(tmp_path, pickle.dumps([frames, frames], protocol))

    assert first is second


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_list_that_holds_itself_through_a_tuple_comes_back(tmp_path, protocol):
    """Pickle writes such a tuple, then drops it for the one in the memo."""
    knot = []
    knot.append((knot, 1))

    loaded = load(tmp_path, pickle.dumps(knot[0], protocol))

    assert loaded[0][0] is loaded
    assert loaded[1] == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickled_dictionary_is_told_by_its_first_byte(protocol):
    assert looks_like_pickle(pickle.dumps(SAMPLE, protocol))
    assert not looks_like_pickle(b"")
    assert not looks_like_pickle(b"{")


# --- what is refused --------------------------------------------------------------------------------------------------


class Calls:
    """Pickled, it is a call of ``function``."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.fixture
def marker(tmp_path):
    """A file that a pickle would make if anything in it was executed."""
    marker = tmp_path / "executed"
    yield marker
    assert not marker.exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrap", [lambda call: call, lambda call: {"a": [{"b": (1, call)}]}], ids=["bare", "nested"])
def test_a_call_is_refused_by_the_name_of_what_it_would_call(tmp_path, marker, protocol, wrap):
    content = pickle.dumps(wrap(Calls(os.system, f"touch {marker}")), protocol)

    with pytest.raises(FileError, match=r"byte \d+: opcode (STACK_)?GLOBAL is refused: .* got '(posix|nt) system'"):
        load(tmp_path, content)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_eval_is_refused(tmp_path, marker, protocol):
    content = pickle.dumps([Calls(eval, f"open({str(marker)!r}, 'w')")], protocol)

    with pytest.raises(FileError, match=r"GLOBAL is refused: .* got '(builtins|__builtin__) eval'"):
        load(tmp_path, content)


def test_a_pickle_that_would_be_executed_by_pickle_is_such_a_pickle(tmp_path):
    """The pickles of these tests are live: Python's own loader runs them."""
    target = tmp_path / "executed"

    pickle.loads(pickle.dumps(Calls(os.system, f"touch {target}")))

    assert target.exists()


def test_a_name_from_the_memo_is_refused_like_any_other(tmp_path, marker):
    """``os`` and ``system`` are harmless strings of a list before STACK_GLOBAL joins them."""
    content = b"\x80\x04]\x8c\x02os\x94a\x8c\x06system\x94a0h\x00h\x01\x93\x8c\x04true\x85R."

    with pytest.raises(FileError, match=r"opcode STACK_GLOBAL is refused: .* got 'os system'"):
        load(tmp_path, content)


@pytest.mark.parametrize(
    ("opcode", "content"),
    [
        ("GLOBAL", b"cos\nsystem\n."),
        ("INST", b"(S'true'\nios\nsystem\n."),
        ("INST", b"(ios\nsystem\n."),
        ("STACK_GLOBAL", b"\x80\x04\x8c\x02os\x8c\x06system\x93."),
        ("REDUCE", b"}(tR."),
        ("BUILD", b"}}b."),
        ("OBJ", b"(}o."),
        ("NEWOBJ", b"\x80\x02})\x81."),
        ("NEWOBJ_EX", b"\x80\x04})}\x92."),
        ("EXT1", b"\x80\x02\x82\x01."),
        ("EXT2", b"\x80\x02\x83\x01\x00."),
        ("EXT4", b"\x80\x02\x84\x01\x00\x00\x00."),
        ("PERSID", b"Pname\n."),
        ("BINPERSID", b"}Q."),
        ("NEXT_BUFFER", b"\x80\x05\x97."),
        ("BYTEARRAY8", b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00x."),
        ("EMPTY_SET", b"\x80\x04\x8f."),
        ("FROZENSET", b"\x80\x04(\x91."),
        ("DUP", b"}2."),
        ("STRING", b"S'python 2'\n."),
    ],
)
def test_every_opcode_that_is_not_for_plain_containers_is_refused_by_name(tmp_path, opcode, content):
    content = content if opcode == "STRING" else content.replace(b"S'true'\n", b"Vtrue\n")

    with pytest.raises(FileError, match=rf"opcode {opcode} is refused: only plain containers are read"):
        load(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x.",  # BINUNICODE8
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",  # BINBYTES8
        b"\x80\x04\x96" + struct.pack("<Q", 2**40) + b"x.",  # BYTEARRAY8
        b"\x80\x04\x8d" + struct.pack("<Q", 2**64 - 1) + b"x.",
        b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"x.",  # BINUNICODE
        b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",  # LONG4
        b"\x80\x02\x8b" + struct.pack("<i", -1) + b"x.",
        b"}h\x00.",  # what the memo does not hold
        b"}j" + struct.pack("<I", 2**32 - 1) + b".",
        b"a.",  # a stack with too little
        b"}a.",
        b"u.",
        b"]}(}}u.",
        b"}(]]u.",
        b"}(X\x01\x00\x00\x00au.",  # a key without a value
        b"]](}}u.",
        b"}(\x86u.",
        b"\x86.",
        b"t.",
        b".",
        b"}}.",
        b"}",
        b"\x80",
        b"\xff\xfe",
        b"I12x\n.",
        b"F1,5\n.",
        b"Lx\n.",
        b"V\\ud8\n.",
        b"X\x01\x00\x00\x00\xff.",
    ],
)
def test_a_damaged_pickle_is_refused_with_its_place(tmp_path, content):
    with pytest.raises(FileError, match=r"byte \d+: "):
        load(tmp_path, content)


def test_the_largest_number_in_the_memo_takes_no_room(tmp_path):
    """Python's own loader makes room for all numbers below."""
    last = struct.pack("<I", 2**32 - 1)

    assert load(tmp_path, b"]r" + last + b"0j" + last + b".") == []


def test_a_tuple_of_tuples_of_tuples_is_no_key(tmp_path):
    """Its hash would visit 2**200 leaves."""
    content = b"\x80\x02})" + b"q\x000h\x00h\x00\x86" * 200 + b"}s."

    with pytest.raises(FileError, match="a key is a tuple, not a string"):
        load(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b".",
        b"L" + b"9" * 4000 + b"L\n.",
        b"I" + b"9" * 100_000 + b"\n.",
    ],
)
def test_an_integer_of_more_than_64_bits_is_refused(tmp_path, content):
    with pytest.raises(FileError, match=r"byte 0|byte 2"):
        load(tmp_path, content)


def test_deep_nesting_is_read(tmp_path):
    depth = 100_000

    value = load(tmp_path, b"]" * depth + b"a" * (depth - 1) + b".")

    for _ in range(depth - 1):
        (value,) = value
    assert value == []


def test_a_file_that_is_too_large_is_not_opened(tmp_path):
    path = tmp_path / "large.pickle"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE_BYTES + 1)

    with pytest.raises(FileError, match=rf"size: must be at most {LARGEST_FILE_BYTES} bytes, got"):
        load_plain(path)


def test_more_opcodes_than_the_limit_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_pickle, "MOST_OPCODES", 1000)

    assert load(tmp_path, b"]" + b"]a" * 499 + b".") == [[]] * 499
    with pytest.raises(FileError, match=r"byte 1000: more than 1000 opcodes are not read"):
        load(tmp_path, b"]" + b"]a" * 500 + b".")


def test_archives_of_torch_save_are_refused_in_one_line(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"segments": []}, tmp_path / "model.pt")

    with pytest.raises(FileError, match=r"model\.pt: format: must be a bare pickle: torch\.save writes archives .*'$"):
        load_plain(tmp_path / "model.pt")


def test_files_that_are_not_there_or_empty_are_named(tmp_path):
    with pytest.raises(FileError, match=r"none\.pickle: file: cannot be read"):
        load_plain(tmp_path / "none.pickle")
    with pytest.raises(FileError, match=r"snapshot\.pickle: file: is empty"):
        load(tmp_path, b"")
    with pytest.raises(FileError, match="file: cannot be read"):
        load_plain(tmp_path)


# --- damage of any kind -----------------------------------------------------------------------------------------------

SAFE = (dict, list, tuple, str, bytes, int, float, bool, type(None))


def load_or_refuse(folder, content):
    try:
        value = load(folder, content)
    except FileError as error:
        (value,) = str(error).splitlines()
    assert type(value) in SAFE


@given(
    value=PLAIN,
    protocol=st.sampled_from(PROTOCOLS),
    place=st.integers(0, 10**6),
    byte=st.integers(0, 255),
    cut=st.integers(0, 10**6),
)
def test_a_flipped_byte_or_a_cut_gives_plain_values_or_one_line(tmp_path_factory, value, protocol, place, byte, cut):
    folder, content = tmp_path_factory.getbasetemp(), bytearray(pickle.dumps(value, protocol))
    content[place % len(content)] = byte

    load_or_refuse(folder, bytes(content))
    load_or_refuse(folder, bytes(content[: 1 + cut % len(content)]))


OPCODES = sorted(code.encode("latin-1") for code in pickletools.code2op)


@given(parts=st.lists(st.sampled_from(OPCODES) | st.binary(max_size=3), min_size=1, max_size=40))
def test_opcodes_in_any_order_give_plain_values_or_one_line(tmp_path_factory, parts):
    load_or_refuse(tmp_path_factory.getbasetemp(), b"".join(parts) + b".")
