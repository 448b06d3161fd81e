"""Workloads from shapes alone: steps that nobody had to capture, so that planning them needs no torch."""

from stepsim.errors import WorkloadError
from stepsim.workloads.tape import Tape
from stepsim.workloads.workload import Workload


def transformer(*, layers: int, hidden: int, sequence: int, batch: int, vocabulary: int = 51_200) -> Workload:
    """One step of a GPT-like language model in bfloat16 with Adam.

    ::

        x -> norm -> qkv -> attention -> project -> + x -> norm -> expand -> gelu -> contract -> + x     one layer

    behind an embedding, before a last norm, a head of its own and the loss; without biases, positions and dropout.

    With B sequences of s tokens, l layers of width h and V words the step takes
    ``72 B s l h^2 (1 + s / (6 h) + V / (12 l h))`` FLOP: matrix products only, nothing recomputed (Narayanan et al.,
    "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, appendix; the default
    of V is theirs). Attention is one op that keeps no matrix of scores (Dao et al., "FlashAttention", NeurIPS 2022);
    the products that its backward computes once more are not counted.

    Raises `WorkloadError` for a size below 1.
    """
    sizes = {"layers": layers, "hidden": hidden, "sequence": sequence, "batch": batch, "vocabulary": vocabulary}
    for name, size in sizes.items():
        if size < 1:
            raise WorkloadError(f"transformer: {name} must be >= 1, got {size}")
    tape = Tape()
    tokens, labels = (tape.tokens(name, (batch, sequence)) for name in ("tokens", "labels"))
    x = tape.call("embed", "embed", [tokens], (batch, sequence, hidden), weight=(vocabulary, hidden))
    for layer in range(layers):
        x = _layer(tape, f"layer{layer}", x)
    logits = tape.linear("head", _norm(tape, "norm", x), vocabulary)
    tape.call("cross_entropy", "loss", [logits, labels], ())
    return tape.step(f"transformer of {layers} layers", batch)


def _layer(tape: Tape, name: str, x: int) -> int:
    shape = batch, sequence, hidden = tape.tensors[x].shape
    packed = tape.linear(f"{name}.qkv", _norm(tape, f"{name}.norm1", x), 3 * hidden)
    flop = 4 * batch * sequence**2 * hidden
    mixed = tape.call("attention", f"{name}.attention", [packed], shape, flop=flop)
    x = tape.call("add", f"{name}.add1", [x, tape.linear(f"{name}.project", mixed, hidden)], shape)
    wide = tape.linear(f"{name}.expand", _norm(tape, f"{name}.norm2", x), 4 * hidden)
    active = tape.call("gelu", f"{name}.gelu", [wide], tape.tensors[wide].shape)
    return tape.call("add", f"{name}.add2", [x, tape.linear(f"{name}.contract", active, hidden)], shape)


def _norm(tape: Tape, name: str, x: int) -> int:
    shape = tape.tensors[x].shape
    return tape.call("norm", name, [x], shape, weight=shape[-1:])
