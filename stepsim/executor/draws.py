"""Random ops: running one again must draw what it drew before, and leave what others draw as it is."""

from collections.abc import Callable, Sequence

import torch

Run = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


class Draw:
    """One random op of one step, and where the generator of its device stood when it ran.

    Dropout recomputed::

        generator    a ---- draw ----> b ---- other draws ----> c      c
                     |                                          |      ^
        first       keep a                                      |      |
        again                                                   a -> draw, and back to c
    """

    def __init__(self, run: Run, device: torch.device) -> None:
        self._run = run
        self._generator = _generator_of(device)
        self._before: torch.Tensor | None = None

    def first(self, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Draw, as the step does."""
        self._before = self._generator.get_state()
        return self._run(values)

    def again(self, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Draw the same once more."""
        assert self._before is not None, "a row that recomputes stands behind the one that computes"
        now = self._generator.get_state()
        self._generator.set_state(self._before)
        try:
            return self._run(values)
        finally:
            self._generator.set_state(now)


def _generator_of(device: torch.device) -> torch.Generator:
    """The one from which ops on ``device`` draw unless they are given another."""
    if device.type == "cpu":
        return torch.default_generator
    torch.cuda.init()  # type: ignore[no-untyped-call]
    generator: torch.Generator = torch.cuda.default_generators[device.index or 0]
    return generator
