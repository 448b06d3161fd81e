"""The step as HOME sees it: layers to decide on, and what each stage runs, reads, makes and gives back, as arrays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.strategies.memory.schedule import Action, Policy
from stepsim.tables import Ragged

Ints = NDArray[np.int64]
Actions = NDArray[np.int8]
"""One number of `ACTIONS` for each layer."""

KEEP, SWAP, RECOMPUTE = range(3)
"""The paper's numbers (section 4)."""

ACTIONS = (Action.KEEP, Action.SWAP, Action.RECOMPUTE)


@dataclass(frozen=True, eq=False, kw_only=True)
class HomeProblem:
    """One step of a workload, for the evaluator; `home_problem` makes it.

    A *layer* is a forward op with feature maps: saved outputs, but for tiny ones, that the forward pass is done with
    before the backward pass first reads them. One action goes for all maps of a layer; a pooling has two (its
    indices). A *stage* is an op of the step, forward, backward or update; all ops after the last one that touches a
    map are a single stage.

    Captured graphs are no chains. A branch is a map with several readers: it leaves after the last forward one, and
    is there again from the first backward one to the last. A concatenation is an op with many inputs. All other
    tensors (gradients, outputs that no backward op reads, batch statistics, the loss) come and go with their stages
    as `stepsim.strategies.memory.schedule` has it when everything is kept: ``allocates`` before a stage, ``frees``
    after it. One that a recomputation reads, such as an output that nobody saved, stays until it has run. Weights,
    inputs and optimizer state are ``base_bytes``.

    Times are whole *ticks* of ``tick_s`` seconds, a power of two, so that their sums are exact in any order.

    Attributes
    ----------
    turn
        The first stage that is not forward.
    stage_ticks, later_ticks, allocates, frees
        Of each stage: its time, that of all later ones, and its bytes but for what `leaves` and `dies` say.
    reads, leaves, dies
        Of each stage: maps of layers that it reads; those that leave after it, unless kept; and maps (of layers, and
        others that a recomputation may read) that no later stage reads.
    tensor, size_bytes, out_ticks, in_ticks, layer, made_at, leaves_at, dies_at
        Of each map: which tensor of the workload it is; its bytes; its times to the host and back; its layer, which
        is ``num_layers`` when it can only be kept; and the stages that make it, after which it leaves, and dies.
    again_ticks, makes_bytes, num_actions, first_effect
        Of each layer: the time and all outputs of its op; 2 where it cannot be recomputed, else 3; and the first stage
        at which its action makes a difference.
    members, needs
        Of each layer: its maps; and those that its op reads.
    """

    base_bytes: int
    tick_s: float
    turn: int
    stage_ticks: Ints
    later_ticks: Ints
    allocates: Ints
    frees: Ints
    reads: Ragged
    leaves: Ragged
    dies: Ragged
    tensor: Ints
    size_bytes: Ints
    out_ticks: Ints
    in_ticks: Ints
    layer: Ints
    made_at: Ints
    leaves_at: Ints
    dies_at: Ints
    again_ticks: Ints
    makes_bytes: Ints
    num_actions: Ints
    first_effect: Ints
    members: Ragged
    needs: Ragged

    @property
    def num_layers(self) -> int:
        return len(self.again_ticks)

    @property
    def compute_ticks(self) -> int:
        """The time of all stages, one after the other."""
        return int(self.stage_ticks.sum())

    def policy(self, actions: Actions) -> Policy:
        """What ``actions``, shape (layers,), say of the tensors of the workload."""
        moved = ((int(tensor), int(layer)) for tensor, layer in zip(self.tensor, self.layer, strict=True))
        return {
            tensor: ACTIONS[actions[layer]]
            for tensor, layer in moved
            if layer < len(actions) and actions[layer] != KEEP
        }
