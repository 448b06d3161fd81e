"""Machine files: TOML, written by people, every number with its source."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from pydantic import BaseModel, ValidationError

from stepsim.errors import FileError, MachineError
from stepsim.machines.cluster import cluster
from stepsim.machines.description import ClusterFile, MachineFile, described
from stepsim.machines.machine import Device, DeviceKind, Link, Machine, Route
from stepsim.machines.this_cpu import this_cpu
from stepsim.tables import write_bytes

SHIPPED = Path(__file__).parent

Form = TypeVar("Form", bound=BaseModel)


def shipped_machines() -> tuple[str, ...]:
    """Names that `load_machine` knows, besides ``this_cpu``."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load_machine(name_or_path: str | Path) -> Machine:
    """The machine of a TOML file, or a shipped one by name, or ``this_cpu``.

    Raises `MachineError` for an unknown name and `FileError` for a file that does not describe a machine.
    """
    if str(name_or_path) == "this_cpu":
        return this_cpu()
    path = Path(name_or_path)
    return _read(path if path.suffix == ".toml" else _shipped(str(name_or_path)))


def _shipped(name: str) -> Path:
    if name not in shipped_machines():
        known = ", ".join((*shipped_machines(), "this_cpu"))
        raise MachineError(f"unknown machine {name!r}; known: {known}, or a path to a .toml file")
    return SHIPPED / f"{name}.toml"


def _read(path: Path) -> Machine:
    body = _toml(path)
    try:
        if "node" in body:
            return _cluster(path, _checked(path, ClusterFile, body))
        return described(_checked(path, MachineFile, body))
    except MachineError as error:
        raise FileError(path, "machine", None, str(error)) from error


def _cluster(path: Path, file: ClusterFile) -> Machine:
    """A node is a shipped machine, or a file beside the cluster's."""
    is_file = file.node.endswith(".toml")
    if not is_file and file.node not in shipped_machines():
        raise FileError(path, "node", file.node, "must be a shipped machine (see stepsim machines) or a .toml file")
    node = path.parent / file.node if is_file else _shipped(file.node)
    body = _toml(node)
    if "node" in body:
        raise FileError(path, "node", file.node, "must be a machine, not a cluster")
    machine = described(_checked(node, MachineFile, body))
    return cluster(machine, file.count, name=file.name, description=file.description)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(path, "file", None, f"is not TOML: {error}") from error


def _checked(path: Path, form: type[Form], body: dict[str, Any]) -> Form:
    try:
        return form.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise FileError(path, field, first["input"], first["msg"].lower()) from error


def save_machine(machine: Machine, path: str | Path) -> None:
    """Write ``machine`` as TOML, entry by entry."""
    write_bytes(path, tomli_w.dumps(machine_fields(machine)).encode())


def machine_fields(machine: Machine) -> dict[str, Any]:
    """``machine`` in texts, numbers, lists and dictionaries, as its file has them."""
    return {
        "name": machine.name,
        "description": machine.description,
        "devices": [_fields(device) for device in machine.devices],
        "links": [_fields(link) for link in machine.links],
        "routes": [_fields(route) for route in machine.routes],
    }


def _fields(noun: Device | Link | Route) -> dict[str, Any]:
    """Fields in order, without those that say nothing."""
    found = {name: getattr(noun, name) for name in noun.__slots__}
    plain = {name: str(value) if isinstance(value, DeviceKind) else value for name, value in found.items()}
    return {name: value for name, value in plain.items() if value not in ("", None)}
