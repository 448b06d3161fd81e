"""The memory pass: what a plan holds at each row, in bytes or as PyTorch's caching allocator would hold it."""

from stepsim.memory.profile import (
    Accounting,
    MemoryProfile,
    check_memory,
    device_index,
    lifetimes,
    memory_profile,
    memory_steps,
)

__all__ = [
    "Accounting",
    "MemoryProfile",
    "check_memory",
    "device_index",
    "lifetimes",
    "memory_profile",
    "memory_steps",
]
