"""The experiment that predicts the training steps of NeuSight, and the models that it captures."""

from dataclasses import replace

import pandas as pd
import pytest

from experiments import training_steps
from experiments.language_models import SIZES, training_step
from stepsim.errors import FileError
from stepsim.workloads import Phase
from stepsim.workloads.capture import capture
from stepsim.workloads.families.language import Size

TINY = Size(
    family="gpt", layers=2, width=12, heads=3, wide=40, vocabulary=50, positions=16, source="as small as it gets"
)


def captured(family, layers=2, batch=3, sequence=7):
    size = replace(TINY, family=family, layers=layers)
    return capture(lambda rows: training_step(size, rows, sequence), batch, family).workload


def flop(workload, phase):
    return sum(op.flop for op in workload.ops if op.phase is phase)


@pytest.mark.parametrize("family", ["bert", "gpt", "opt"])
def test_the_products_of_a_transformer_have_the_flop_of_the_closed_form(family):
    """With B sequences of s tokens, l layers of width h, wide f, and V words the forward pass takes
    ``2 B s (l (4 h^2 + 2 s h + 2 h f) + h V)``; BERT transforms once more before the head. Backward takes twice that.
    """
    l, h, f, V, B, s = 2, 12, 40, 50, 3, 7  # noqa: E741

    workload = captured(family)

    transform = h * h if family == "bert" else 0
    forward = 2 * B * s * (l * (4 * h * h + 2 * s * h + 2 * h * f) + h * V + transform)
    assert flop(workload, Phase.FORWARD) == forward
    assert flop(workload, Phase.BACKWARD) == 2 * forward


@pytest.mark.parametrize("family", ["bert", "gpt", "opt"])
def test_each_parameter_that_has_a_gradient_is_added_to_once(family):
    workload = captured(family, layers=1)

    updates = [op for op in workload.ops if op.phase is Phase.UPDATE]

    assert {op.kind for op in updates} == {"aten.add_"}
    assert sorted(op.mutates[0] for op in updates) == sorted(workload.gradients)


@pytest.mark.parametrize(("name", "millions"), [("bert_large", 336), ("gpt2_large", 774), ("opt_13", 1316)])
def test_sizes_have_the_parameters_that_are_published(name, millions):
    """335 million with the pooler and the head of BERT-large, 774 of GPT2-large, 1.3 billion of OPT-1.3B."""
    module, _, _ = fake_step(SIZES[name])

    assert sum(parameter.numel() for parameter in module.parameters()) / 1e6 == pytest.approx(millions, rel=0.005)


def fake_step(size):
    from stepsim.workloads.factory import build_fake_step

    step = build_fake_step(lambda batch: training_step(size, batch, 8), 1)
    return step.module, step.inputs, step.optimizer


def results(**changes):
    rows = [("V100", 0.1, 0.0), ("V100", -0.3, 0.2), ("A100", -0.25, 0.0), ("L4", 0.2, 0.1)]
    table = pd.DataFrame(rows, columns=["gpu", "error", "sum_of_layers_error"])
    return table.assign(product_flop_error=[0.0, -5e-5, 0.0, 0.0], **changes)


def test_claims_are_mean_absolute_errors_held_against_what_was_demanded():
    found = {claim.claim.split(":")[0]: claim for claim in training_steps.claims(results())}

    assert [found[name].ours for name in ("V100", "A100", "L4")] == pytest.approx([0.2, 0.25, 0.2])
    assert [found[name].paper for name in ("V100", "A100", "L4")] == pytest.approx([0.1, 0.0, 0.1])
    assert all(claim.holds for claim in found.values())


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"error": [0.1, -0.31, 0.25, 0.2]}, "V100"),
        ({"error": [0.1, -0.3, -0.26, 0.2]}, "A100"),
        ({"error": [0.1, -0.3, -0.25, 0.26]}, "L4"),
        ({"product_flop_error": [0.0, 0.0, 0.0, -2e-4]}, "captured steps have the FLOP of the products in the labels"),
    ],
)
def test_a_claim_fails_alone_when_its_own_figure_is_too_large(changes, failing):
    table = results().assign(**changes)

    assert [claim.claim.split("'")[0].split(":")[0] for claim in training_steps.claims(table) if not claim.holds] == [
        failing
    ]


def test_without_the_measured_files_the_run_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPSIM_DATA", str(tmp_path))

    with pytest.raises(FileError, match="set STEPSIM_DATA"):
        training_steps.run(tmp_path, quick=True)
