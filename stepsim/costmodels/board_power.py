"""Board power that can be compared between GPUs of different processes: what bounds long kernels on small boards.

A kernel that keeps all cores busy draws more than a small board may: the clock falls until it does not. What counts is
how many FLOP a GPU gets out of a joule, and that is a matter of the process it is made in.
"""

import re

from stepsim.machines import Device

_POWER_OF_PROCESS = {"8 nm": 0.54, "7 nm": 0.4, "5 nm": 0.28}
"""Power for the same work at the same speed, that of TSMC's 16 nm (and of its half node of 12 nm) being 1.

7 nm: TSMC's 60 % less power than CLN16FF+; 5 nm (4N is of its family): TSMC's 30 % less again (N5 against N7); 8 nm:
Samsung's 10 % less than its 10 nm, and 40 % less there than in its 14 nm, taken equal to 16 nm.
"""

_PROCESS_OF_MODEL = {
    r"A100": "7 nm",
    r"A40": "8 nm",
    r"H100|H200|L4": "5 nm",
}
"""By the name of the model; NVIDIA architecture whitepapers: GA100 is made in TSMC 7N, GA102 in Samsung 8N, GH100 and
AD104 in TSMC 4N. P4, P40, P100 and GTX 10xx are of 16 nm, V100, T4 and RTX 20xx of 12 nm."""


def comparable_power_w(device: Device) -> float:
    """The board power of a GPU of 16 nm that would do the same work in the same time; 0 where nothing tells.

    A model that is not known counts as one of 16 nm.
    """
    for pattern, process in _PROCESS_OF_MODEL.items():
        if re.search(rf"\b(?:{pattern})\b", device.model):
            return device.power_w / _POWER_OF_PROCESS[process]
    return device.power_w
