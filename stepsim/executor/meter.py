"""An independent count of the bytes that are alive: storages as PyTorch makes and drops them.

It knows nothing of plans. A storage counts from the call that returns it until Python's last reference is gone. Memory
that a call takes and gives back is not seen: a workspace.
"""

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """While entered, follows every storage that a call makes. ``given`` tensors count from the start."""

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in given}
        self.live_bytes = sum(storages.values())
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        known = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if storage._cdata not in known and storage._cdata not in self._alive:
                self._follow(storage)
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key, size_bytes = storage._cdata, storage.nbytes()

        def gone(_: object) -> None:
            self.live_bytes -= size_bytes
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, gone)
        self.live_bytes += size_bytes


def _storages(values: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
