import matplotlib.colors
import pytest
from matplotlib.patches import FancyArrowPatch
from small_machines import device, gpus

from stepsim.machines import DeviceKind, Machine, cluster, load_machine, shipped_machines
from stepsim.plotting import save_figure
from stepsim.topology_plot import COLOURS, MOST_PLACES, plot_topology


def places_of(figure):
    """Where each name stands."""
    (axes,) = figure.axes
    return {text.get_text(): text.get_position() for text in axes.texts}


def lines_of(figure):
    (axes,) = figure.axes
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


def ends_of(figure):
    """For each line the two names it joins."""
    name_at = {point: name for name, point in places_of(figure).items()}
    return {frozenset(name_at[point] for point in line._posA_posB) for line in lines_of(figure)}


def colours_of(figure):
    return {matplotlib.colors.to_hex(line.get_edgecolor()).upper() for line in lines_of(figure)}


@pytest.mark.parametrize("name", shipped_machines())
def test_every_place_of_a_node_is_drawn_once_and_no_two_on_one_spot(name):
    machine = load_machine(name)
    shown = {end for link in machine.links for end in link.ends if not end.startswith("node") or "node0/" in end}

    at = places_of(plot_topology(machine))

    assert set(at) == {place.rpartition("/")[2] for place in shown}
    assert len(set(at.values())) == len(at)


def test_two_directions_of_a_connection_are_one_line():
    figure = plot_topology(load_machine("p100_pcie_4"))

    pairs = [("gpu0", "switch0"), ("gpu1", "switch0"), ("gpu2", "switch0"), ("gpu3", "switch0")]
    assert ends_of(figure) == {frozenset(pair) for pair in (*pairs, ("switch0", "host"), ("host", "net"))}
    assert len(lines_of(figure)) == 6


def test_network_cards_and_host_stand_above_the_switches_and_those_above_the_gpus():
    at = places_of(plot_topology(load_machine("hgx_h100")))

    rows = ["net", "nic0", "host", "switch0", "gpu0", "nvswitch"]
    heights = [at[name][1] for name in rows]
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == len(rows)
    assert at["gpu0"][1] == at["gpu7"][1]


@pytest.mark.parametrize("name", shipped_machines())
def test_no_line_crosses_a_place_that_it_does_not_join(name):
    figure = plot_topology(load_machine(name))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = {text.get_position(): text.get_bbox_patch().get_window_extent() for text in axes.texts}

    crossed = [
        (line._posA_posB, place)
        for line in lines_of(figure)
        for place, box in boxes.items()
        if place not in line._posA_posB and path_of(line).intersects_bbox(box, filled=False)
    ]

    assert crossed == []


def path_of(line):
    """In dots, as the boxes are."""
    return line.get_transform().transform_path(line.get_path())


def test_a_place_stands_in_the_middle_of_what_computes_near_it():
    at = places_of(plot_topology(load_machine("p40_8")))

    assert [at[f"gpu{i}"][0] for i in range(8)] == list(range(8))
    assert (at["switch0"][0], at["switch1"][0], at["host"][0]) == (1.5, 5.5, 3.5)


def test_each_bandwidth_has_a_colour_and_a_wider_line_for_more():
    figure = plot_topology(load_machine("dgx_1v"))

    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    widths = [line.get_linewidth() for line in axes.get_legend().get_lines()]
    assert labels == ["12 GB/s", "12.4 GB/s", "22.85 GB/s", "45.7 GB/s"]
    assert widths == sorted(set(widths))
    assert colours_of(figure) == set(COLOURS[:4])


def test_of_a_cluster_one_node_is_drawn_and_the_title_says_of_how_many():
    node = load_machine("dgx_1v")

    one, many = plot_topology(node), plot_topology(cluster(node, 12))

    assert places_of(many) == places_of(one)
    assert ends_of(many) == ends_of(one)
    assert many.axes[0].get_title(loc="left") == "dgx_1v_x12: one of 12 nodes"


def test_a_link_that_does_not_tell_its_ends_is_drawn_where_it_alone_is_a_route():
    figure = plot_topology(gpus(2))

    assert ends_of(figure) == {frozenset(pair) for pair in (("gpu0", "gpu1"), ("gpu0", "host"), ("gpu1", "host"))}


def test_a_row_of_as_many_places_as_are_allowed_can_be_drawn(tmp_path):
    devices = tuple(device(f"gpu{i}", DeviceKind.GPU) for i in range(MOST_PLACES))

    save_figure(plot_topology(Machine(name="wide", devices=devices)), tmp_path / "m.png")

    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_is_written_as_a_file(tmp_path):
    save_figure(plot_topology(load_machine("this_cpu")), tmp_path / "m.png")

    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
