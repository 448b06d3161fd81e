import pytest

from stepsim.errors import StepsimError
from stepsim.units import format_bytes, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1000", 1000),
        ("12 B", 12),
        ("8GiB", 8 * 2**30),
        ("8gib", 8 * 2**30),
        (" 1.5 KiB ", 1536),
        ("512 MB", 512_000_000),
        ("1TiB", 2**40),
        ("2 TB", 2 * 10**12),
    ],
)
def test_a_size_is_read_in_powers_of_ten_or_of_two_as_its_unit_says(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "8 gigabytes", "1.5.2MB", "nan", "8 GiB each", "٣GiB"])
def test_what_is_no_size_is_refused_and_shown(text):
    with pytest.raises(StepsimError) as caught:
        parse_bytes(text)

    assert str(caught.value) == f"a size looks like 8GiB, 512MB or 1000, got {text!r}"


def test_a_refusal_names_the_option_that_was_given_the_size():
    with pytest.raises(StepsimError) as caught:
        parse_bytes("8G", "--memory")

    assert str(caught.value) == "--memory: a size looks like 8GiB, 512MB or 1000, got '8G'"


@pytest.mark.parametrize("text", ["0.4", "1000.0", "1.5B", "1.5 b"])
def test_a_part_of_a_byte_is_no_size(text):
    with pytest.raises(StepsimError, match="a size looks like"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "size_bytes"), [("0.0014 KB", 1), ("0.0016KB", 2), ("1.1KiB", 1126)])
def test_a_part_of_a_larger_unit_is_rounded_to_bytes(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (-(2**20), "-1.00 MiB"), (11 * 2**30, "11.00 GiB")],
)
def test_bytes_are_shown_in_the_largest_unit_that_fits(size_bytes, text):
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize("size_bytes", [2**10, 3 * 2**20, 5 * 2**30])
def test_what_is_shown_can_be_read_again(size_bytes):
    assert parse_bytes(format_bytes(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0.0 us"), (5e-6, "5.0 us"), (0.0123, "12.30 ms"), (1.0, "1.000 s"), (-2.5, "-2.500 s")]
)
def test_seconds_are_shown_in_the_largest_unit_that_fits(seconds, text):
    assert format_seconds(seconds) == text
