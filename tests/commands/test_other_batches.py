"""One capture, plans for other batches."""

from pathlib import Path

from command_line import done, refused
from loop_files import FACTORY, priced

from stepsim.plan import Plan
from stepsim.workloads import Workload

EVERY_WITH_EVERY = """
import torch
from torch import nn


class Compared(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return (y @ y.T).mean()


def compared(batch):
    return Compared(8, 8), torch.randn(batch, 8), None
"""


def test_one_capture_serves_plans_of_other_batches_and_they_run(files, here):
    captured = done("capture", FACTORY, "--batch", 8, "-o", "w.json.gz", "--json")
    planned = done("plan", "w.json.gz", *priced(files), "--strategy", "keep-all", "--batch", 12, "-o", "p", "--json")
    executed = done("execute", "p", FACTORY, "--json")

    assert captured.facts["batch_step"] == 1
    assert set(Plan.load("p").work.batch.tolist()) == {12}
    assert planned.facts["predicted_peak_bytes"] == executed.facts["measured_peak_bytes"]
    assert executed.facts["gradient_max_abs_difference"] == 0.0
    assert "batch 8 and others" in done("show", "w.json.gz").out


def test_a_batch_whose_bytes_cannot_be_counted_is_refused_by_name(here):
    message = refused("plan", "vgg16", "--machine", "v100_pcie", "--batch", 10**23)

    assert message == f"workload 'vgg16': batch is too large to count its bytes and FLOP, got {10**23}"


def test_a_step_that_does_not_grow_along_a_line_is_captured_at_its_batch_and_says_why(files, here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    Path("compared_model.py").write_text(EVERY_WITH_EVERY)

    ran = done("capture", "compared_model:compared", "--batch", 8, "-o", "w.json", "--json")

    assert ran.facts["batch_step"] is None
    assert ran.out.startswith("compared, batch 8 only (tensor 'mm': more than one dimension of (8, 8) grows")
    assert Workload.load("w.json").growth is None
    told = refused("plan", "w.json", *priced(files), "--batch", 9)
    assert "workload 'compared': is of batch 8 only, got batch 9" in told
