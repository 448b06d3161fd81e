import pytest

from experiments.recorded_grids import Demands, recorded_demands, slowed_kernels
from experiments.shipped_gpus import NEUSIGHT
from stepsim.costmodels.demands import DemandModel
from stepsim.machines import load_machine


@pytest.fixture(scope="module")
def demands(data_dir):
    return recorded_demands(data_dir, {gpu: num_sms(load_machine(name)) for gpu, name in NEUSIGHT.items()})


def num_sms(machine):
    return max(device.num_sms for device in machine.devices)


def test_blocks_of_elementwise_kernels_have_512_elements_and_those_of_layer_norm_a_row(demands):
    """PyTorch's elementwise kernels have 128 threads of 4 elements (ATen, ``native/cuda/thread_constants.h``)."""
    tiles = DemandModel.from_json(demands.tiles).tiles_

    assert (tiles["elementwise"].rows, tiles["elementwise"].columns) == (1, 512)
    assert (tiles["layernorm"].rows, tiles["layernorm"].columns) == (1, None)


def test_shares_of_shapes_left_out_are_told_within_two_hundredths(demands):
    assert all(tile.error < 0.02 for tile in DemandModel.from_json(demands.tiles).tiles_.values())


def test_kernels_of_a100_slowed_by_a_seventh_beside_collectives(data_dir, demands):
    slowed = slowed_kernels(data_dir)

    assert len(slowed) == 80
    assert slowed["ratio"].median() == pytest.approx(1.056, abs=5e-4)
    assert 1 / (1 - demands.slowed_share) == pytest.approx(1.148, abs=5e-4)


def test_collectives_take_an_sm_for_each_channel_where_a_trace_tells_and_else_what_slowed_an_a100():
    demands = Demands(tiles={}, slowed_share=0.25)

    assert demands.collectives("v100", 80) == (8 / 80, "8 channels, param/dlrm_kineto")
    assert demands.collectives("t4", 40)[0] == 0.25
