"""Tiny execution traces of PyTorch, written op by op in either form."""

import json

PROCESS = 41
FLAT, NESTED = "1.0.1", "1.1.0-chakra.0.0.4"


def tensor(storage, *shape, dtype="float", each_bytes=4):
    """Value, shape and type of a tensor; its own number is that of its storage."""
    elements = 1
    for size in shape:
        elements *= size
    return [storage, storage, 0, elements, each_bytes, "cuda:0"], list(shape), f"Tensor({dtype})"


def integers(*values):
    return list(values), [[] for _ in values], f"GenericList[{','.join(['Int'] * len(values))}]"


def number(value):
    return value, [], "Bool" if isinstance(value, bool) else "Int"


def tensors(*each):
    values, shapes, types = zip(*each, strict=True)
    return list(values), list(shapes), f"GenericList[{','.join(types)}]"


class ExecutionFile:
    """Collects nodes below the root of each thread; `write` makes the file."""

    def __init__(self, schema=FLAT, pid=PROCESS):
        self.schema, self.pid = schema, pid
        self.nodes = []
        self.roots = {}
        self.begun = 0
        self._node("[pytorch|profiler|execution_trace|process]", 1, 0, (), ())

    def op(self, name, inputs=(), outputs=(), *, thread=1, parent=None):
        """Adds an op, and returns its id."""
        if thread not in self.roots:
            self.roots[thread] = self._node("[pytorch|profiler|execution_trace|thread]", 1, thread, (), ())
        self.begun += 1
        return self._node(name, parent or self.roots[thread], thread, inputs, outputs, order=self.begun)

    def _node(self, name, parent, thread, inputs, outputs, *, order=0):
        number = len(self.nodes) + 1
        sides = {}
        for side, arguments in (("input", inputs), ("output", outputs)):
            lists = [list(each) for each in zip(*arguments, strict=True)] or [[], [], []]
            if self.schema == NESTED:
                sides[f"{side}s"] = dict(zip(("values", "shapes", "types"), lists, strict=True))
            else:
                sides |= dict(zip((f"{side}s", f"{side}_shapes", f"{side}_types"), lists, strict=True))
        if self.schema == NESTED:
            attributes = [{"name": "rf_id", "type": "uint64", "value": order}]
            attributes.append({"name": "tid", "type": "uint64", "value": thread})
            self.nodes.append({"id": number, "name": name, "ctrl_deps": parent, **sides, "attrs": attributes})
        else:
            place = {"id": number, "name": name, "parent": parent, "rf_id": order, "tid": thread}
            self.nodes.append({**place, **sides})
        return number

    def document(self):
        return {"schema": self.schema, "pid": self.pid, "time": "2026-01-01 00:00:00", "nodes": self.nodes}

    def write(self, path):
        path.write_text(json.dumps(self.document()))
        return path
