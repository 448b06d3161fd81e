"""stepsim machines: the list, one machine, its picture, and how it refuses."""

import pytest
from command_line import done, refused

from stepsim.machines import load_machine, shipped_machines
from stepsim.machines.files import machine_fields


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_machines_are_listed():
    ran = done("machines", "--json")

    listed = [entry["name"] for entry in ran.facts["machines"]]
    assert listed == [*shipped_machines(), "this_cpu"]
    assert all(name in ran.out for name in listed)
    assert ran.facts["machines"][listed.index("p40_8")]["devices"] == "8 x Tesla P40"


def test_one_machine_is_shown_with_all_that_its_file_says():
    ran = done("machines", "p40_8", "--json")

    assert ran.out.startswith("p40_8: 8 x Tesla P40")
    assert "NVIDIA Tesla P40 data sheet: 346 GB/s" in ran.out
    assert ran.facts == plain(machine_fields(load_machine("p40_8")))


def plain(value):
    """As JSON has it: no tuples."""
    match value:
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case tuple() | list():
            return [plain(each) for each in value]
        case _:
            return value


def test_a_machine_of_a_file_is_shown(here):
    (here / "mine.toml").write_text('name = "mine"\nnode = "dgx_1v"\ncount = 2\n')

    ran = done("machines", "mine.toml", "--json")

    assert ran.out.startswith("mine: 2 nodes of dgx_1v")
    assert sum(device["kind"] == "gpu" for device in ran.facts["devices"]) == 16


def test_its_picture_is_drawn(here):
    done("machines", "dgx_1v", "--plot", "topology.svg")

    assert "<svg" in (here / "topology.svg").read_text()


def test_a_picture_of_no_machine_in_particular_is_refused():
    assert refused("machines", "--plot", "x.png") == (
        "Invalid value for --plot: name the machine to draw; see stepsim machines --help"
    )


@pytest.mark.parametrize("count", [301, 100_000])
def test_more_places_than_a_picture_shows_are_refused_in_one_line(here, count):
    gpus = f'name = "gpu"\nkind = "gpu"\ncount = {count}\nmemory_bytes = 1\nsources = {{ memory_bytes = "test" }}\n'
    (here / "large.toml").write_text(f'name = "large"\n[[devices]]\n{gpus}')

    message = refused("machines", "large.toml", "--plot", "large.png")

    assert message == f"machine 'large' has {count} places; a picture shows 1 to 300"
    assert not (here / "large.png").exists()


def test_a_machine_of_nothing_has_no_picture(here):
    (here / "none.toml").write_text('name = "none"\ndevices = []\n')

    message = refused("machines", "none.toml", "--plot", "none.png")

    assert message == "machine 'none' has 0 places; a picture shows 1 to 300"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dgx_9",), "unknown machine 'dgx_9'; known: "),
        (("nowhere.toml",), "nowhere.toml: file: cannot be read: No such file or directory"),
        (("k40", "--plot", "x.bmp"), "x.bmp: suffix: must be one of "),
    ],
)
def test_a_mistake_is_one_line(arguments, message):
    assert refused("machines", *arguments).startswith(message)
