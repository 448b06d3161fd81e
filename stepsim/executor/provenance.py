"""What a trace says of the device that it was recorded on, and of all that its times depend on."""

import datetime
import platform
import shutil
import subprocess
from collections.abc import Sequence

import torch

from stepsim.executor.bound import BoundProgram
from stepsim.machines.this_cpu import processor


def provenance_of(programs: Sequence[BoundProgram], repeats: int) -> dict[str, str]:
    """Text facts of a recording of ``programs``, which are on one device."""
    device = programs[0].device
    return {
        "source": "stepsim record",
        **(_of_cpu() if device.type == "cpu" else _of_gpu(device)),
        "processor": processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "repeats": str(repeats),
        "workloads": ", ".join(f"{bound.workload.name} (batch {bound.workload.batch})" for bound in programs),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _of_cpu() -> dict[str, str]:
    return {"machine": "this_cpu", "threads": str(torch.get_num_threads())}


def _of_gpu(device: torch.device) -> dict[str, str]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "machine": "this_gpu",
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sms": str(properties.multi_processor_count),
        "memory_bytes": str(properties.total_memory),
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "convolution_tf32": str(torch.backends.cudnn.allow_tf32),
        "matmul_tf32": str(torch.backends.cuda.matmul.allow_tf32),
    }


def _driver() -> str:
    """What nvidia-smi says, which is the same for all GPUs of a machine."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "unknown: no nvidia-smi"
    asked = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        ran = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: nvidia-smi: {type(error).__name__}"
    return ran.stdout.partition("\n")[0].strip() or "unknown: nvidia-smi said nothing"
