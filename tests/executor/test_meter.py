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


def test_a_storage_counts_even_when_nothing_but_torch_knows_it() -> None:
    """The autograd graph holds what it saved; no Python object of that tensor is left."""
    weight = torch.ones(10, requires_grad=True)
    with MemoryMeter([weight]) as meter:
        loss = weight.exp().mul(2).sum()

        assert meter.live_bytes > weight.nbytes + loss.nbytes
        del loss
        assert meter.live_bytes == weight.nbytes


def test_the_death_of_what_was_given_changes_nothing() -> None:
    """It is the owner's: a plan has it from start to end."""
    given = torch.zeros(10)
    with MemoryMeter([given]) as meter:
        seen = given.view(2, 5)
        del given, seen
        fresh = torch.zeros(1)

        assert meter.live_bytes == 40 + fresh.nbytes


def test_what_was_there_before_and_not_given_is_not_counted_when_it_is_used() -> None:
    other = torch.ones(10)
    with MemoryMeter([]) as meter:
        other.add_(1)
        view = other[:5]
        total = other + 1

        assert meter.live_bytes == total.nbytes
        assert len(view) == 5


def test_memory_that_a_call_takes_and_gives_back_is_not_seen() -> None:
    x = torch.randn(64, 64)
    with MemoryMeter([x]) as meter:
        peaks = []
        value = torch.linalg.inv(x @ x.t() + torch.eye(64))
        peaks.append(meter.live_bytes)

        assert peaks == [x.nbytes + value.nbytes]


def test_outside_of_its_block_a_meter_follows_only_the_deaths() -> None:
    with MemoryMeter([]) as meter:
        value = torch.zeros(10)
    other = torch.zeros(10)

    assert meter.live_bytes == value.nbytes
    del value, other
    assert meter.live_bytes == 0
