"""What a transfer or collective takes in all, parted into a latency and a rate, so that links can still be shared."""

from collections.abc import Sequence

from stepsim.machines.collectives import Stage


def latency_and_rate(total_s: float, least_s: float, size_bytes: int, stages: Sequence[Stage]) -> tuple[float, float]:
    """Latency, and cap in bytes/s, with which ``size_bytes`` through ``stages``, alone, take ``total_s``.

    ``least_s`` is what the smallest size takes: the latency, and less where the links need more of the time. Where the
    links need more than ``total_s``, they win.
    """
    moved = [(size_bytes * stage.volume, stage.rate_bytes_per_s) for stage in stages]
    link_s = sum(volume / rate for volume, rate in moved)
    moving_s = max(total_s - least_s, link_s)
    return max(total_s - moving_s, 0.0), _cap_bytes_per_s(moved, moving_s)


def _cap_bytes_per_s(moved: Sequence[tuple[float, float]], moving_s: float) -> float:
    """The rate that no stage may exceed, so that all of them, one after the other, take ``moving_s``.

    ``moved`` has bytes and the rate of the links for each stage. Stages that their links slow below the cap take what
    the links need; the others share the rest of the time.
    """
    rest_s, rest_bytes = moving_s, sum(volume for volume, _ in moved)
    for volume, rate in sorted(moved, key=lambda stage: stage[1]):
        if rest_bytes <= rate * rest_s:
            break
        rest_s, rest_bytes = rest_s - volume / rate, rest_bytes - volume
    return rest_bytes / rest_s if rest_bytes > 0 and rest_s > 0 else float("inf")
