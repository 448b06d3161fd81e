"""What a Kineto trace says about itself and its machine, as text facts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stepsim.traces.kineto_sizes import is_size


def facts_of(path: str | Path, header: Mapping[str, Any], devices: list[int]) -> dict[str, str]:
    """Text facts: format, file, versions, place in a distributed job, and each GPU's name and memory."""
    facts = {"format": "kineto", "file": Path(path).name}
    for key, value in header.items():
        if key.endswith("_version") or key in ("schemaVersion", "baseTimeNanoseconds"):
            facts[key] = str(value)
    distributed = header.get("distributedInfo")
    if isinstance(distributed, dict):
        facts |= {key: str(distributed[key]) for key in ("backend", "rank", "world_size") if key in distributed}
    listed = header.get("deviceProperties")
    known = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    for device in devices:
        facts |= _gpu_facts(device, known)
    return facts


def _gpu_facts(device: int, known: list[dict[str, Any]]) -> dict[str, str]:
    """By id, or from the only entry: on AMD the ids of kernels count host processors too."""
    of_id = [entry for entry in known if entry.get("id") == device] or (known if len(known) == 1 else [])
    if not of_id:
        return {f"gpu{device}": "not named in the file"}
    facts = {f"gpu{device}": str(of_id[0].get("name"))}
    memory_bytes = of_id[0].get("totalGlobalMem")
    if is_size(memory_bytes) and memory_bytes:
        facts[f"gpu{device} memory_bytes"] = str(memory_bytes)
    return facts
