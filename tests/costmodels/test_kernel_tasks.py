import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_machines import gpus

from stepsim.costmodels import kernel_tasks as module
from stepsim.costmodels.distinct import distinct
from stepsim.costmodels.kernel_tasks import Kernel, kernel_of, kernel_tasks
from stepsim.costmodels.kernels import DEVICE
from stepsim.machines import load_machine
from stepsim.plan import NONE
from stepsim.plan.builder import PlanBuilder
from stepsim.strategies.memory.lowering import plan_for_policy
from stepsim.workloads.capture import capture
from stepsim.workloads.models import small_resnet, small_transformer
from stepsim.workloads.shapes import transformer

SIZE = st.integers(1, 64)


def tasks_of(workload, machine="v100_pcie"):
    hardware = load_machine(machine)
    plan = plan_for_policy(workload, hardware, {}, 10**12)
    works = distinct(plan).works
    return kernel_tasks(plan, hardware, works).assign(kind=[plan.work.kind[work] for work in works[:, 0]])


def one_task(kind="aten.add", shapes="2x3, 2x3 -> 2x3", machine="v100_pcie", device="gpu0", **work):
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device(device))
    given = {"dtype": "float32", "bytes_read": 48, "bytes_written": 24, **work}
    builder.compute(builder.work(kind, shapes=shapes, **given), stream)
    return kernel_tasks(builder.build(), load_machine(machine), np.array([[0, 0]])).iloc[0]


@given(m=SIZE, n=SIZE, k=SIZE)
@pytest.mark.parametrize("kind", ["aten.mm", "aten.addmm", "linear_weight"])
def test_a_product_has_the_shape_of_its_output_and_the_inner_length_of_its_flop(kind, m, n, k):
    """Operands are seen through views: here one was stored as k x 1 x m."""
    assert kernel_of(kind, [(k, 1, m), (n, k)], [(m, n)], 2 * m * n * k) == Kernel(op_class="linear", m=m, n=n, k=k)


def test_leading_dimensions_of_a_linear_layer_are_rows():
    assert kernel_of("linear", [(2, 5, 7), (3, 7)], [(2, 5, 3)], 420) == Kernel(op_class="linear", m=10, n=3, k=7)


def test_leading_dimensions_of_a_batched_product_are_its_batch():
    kernel = kernel_of("aten.bmm", [(2, 3, 5, 7), (2, 3, 7, 4)], [(6, 5, 4)], 2 * 6 * 5 * 4 * 7)

    assert kernel == Kernel(op_class="bmm", batch=6, m=5, n=4, k=7)


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs"),
    [
        ("aten.convolution", [(4, 3, 32, 32), (16, 3, 3, 3), (16,)], [(4, 16, 16, 16)]),
        ("aten.convolution_backward.data", [(4, 16, 16, 16), (16, 3, 3, 3)], [(4, 3, 32, 32)]),
        ("aten.convolution_backward.filter", [(4, 16, 16, 16), (4, 3, 32, 32)], [(16, 3, 3, 3)]),
    ],
)
def test_the_gradients_of_a_convolution_are_the_product_of_its_forward(kind, inputs, outputs):
    expected = Kernel(op_class="conv", batch=4, m=256, n=16, k=27, kernel_area=9, stride=2)

    assert kernel_of(kind, inputs, outputs, 1) == expected


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs"),
    [
        ("aten.convolution", [(4, 32, 8, 8), (32, 1, 3, 3)], [(4, 32, 8, 8)]),
        ("aten.convolution", [(32, 64), (8, 32, 3, 3)], [(4, 8, 8, 8)]),
        ("aten.convolution", [], []),
        ("aten.mm", [], []),
        ("aten.mm", [(3, 0), (0, 4)], [(3, 4)]),
        ("aten._softmax", [(0, 4)], [(0, 4)]),
        ("aten.sort", [(3, 4)], [(3, 4), (3, 4)]),
        ("volta_sgemm_128x64_nn", [(3, 4)], [(3, 4)]),
    ],
    ids=["groups", "a view", "no shapes", "no product", "no inner length", "nothing", "another op", "a kernel"],
)
def test_work_that_no_table_is_like_has_no_class(kind, inputs, outputs):
    assert kernel_of(kind, inputs, outputs, 0) == Kernel()


@pytest.mark.parametrize(
    ("kind", "op_class"), [("aten._softmax", "softmax"), ("aten.native_layer_norm", "layernorm"), ("norm", "layernorm")]
)
def test_softmax_and_layer_norm_work_on_rows_of_the_last_dimension(kind, op_class):
    kernel = kernel_of(kind, [(2, 3, 5)], [(2, 3, 5), (2, 3, 1)], 0)

    assert kernel == Kernel(op_class=op_class, m=6, n=5)


def test_elementwise_work_and_reductions_have_the_elements_of_their_largest_tensor():
    assert kernel_of("aten.add", [(2, 3, 5), (5,)], [(2, 3, 5)], 0) == Kernel(op_class="elementwise", m=6, n=5)
    assert kernel_of("aten.sum", [(6, 5)], [(1, 5)], 0) == Kernel(op_class="elementwise", m=6, n=5)
    assert kernel_of("aten.mean", [()], [()], 0) == Kernel(op_class="elementwise")


def test_the_backward_of_softmax_moves_its_bytes_twice():
    forth = one_task("aten.tanh_backward")
    back = one_task("aten._softmax_backward_data")

    assert back["size_bytes"] == 2 * forth["size_bytes"] == 2 * 72


def test_flop_are_counted_where_capture_counted_none():
    assert one_task("aten.add")["flop"] == 6
    assert one_task("aten._softmax", "2x3 -> 2x3")["flop"] == 5 * 6
    assert one_task("aten.mm", "2x4, 4x3 -> 2x3", flop=48)["flop"] == 48
    assert one_task("aten.sort")["flop"] == 0


def test_the_data_sheet_of_the_device_stands_beside_the_work():
    gpu = load_machine("v100_pcie").device("gpu0")

    assert one_task()[list(DEVICE)].tolist() == [14e12, 900e9, 80, gpu.l2_bytes, 250]
    assert one_task(dtype="float16")["peak_flop_per_s"] == 112e12
    assert one_task(dtype="bool")["peak_flop_per_s"] == 14e12


def test_work_on_the_host_or_on_a_device_without_data_sheet_has_no_class():
    builder = PlanBuilder()
    stream = builder.stream("compute", builder.device("gpu0"))
    builder.compute(builder.work("aten.add", shapes="2, 2 -> 2", dtype="float32"), stream)
    plan = builder.build()

    on_host = kernel_tasks(plan, load_machine("v100_pcie"), np.array([[0, NONE]])).iloc[0]
    unknown = kernel_tasks(plan, gpus(), np.array([[0, 0]])).iloc[0]

    assert (on_host["op_class"], unknown["op_class"]) == ("", "")
    assert on_host[list(DEVICE)].tolist() == [0] * len(DEVICE)


@pytest.mark.parametrize("shapes", ["", "2x3", "grid 4x4x1", "2xa -> 2"])
def test_text_that_tells_no_shapes_gives_no_product(shapes):
    assert one_task("aten.mm", shapes, flop=48)["op_class"] == ""


def test_no_work_is_no_task():
    builder = PlanBuilder()
    builder.device("gpu0")

    assert kernel_tasks(builder.build(), load_machine("t4"), np.empty((0, 2), np.int64)).empty


def test_each_kind_that_is_named_is_an_op_of_torch():
    kinds = {*module._PRODUCTS, *module._CONVOLUTIONS, *module._ROWS, *module._ELEMENTWISE, *module._REDUCTIONS}
    named = [kind.split(".")[1] for kind in {*kinds, *module._PASSES} if kind.startswith("aten.")]

    assert [name for name in named if not hasattr(torch.ops.aten, name)] == []


@pytest.mark.parametrize("factory", [small_transformer, small_resnet])
def test_all_flop_of_a_captured_step_are_in_products_whose_dimensions_give_them(factory):
    tasks = tasks_of(capture(factory, 2, "step").workload)
    products = tasks[tasks["op_class"].isin(["linear", "bmm", "conv"])]
    attention = tasks["kind"].str.contains("attention")

    assert len(products) > 5
    assert (2 * products["batch"] * products["m"] * products["n"] * products["k"]).tolist() == products["flop"].tolist()
    assert tasks["flop"][(tasks["op_class"] == "") & ~attention].sum() == 0


def test_hardly_a_byte_of_a_captured_transformer_is_moved_by_work_without_class():
    tasks = tasks_of(capture(small_transformer, 2, "step").workload)

    assert tasks["size_bytes"][tasks["op_class"] == ""].sum() < 0.15 * tasks["size_bytes"].sum()


def test_workloads_built_from_shapes_have_classes_too():
    tasks = tasks_of(transformer(layers=1, hidden=64, sequence=16, batch=2, vocabulary=100), "a100_pcie")

    known = set(tasks["kind"][tasks["op_class"] != ""])
    assert {"linear", "linear_input", "linear_weight", "norm", "norm_backward", "gelu", "add", "adam"} <= known
    products = tasks[tasks["op_class"] == "linear"]
    assert [math.prod(row) * 2 for row in zip(products.m, products.n, products.k, strict=True)] == list(products.flop)
