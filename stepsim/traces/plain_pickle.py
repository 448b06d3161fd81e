"""Reads a pickle that holds only plain containers. It knows no opcode that could import or call anything.

Meaning of the opcodes: Python's pickletools, which decodes them. What is built: dict, list, tuple, str, bytes, int,
float, bool and None. Keys are strings, because hashing a tuple that repeats itself takes time without end.
"""

import pickletools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepsim.errors import FileError

LARGEST_FILE_BYTES = 2**28
MOST_OPCODES = 2**26
"""One byte can build an empty container of some 70 bytes, so that this bounds memory to a few GiB, and time."""

_INT_BITS = 64
"""Sizes and addresses fit; longer numbers cost time without end as soon as they are printed."""


def looks_like_pickle(head: bytes) -> bool:
    """Whether ``head`` begins as a pickled dictionary: PROTO or, in the two oldest protocols, EMPTY_DICT or MARK."""
    return head[:1] in (b"\x80", b"}", b"(")


def load_plain(path: str | Path) -> Any:
    """What the pickle ``path`` holds. Nothing of it is executed.

    Raises `FileError` with the place of the first opcode that builds anything else, and for a file that is damaged,
    cut off or larger than `LARGEST_FILE_BYTES`.
    """
    content = _content(path)
    machine = _Machine()
    place = 0
    try:
        for count, (opcode, argument, at) in enumerate(pickletools.genops(content)):
            place = at or 0
            step = _STEPS.get(opcode.name)
            if step is None:
                raise _refused(path, place, opcode.name, argument, machine)
            if count == MOST_OPCODES:
                raise FileError(path, f"byte {place}", None, f"more than {MOST_OPCODES} opcodes are not read")
            step(machine, argument)
        (value,) = machine.stack
    except FileError:
        raise
    except (ValueError, LookupError) as error:
        raise FileError(path, f"byte {place}", None, f"is no pickle of plain containers: {error}") from error
    return value


def _content(path: str | Path) -> bytes:
    try:
        size_bytes = Path(path).stat().st_size
        if size_bytes > LARGEST_FILE_BYTES:
            raise FileError(path, "size", size_bytes, f"must be at most {LARGEST_FILE_BYTES} bytes")
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    if not content:
        raise FileError(path, "file", None, "is empty")
    if content.startswith(b"PK\x03\x04"):
        raise FileError(path, "format", "zip", "must be a bare pickle: torch.save writes archives of code and tensors")
    return content


def _refused(path: str | Path, place: int, name: str, argument: object, machine: "_Machine") -> FileError:
    """Names the opcode and, where it has one, the object that it asks for."""
    if name == "STACK_GLOBAL":
        argument = " ".join(part for part in machine.stack[-2:] if isinstance(part, str))
    shown = argument if isinstance(argument, str) else None
    return FileError(path, f"byte {place}", shown, f"opcode {name} is refused: only plain containers are read")


class _Machine:
    """The stack machine of a pickle. ``marks`` are the heights of the stack at which containers begin."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: object) -> None:
        self.stack.append(value)

    def push_int(self, value: int) -> None:
        if value.bit_length() > _INT_BITS:
            raise ValueError(f"an integer of {value.bit_length()} bits")
        self.stack.append(value)

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def drop(self) -> None:
        """The top of the stack, which may be a mark."""
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def drop_to_mark(self) -> None:
        self.since_mark()

    def last(self, count: int) -> tuple[Any, ...]:
        if count > len(self.stack):
            raise ValueError("a tuple of more than there is")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise ValueError(f"items are appended to a {type(target).__name__}")
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict:
            raise ValueError(f"keys are set in a {type(target).__name__}")
        target.update(_dict(items))

    def remember(self, number: int | None) -> None:
        self.memo[len(self.memo) if number is None else number] = self.stack[-1]


def _dict(items: list[Any]) -> dict[str, Any]:
    for key in items[::2]:
        if type(key) is not str:
            raise ValueError(f"a key is a {type(key).__name__}, not a string")
    return dict(zip(items[::2], items[1::2], strict=True))


Step = Callable[[_Machine, Any], None]

_STEPS: Mapping[str, Step] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda machine, _: None),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _Machine.push_int),
    **dict.fromkeys(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _Machine.push),
    **dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "FLOAT", "BINFLOAT"), _Machine.push),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.mark(),
    "DICT": lambda machine, _: machine.push(_dict(machine.since_mark())),
    "LIST": lambda machine, _: machine.push(machine.since_mark()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.push(machine.last(1)),
    "TUPLE2": lambda machine, _: machine.push(machine.last(2)),
    "TUPLE3": lambda machine, _: machine.push(machine.last(3)),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.update(list(machine.last(2))),
    "SETITEMS": lambda machine, _: machine.update(machine.since_mark()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, number: machine.push(machine.memo[number])),
    "POP": lambda machine, _: machine.drop(),
    "POP_MARK": lambda machine, _: machine.drop_to_mark(),
}
"""What is understood, by the name that pickletools gives to the opcode."""
