"""Language models of published sizes as they were measured, for the experiments that predict those runs.

The optimizer adds to each parameter once, as gradients of an earlier step are added to: the measured runs accumulate
gradients and update nothing.
"""

import torch
from torch import Tensor, nn

from stepsim.workloads.families.bert import Bert
from stepsim.workloads.families.gpt import Gpt
from stepsim.workloads.families.language import Size
from stepsim.workloads.families.opt import Opt

Step = tuple[nn.Module, tuple[Tensor, ...], torch.optim.SGD]

SIZES = {
    "bert_large": Size(
        family="bert",
        layers=24,
        width=1024,
        heads=16,
        wide=4096,
        vocabulary=30522,
        positions=512,
        source="Devlin et al., BERT, NAACL 2019, section 3; vocabulary and positions of the released model",
    ),
    "gpt2_large": Size(
        family="gpt",
        layers=36,
        width=1280,
        heads=20,
        wide=5120,
        vocabulary=50257,
        positions=1024,
        source="Radford et al., Language models are unsupervised multitask learners, 2019, table 2",
    ),
    "gpt3_xl": Size(
        family="gpt",
        layers=24,
        width=3072,
        heads=24,
        wide=12288,
        vocabulary=50257,
        positions=2048,
        source="Brown et al., GPT-3, NeurIPS 2020, table 2.1: 24 heads of 128; width 24 x 128 as in NeuSight's shapes, "
        "where the paper has 2048",
    ),
    "gpt3_27": Size(
        family="gpt",
        layers=32,
        width=2560,
        heads=32,
        wide=10240,
        vocabulary=50257,
        positions=2048,
        source="Brown et al., GPT-3, NeurIPS 2020, table 2.1, 2.7B",
    ),
    "opt_13": Size(
        family="opt",
        layers=24,
        width=2048,
        heads=32,
        wide=8192,
        vocabulary=50272,
        positions=2050,
        source="Zhang et al., OPT, 2022, table 1, 1.3B; vocabulary and positions of the released model",
    ),
}


def training_step(size: Size, batch: int, sequence: int) -> Step:
    """Module, inputs (the tokens, which are the targets too) and optimizer."""
    module: nn.Module = {"bert": Bert, "gpt": Gpt, "opt": Opt}[size.family](size)
    tokens = torch.ones(batch, sequence, dtype=torch.int64)
    return module, (tokens,), torch.optim.SGD(module.parameters(), lr=1.0)
