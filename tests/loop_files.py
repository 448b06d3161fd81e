"""A tiny model in a module of its own, and the files that the commands of the loop make of it."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from command_line import done

MODEL = """
import torch
from torch import nn
from torch.nn import functional


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x, target):
        return functional.cross_entropy(self.body(x), target)


class Branches(Layers):
    def forward(self, x, target):
        if x.sum() > 0:
            return super().forward(x, target)
        return super().forward(-x, target)


def inputs(batch):
    return torch.randn(batch, 8), torch.randint(4, (batch,))


def layers(batch):
    torch.manual_seed(0)
    module = Layers()
    return module, inputs(batch), torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def branches(batch):
    return Branches(), inputs(batch), None


def broken(batch):
    raise RuntimeError("no weights\\nfor this one")


def unfinished(batch):
    return Layers()


def wide(batch):
    return Layers(), (torch.randn(batch, 9), torch.randint(4, (batch,))), None
"""

BATCH = 64

FACTORY = "tiny_cli_model:layers"

KINETO = {
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "tid": 1, "ts": 0, "dur": 40, "args": {}},
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "tid": 1,
            "ts": 5,
            "dur": 5,
            "args": {"correlation": 1},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": "gemm",
            "tid": 7,
            "ts": 10,
            "dur": 20,
            "args": {"device": 0, "stream": 7, "correlation": 1},
        },
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaDeviceSynchronize",
            "tid": 1,
            "ts": 12,
            "dur": 20,
            "args": {"correlation": 2},
        },
    ]
}
"""One step of 40 us: a kernel from 10 to 30, and a thread that waits for it until 32."""


@dataclass(frozen=True)
class Files:
    """One file of each kind, by what it is."""

    machine: Path
    workload: Path
    trace: Path
    calibration: Path
    plan: Path
    timeline: Path
    chrome: Path
    picture: Path
    measured: Path
    comparison: Path
    kineto: Path

    @property
    def shown(self) -> list[Path]:
        """Those that ``stepsim show`` knows."""
        kinds = ("machine", "workload", "trace", "calibration", "plan", "timeline", "measured", "comparison")
        return [getattr(self, kind) for kind in kinds]


NAMES = {
    "machine": "this_cpu.toml",
    "workload": "w.json",
    "trace": "t.parquet",
    "calibration": "c.json",
    "plan": "p.plan",
    "timeline": "simulated.timeline",
    "chrome": "perfetto.json",
    "picture": "picture.png",
    "measured": "measured.timeline",
    "comparison": "comparison.json",
    "kineto": "kineto.json",
}


def priced(files: Files) -> tuple[object, ...]:
    """The options of a command that needs to know what tasks take."""
    return "--machine", files.machine, "--calibration", files.calibration


def write_model(folder: Path) -> None:
    (folder / "tiny_cli_model.py").write_text(MODEL)


def walk_the_loop(folder: Path) -> Files:
    """Every command of the loop, each on what the one before wrote. The working directory must hold the model."""
    from stepsim.machines import save_machine, this_cpu

    files = Files(**{field.name: folder / NAMES[field.name] for field in fields(Files)})
    save_machine(this_cpu(), files.machine)
    files.kineto.write_text(json.dumps(KINETO))
    done("capture", FACTORY, "--batch", BATCH, "-o", files.workload)
    done("record", FACTORY, "--batch", BATCH, "--repeats", 2, "-o", files.trace)
    done("fit", files.trace, "-o", files.calibration)
    done("plan", files.workload, *priced(files), "--strategy", "greedy-swap", "--memory", "22KiB", "-o", files.plan)
    done(
        "simulate",
        files.plan,
        *priced(files),
        "-o",
        files.timeline,
        "--perfetto",
        files.chrome,
        "--plot",
        files.picture,
    )
    done("execute", files.plan, FACTORY, "-o", files.measured)
    done("validate", files.plan, FACTORY, *priced(files), "--runs", 2, "-o", files.comparison)
    return files
