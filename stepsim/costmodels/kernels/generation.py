"""The generation of a GPU: kernels of libraries are written for one, and differ little within it."""

import re

from stepsim.machines import Device

_MAJOR = {
    r"K40": 3,
    r"GTX Titan X": 5,
    r"P4|P40|P100|GTX 1080 Ti": 6,
    r"V100|T4|RTX 2080 Ti": 7,
    r"A100|A40|L4": 8,
    r"H100|H200": 9,
}
"""First digit of the compute capability by the name of the model; NVIDIA, "CUDA GPU compute capability"."""

UNKNOWN = 0


def generation(device: Device) -> int:
    """The first digit of the compute capability; `UNKNOWN` where the model is."""
    for pattern, major in _MAJOR.items():
        if re.search(rf"\b(?:{pattern})\b", device.model):
            return major
    return UNKNOWN
