"""Captured workloads of models of the literature, one file each: to simulate them takes no torch.

`experiments/ship_workloads.py` captures them and writes them here, with what `stepsim.workloads.families` builds.
"""

from dataclasses import dataclass
from pathlib import Path

from stepsim.errors import WorkloadError
from stepsim.workloads.workload import Workload

FOLDER = Path(__file__).parent

CAPTURED_WITH = "2.13"
"""Version of torch: another may take other steps to the same gradients."""

FAMILIES = "stepsim.workloads.families"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """``factory``, as the command line takes it, makes what was captured."""

    factory: str
    about: str


SHIPPED = {
    "alexnet": Shipped(factory=f"{FAMILIES}.alexnet:alexnet", about="ImageNet, 224 x 224"),
    "bert_base": Shipped(factory=f"{FAMILIES}.bert:bert_base", about="512 tokens, matrix of scores in memory"),
    "googlenet": Shipped(factory=f"{FAMILIES}.googlenet:googlenet", about="ImageNet, 224 x 224, no auxiliary heads"),
    "gpt2": Shipped(factory=f"{FAMILIES}.gpt:gpt2", about="GPT-2 small, 1024 tokens, matrix of scores in memory"),
    "inception3": Shipped(factory=f"{FAMILIES}.inception:inception3", about="ImageNet, 299 x 299, no auxiliary head"),
    "mobilenet": Shipped(factory=f"{FAMILIES}.mobilenet:mobilenet", about="v1, ImageNet, 224 x 224"),
    "mobilenet_cifar": Shipped(factory=f"{FAMILIES}.mobilenet:mobilenet_cifar", about="v1, 32 x 32, stem of stride 1"),
    "plain20_cifar": Shipped(factory=f"{FAMILIES}.resnet:plain20_cifar", about="32 x 32, 64-128-256 channels"),
    "resnet18_cifar": Shipped(factory=f"{FAMILIES}.resnet:resnet18_cifar", about="32 x 32, 3 x 3 stem"),
    "resnet50": Shipped(factory=f"{FAMILIES}.resnet:resnet50", about="ImageNet, 224 x 224"),
    "resnet152": Shipped(factory=f"{FAMILIES}.resnet:resnet152", about="ImageNet, 224 x 224"),
    "squeezenet_cifar": Shipped(
        factory=f"{FAMILIES}.squeezenet:squeezenet_cifar", about="1.0, 32 x 32, 3 x 3 stem, batch norm, bypasses"
    ),
    "unet": Shipped(factory=f"{FAMILIES}.unet:unet", about="segmentation, 416 x 608, 2 classes"),
    "vgg16": Shipped(factory=f"{FAMILIES}.vgg:vgg16", about="ImageNet, 224 x 224, no batch norm"),
    "vgg16_cifar": Shipped(factory=f"{FAMILIES}.vgg:vgg16_cifar", about="32 x 32, batch norm, one linear layer"),
    "vgg19": Shipped(factory=f"{FAMILIES}.vgg:vgg19", about="ImageNet, 224 x 224, no batch norm"),
}
"""What `load_workload` knows by name. Each can be had `at_batch` of any size."""


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.json.gz"


def file_of(name_or_path: str | Path) -> Path:
    """The path, or where the shipped workload of that name is if no file is there."""
    name, path = str(name_or_path), Path(name_or_path)
    return path_of(name) if name in SHIPPED and not path.is_file() else path


def load_workload(name_or_path: str | Path) -> Workload:
    """The workload in a file, or else the shipped one of that name.

    Raises `WorkloadError` for a name that is neither, and `FileError` for a file that holds no workload.
    """
    path, name = file_of(name_or_path), str(name_or_path)
    if path.is_file() or path.suffix or path.name != name:
        return Workload.load(path)
    raise WorkloadError(f"unknown workload {name!r}; known: {', '.join(SHIPPED)}, or a file of stepsim capture")
