import torch

from stepsim.executor.meter import MemoryMeter


def test_a_fresh_storage_counts_until_its_last_reference_is_gone():
    with MemoryMeter([]) as meter:
        value = torch.zeros(10)
        view = value[2:]

        assert meter.live_bytes == 40
        del value
        assert meter.live_bytes == 40
        del view
        assert meter.live_bytes == 0


def test_views_and_writes_in_place_add_nothing():
    with MemoryMeter([]) as meter:
        value = torch.zeros(10)
        value.view(2, 5).t().add_(1)
        value.mul_(2)

        assert meter.live_bytes == 40


def test_given_tensors_count_from_the_start_and_once_for_each_storage():
    given = torch.zeros(10)

    meter = MemoryMeter([given, given[5:], torch.zeros(1)])

    assert meter.live_bytes == 44


def test_every_output_of_a_call_counts():
    x = torch.randn(2, 4)
    with MemoryMeter([x]) as meter:
        values, indices = torch.max(x, dim=1)

        assert meter.live_bytes == x.nbytes + values.nbytes + indices.nbytes


def test_a_storage_that_another_thing_reuses_counts_again():
    with MemoryMeter([]) as meter:
        for _ in range(5):
            value = torch.zeros(1000)
            assert meter.live_bytes == 4000
            del value

        assert meter.live_bytes == 0
