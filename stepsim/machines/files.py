"""Machine descriptions: one TOML file a machine, written by people, every number with its source."""

import platform
import tomllib
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stepsim.errors import FileError, MachineError
from stepsim.machines.machine import Device, DeviceKind, Link, Machine, Route
from stepsim.tables import write_bytes

SHIPPED = Path(__file__).parent


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Device(_Strict):
    name: str
    kind: Literal["gpu", "cpu", "host"]
    model: str = ""
    memory_bytes: int
    peak_flop_per_s: dict[str, float] = Field(default_factory=dict)
    memory_bandwidth_bytes_per_s: float = 0.0
    num_sms: int = 0
    copy_engines: int = 1
    sources: dict[str, str]


class _Link(_Strict):
    name: str
    latency_s: float
    bandwidth_bytes_per_s: float
    sources: dict[str, str]


class _Route(_Strict):
    source: str
    destination: str
    links: list[str]


class _Machine(_Strict):
    name: str
    description: str = ""
    devices: list[_Device]
    links: list[_Link] = Field(default_factory=list)
    routes: list[_Route] = Field(default_factory=list)


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
    if path.suffix != ".toml":
        path = SHIPPED / f"{name_or_path}.toml"
        if str(name_or_path) not in shipped_machines():
            known = ", ".join((*shipped_machines(), "this_cpu"))
            raise MachineError(f"unknown machine {str(name_or_path)!r}; known: {known}, or a path to a .toml file")
    return _read(path)


def _read(path: Path) -> Machine:
    try:
        body = _Machine.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        raise FileError(path, "file", None, f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(path, "file", None, f"is not TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise FileError(path, field, first["input"], first["msg"].lower()) from error
    try:
        return _machine(body)
    except ValueError as error:
        raise FileError(path, "machine", None, str(error)) from error


def _machine(body: _Machine) -> Machine:
    return Machine(
        name=body.name,
        description=body.description,
        devices=tuple(Device(**{**entry.model_dump(), "kind": DeviceKind(entry.kind)}) for entry in body.devices),
        links=tuple(Link(**entry.model_dump()) for entry in body.links),
        routes=tuple(Route(**{**entry.model_dump(), "links": tuple(entry.links)}) for entry in body.routes),
    )


def save_machine(machine: Machine, path: str | Path) -> None:
    """Write ``machine`` as TOML."""
    body: dict[str, Any] = {"name": machine.name, "description": machine.description}
    body["devices"] = [_fields(device) for device in machine.devices]
    body["links"] = [_fields(link) for link in machine.links]
    body["routes"] = [_fields(route) for route in machine.routes]
    write_bytes(path, tomli_w.dumps(body).encode())


def _fields(noun: Device | Link | Route) -> dict[str, Any]:
    """Fields in order, with empty texts left out."""
    found = {name: getattr(noun, name) for name in noun.__slots__}
    plain = {name: str(value) if isinstance(value, DeviceKind) else value for name, value in found.items()}
    return {name: value for name, value in plain.items() if value != ""}


def this_cpu() -> Machine:
    """The machine this runs on: its processor as ``cpu0`` and host memory for swapped-out tensors.

    A copy between the two is a copy in memory; `stepsim.costmodels` measures what it costs. Until then the link's
    bandwidth is a bound that no copy reaches.
    """
    memory_bytes = _memory_bytes()
    model = processor()
    told = "reported by the operating system"
    unmeasured = "no bound: a calibration says what a copy in memory costs"
    sources = {"latency_s": unmeasured, "bandwidth_bytes_per_s": unmeasured}
    links = [
        Link(name=name, latency_s=0.0, bandwidth_bytes_per_s=1e12, sources=sources)
        for name in ("cpu0 to host", "host to cpu0")
    ]
    return Machine(
        name="this_cpu",
        description=f"{model}, {platform.system()}",
        devices=(
            Device(
                name="cpu0",
                kind=DeviceKind.CPU,
                model=model,
                memory_bytes=memory_bytes,
                sources={"memory_bytes": told},
            ),
            Device(name="host", kind=DeviceKind.HOST, memory_bytes=memory_bytes, sources={"memory_bytes": told}),
        ),
        links=tuple(links),
        routes=(
            Route(source="cpu0", destination="host", links=(links[0].name,)),
            Route(source="host", destination="cpu0", links=(links[1].name,)),
        ),
    )


def _memory_bytes() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor() -> str:
    """The processor's name as the operating system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
