"""Graphs of PipeDream's profiler: a small one by hand, bad lines, then the published profiles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.errors import FileError
from stepsim.traces.layers import LayerProfile
from stepsim.traces.pipedream import looks_like_pipedream, read_pipedream, read_pipedream_trace


def layer(node, name, forward_ms=1.0, backward_ms=2.0, activation="4096.000", parameter="0.000", end=""):
    return (
        f"{node} -- {name} -- forward_compute_time={forward_ms:.3f}, backward_compute_time={backward_ms:.3f}, "
        f"activation_size={activation}, parameter_size={parameter}{end}\n"
    )


GRAPH = (
    layer("node4", "Add(inplace)", 0, 0)
    + layer("node10", "Linear(in_features=2, out_features=3, bias=True)", 0.5, 0.25, "16.0", "36.000", " -- stage_id=1")
    + layer("node2", "LSTM(2, 2)", 3, 4, "[64.0; 8.0; 8.0]", "64.000")
    + layer("node1", "Input0", 635.902, 0)
    + layer("node3", "Attention(  (q): Linear(2 -- 3)  (drop): Dropout(p=0))", 1, 2)
    + "\tnode4 -- node10\n\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node4\n\tnode2 -- node4\n\tnode2 -- node4"
)


def graph(folder, text):
    path = folder / "graph.txt"
    path.write_text(text)
    return path


def test_layers_stand_behind_their_inputs_with_seconds_and_bytes(tmp_path):
    profile = read_pipedream(graph(tmp_path, GRAPH))

    assert profile.layer == ("node1", "node2", "node3", "node4", "node10")
    assert profile.name[4] == "Linear(in_features=2, out_features=3, bias=True)"
    assert profile.forward_s.tolist() == pytest.approx([0.635902, 3e-3, 1e-3, 0, 5e-4])
    assert profile.backward_s.tolist() == pytest.approx([0, 4e-3, 2e-3, 0, 2.5e-4])
    assert profile.activation_bytes.tolist() == [4096, 80, 4096, 4096, 16]
    assert profile.parameter_bytes.tolist() == [0, 64, 0, 0, 36]
    assert profile.inputs.to_lists() == [[], [0], [1], [1, 2], [3]]
    assert profile.outputs.to_lists() == [[1], [2, 3], [3], [4], []]
    assert profile.is_input.tolist() == [True, False, False, False, False]


def test_a_layer_that_only_is_called_input_is_work_if_it_is_fed(tmp_path):
    profile = read_pipedream(
        graph(tmp_path, layer("node1", "Conv2d") + layer("node2", "InputNorm") + "\tnode1 -- node2")
    )

    assert profile.is_input.tolist() == [False, False]


def test_numbers_decide_between_layers_that_could_be_next(tmp_path):
    lines = [layer(f"node{number}", "ReLU") for number in (10, 9, 2, 1)]

    profile = read_pipedream(graph(tmp_path, "".join(lines) + "\tnode10 -- node1\n"))

    assert profile.layer == ("node2", "node9", "node10", "node1")


def test_the_trace_is_all_forward_then_all_backward_without_loading_and_without_what_was_not_timed(tmp_path):
    trace = read_pipedream_trace(graph(tmp_path, GRAPH))

    assert [work.split()[0] + " " + work.split()[1][:6] for work in trace.events["work"]] == [
        "forward LSTM(2",
        "forward Attent",
        "forward Linear",
        "backward Linear",
        "backward Attent",
        "backward LSTM(2",
    ]
    assert trace.events["start_s"].tolist() == pytest.approx([0, 3e-3, 4e-3, 4.5e-3, 4.75e-3, 6.75e-3])
    assert set(trace.events["kind"]) == {"kernel"}
    assert trace.provenance["format"] == "PipeDream graph"


def test_a_trace_survives_its_file(tmp_path):
    trace = read_pipedream_trace(graph(tmp_path, GRAPH))

    trace.save(tmp_path / "trace.parquet")

    assert type(trace).load(tmp_path / "trace.parquet").events.equals(trace.events)


@st.composite
def graphs(draw):
    """Numbers of the layers in the order of the file, and edges from lower to higher."""
    numbers = draw(st.permutations(range(1, draw(st.integers(2, 12)))))
    pairs = st.tuples(st.sampled_from(numbers), st.sampled_from(numbers)).filter(lambda pair: pair[0] < pair[1])
    return numbers, draw(st.lists(pairs, max_size=30)) if len(numbers) > 1 else []


@given(graphs())
def test_edges_of_the_file_are_the_inputs_of_the_profile(tmp_path_factory, numbers_and_edges):
    numbers, edges = numbers_and_edges
    text = "".join(layer(f"node{number}", "ReLU") for number in numbers)
    text += "".join(f"\tnode{source} -- node{target}\n" for source, target in edges)

    profile = read_pipedream(graph(tmp_path_factory.getbasetemp(), text))

    found = {
        (profile.layer[source], profile.layer[target])
        for target, sources in enumerate(profile.inputs.to_lists())
        for source in sources
    }
    assert found == {(f"node{source}", f"node{target}") for source, target in edges}
    assert profile.layer == tuple(f"node{number}" for number in sorted(numbers))


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the file is empty"),
        ("\tnode1 -- node2\n", "layers: must be >= 1: the graph has edges only, got 0"),
        (layer("node1", "ReLU") * 2, "line 2: layer: must be given once, got 'node1'"),
        (layer("node1", "ReLU") + "\tnode1 -- node7\n", "line 2: edge: must join layers of this file, got 'node7'"),
        (layer("node1", "ReLU") + "\tnode1 -- node1\n", "line 1: layer: is in or behind a cycle, got 'node1'"),
        (
            layer("node1", "ReLU") + layer("node2", "ReLU") + "\tnode1 -- node2\n\tnode2 -- node1\n",
            "line 1: layer: is in or behind a cycle, got 'node1'",
        ),
        (layer("node1", "ReLU", forward_ms=-1), "line 1: forward_compute_time: must be a number from 0 .* '-1.000'"),
        (layer("node1", "ReLU", backward_ms=np.nan), "line 1: backward_compute_time: must be a number .* 'nan'"),
        (layer("node1", "ReLU", forward_ms=np.inf), "line 1: forward_compute_time: must be a number .* 'inf'"),
        (layer("node1", "ReLU", activation="[1.0; x]"), r"line 1: activation_size: must be a number .* 'x'"),
        (layer("node1", "ReLU", activation="[]"), r"line 1: activation_size: must be a number .* ''"),
        (layer("node1", "ReLU", parameter="1e30"), r"line 1: parameter_size: must be a number .* '1e30'"),
        (layer("node1", "ReLU", activation=f"[{2**50}; 1]"), "line 1: activation_size: must add up to at most"),
        (layer("node1", "ReLU")[:60], "line 1: must be a layer of PipeDream's profiler, or an edge, got 'node1"),
        ("node1 -- ReLU -- forward_compute_time=1.0\n", "line 1: must be a layer"),
        ("\0", r"line 1: is no text"),
    ],
)
def test_a_bad_line_is_named_with_its_value(tmp_path, text, message):
    with pytest.raises(FileError, match=rf"graph\.txt: {message}"):
        read_pipedream(graph(tmp_path, text))


def test_a_graph_without_times_is_a_profile_but_no_trace(tmp_path):
    path = graph(tmp_path, layer("node1", "ReLU", 0, 0))

    assert len(read_pipedream(path)) == 1
    with pytest.raises(FileError, match="forward_compute_time: must be > 0 for some layer: nothing was timed"):
        read_pipedream_trace(path)


@given(place=st.integers(0, len(GRAPH) - 1), put=st.text("\t\n -=,;[]9.xn", max_size=3), cut=st.integers(0, 40))
def test_a_damaged_graph_gives_a_profile_or_one_line(tmp_path_factory, place, put, cut):
    path = graph(tmp_path_factory.getbasetemp(), GRAPH[:place] + put + GRAPH[place + cut :])
    try:
        profile = read_pipedream(path)
    except FileError:
        return
    assert isinstance(profile, LayerProfile)
    assert len(profile) >= 1


# --- measured ---------------------------------------------------------------------------------------------------------


def test_graphs_are_told_by_their_head():
    assert looks_like_pipedream(GRAPH.encode())
    assert not looks_like_pipedream(b"node1 -- node2")
    assert not looks_like_pipedream(b"")


@pytest.mark.parametrize(
    ("name", "layers", "edges", "forward_ms", "backward_ms", "parameter_mb"),
    [
        ("alexnet", 22, 23, 44.8, 40.5, 244.4),
        ("densenet121", 428, 487, 177.4, 148.8, 31.9),
        ("gnmt", 45, 58, 33.5, 55.9, 775.1),
        ("nasnetamobile", 920, 1078, 322.9, 261.4, 34.3),
        ("resnet18", 70, 79, 107.4, 152.3, 46.8),
        ("resnet50", 176, 193, 182.5, 260.9, 102.2),
        ("resnext50", 176, 193, 221.8, 369.0, 100.1),
        ("squeezenet1_0", 67, 76, 113.2, 172.1, 5.0),
        ("vgg16", 40, 41, 233.9, 438.6, 553.4),
    ],
)
def test_published_profiles_have_their_published_totals(
    data_dir, name, layers, edges, forward_ms, backward_ms, parameter_mb
):
    path = data_dir / "pipedream" / name / "graph.txt"
    if not path.is_file():
        pytest.skip(f"no {path}")

    profile = read_pipedream(path)
    work = ~profile.is_input

    assert (int(work.sum()), len(profile.inputs.values)) == (layers, edges)
    assert profile.layer == tuple(f"node{number}" for number in range(1, len(profile) + 1))
    assert profile.forward_s[work].sum() * 1e3 == pytest.approx(forward_ms, abs=0.05)
    assert profile.backward_s[work].sum() * 1e3 == pytest.approx(backward_ms, abs=0.05)
    assert profile.parameter_bytes.sum() / 1e6 == pytest.approx(parameter_mb, abs=0.05)
    assert read_pipedream_trace(path).events["duration_s"].sum() == pytest.approx(
        (profile.forward_s + profile.backward_s)[work].sum()
    )
