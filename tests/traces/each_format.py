"""A small whole file of each format but Kineto's, which has its own."""

import json
import pickle

from execution_files import FLAT, NESTED, ExecutionFile, tensor
from nsys_files import EVENT, NsysFile
from test_bandwidth_logs import LOGS
from test_chakra import GRAPH as CHAKRA
from test_chakra import protobuf
from test_memory_timeline import EVENTS
from test_nccl_tests import log, row
from test_pipedream import GRAPH
from test_triosim import OPERATORS, TENSORS

from stepsim.traces.bandwidth_logs import read_bandwidth_log
from stepsim.traces.chakra import read_chakra
from stepsim.traces.execution_trace import read_execution_trace
from stepsim.traces.memory_snapshot import read_memory_snapshot
from stepsim.traces.memory_timeline import read_memory_timeline
from stepsim.traces.nccl_tests import read_nccl_tests
from stepsim.traces.pipedream import read_pipedream_trace
from stepsim.traces.triosim import read_triosim

SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 1 << 20,
            "total_size": 2 << 20,
            "stream": 0,
            "segment_type": "small",
            "is_expandable": False,
            "segment_pool_id": (0, 0),
            "blocks": [{"size": 512, "state": "active_allocated"}, {"size": (2 << 20) - 512, "state": "inactive"}],
        }
    ],
    "device_traces": [[{"action": "alloc", "addr": 1 << 20, "size": 500, "stream": 0}]],
}


def execution(schema):
    file = ExecutionFile(schema)
    file.op("aten::mm", [tensor(1, 4, 8), tensor(2, 8, 2)], [tensor(3, 4, 2)])
    file.op("nccl:all_reduce", [tensor(3, 4, 2)], thread=2)
    return file.document()


def write_export(path):
    """Nsight Systems, with every table that is read."""
    file = NsysFile()
    file.gpu(0, "Tesla V100", 1 << 34)
    file.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.1")
    file.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=file.process)
    file.launched(0, 1)
    file.copy(500, 900, 2, 1 << 20, (1, 0, 2))
    file.record(1000, 3, 7, 5)
    file.sync(1100, 1200, "cudaEventSynchronize_v3020", 4, EVENT, event=5)
    file.range(0, 2000, "step 1")
    file.range(10, 20, "loss", by_id=True)
    return file.write(path)


DOCUMENTS = {
    "chakra": (read_chakra, CHAKRA),
    "chakra of protobuf": (read_chakra, {"nodes": [protobuf(node) for node in CHAKRA["workload_graph"]]}),
    "execution trace": (read_execution_trace, execution(FLAT)),
    "execution trace of 1.1": (read_execution_trace, execution(NESTED)),
    "memory timeline": (read_memory_timeline, EVENTS),
    "memory snapshot": (read_memory_snapshot, SNAPSHOT),
}
"""Formats of nested values: what reads them, and one document."""

TEXTS = {
    "nccl-tests": (read_nccl_tests, log(row(1024), row(2048), test="all_reduce")),
    "PipeDream": (read_pipedream_trace, GRAPH),
    "TrioSim": (read_triosim, OPERATORS),
    **{name: (read_bandwidth_log, text) for name, text in LOGS.items()},
}
"""Formats of lines."""


def encoded(name, document):
    """A document as its format writes it. Lone surrogates, which are no text, pass as they do in a foreign file."""
    if name == "memory snapshot":
        return pickle.dumps(document)
    return json.dumps(document).encode("utf-8", "surrogatepass")


def write_beside(folder):
    """What a file of TrioSim needs beside it."""
    (folder / "tensor.csv").write_text(TENSORS)
