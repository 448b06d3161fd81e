"""What a kernel computes, told by its name.

Names are those of PyTorch, cuDNN, cuBLAS, CUTLASS, FBGEMM, Triton (as TorchInductor names its kernels) and, on ROCm, of
Tensile, MIOpen and Composable Kernel; plain, mangled or in lower case. Where a trace has no kernels they are those of
ops and layers. A name tells how, not what for: an optimizer that updates one parameter at a time shows as elementwise,
and a product that cuDNN makes of a convolution as a product.
"""

import re
from enum import StrEnum
from functools import cache


class KernelClass(StrEnum):
    """In the order in which tables and pictures show them."""

    MATRIX_PRODUCT = "matrix product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    REDUCTION = "reduction"
    POOLING = "pooling"
    INDEX = "embedding and index"
    OPTIMIZER = "optimizer"
    COPY = "copy and fill"
    COLLECTIVE = "collective"
    OTHER = "other"


PATTERNS: tuple[tuple[KernelClass, str], ...] = (
    (KernelClass.COLLECTIVE, r"nccl|rccl|msccl|cross_device_reduce"),
    # Inductor names a kernel after all ops that it finishes, so how it runs goes before what it is named after.
    (KernelClass.ELEMENTWISE, r"^triton_(poi|for)_"),
    (KernelClass.NORMALISATION, r"^triton_(red|per|mix)_.*norm"),
    (KernelClass.SOFTMAX, r"^triton_(red|per|mix)_.*softmax"),
    (KernelClass.REDUCTION, r"^triton_(red|per|mix)_"),
    (KernelClass.ATTENTION, r"flash|fmha|attention|attn_|sdpa|bwd_kernel_d[kq]|gemm_softmax_gemm"),
    # Before optimizers: FBGEMM updates its tables in the backward kernel.
    (KernelClass.INDEX, r"embedding|fbgemm_gpu|permute_pooled|recat_copy|bounds_check_indices|linearize_index"),
    # What works on lists of tensors, as optimizers do, and clips and unscales gradients on their behalf.
    (KernelClass.OPTIMIZER, r"multi_tensor_apply|fused_?adam|adam_?functor|adagrad|fused_?sgd"),
    (KernelClass.NORMALISATION, r"(layer|batch|group|instance|rms|spatial)_?norm|bn_(fw|bw)_|GammaBeta|RowwiseMoments"),
    (KernelClass.SOFTMAX, r"softmax"),
    # Before convolutions: cuDNN and MIOpen turn tensors into other layouts for them.
    (KernelClass.COPY, r"nchw_?(to|2)_?nhwc|nhwc_?(to|2)_?nchw|nchw2cnhw|cnhw2nchw|batched_transpose|transposeparams"),
    (KernelClass.CONVOLUTION, r"conv(?!ert)|fprop|[dw]grad|scudnn|[hi]cudnn_|im2col|col2im|winograd|implicit_?gemm"),
    (KernelClass.CONVOLUTION, r"igemm_(fwd|bwd|wrw)|bwd_weight|bwd_data|cask_cudnn|cutlass_cudnn|miopenSp3"),
    # By Fourier transforms: there and back, with products of complex numbers between.
    (KernelClass.CONVOLUTION, r"fft[12]d_|cgemm|mult_and_sum_complex|flip_filter|scalePackedTensor|precompute_indices"),
    (KernelClass.POOLING, r"(max|avg|average)_?pool|pooling|adaptive_(average|avg|max)|upsample"),
    (KernelClass.INDEX, r"index_|index(Select|Func|ing|copy)|gather|scatter|sort|bucketize|top_?k"),
    (KernelClass.INDEX, r"ReduceByKey|DeviceCompact|DeviceSelect|unique|nonzero|to_dense"),
    (KernelClass.COPY, r"direct_copy|copy_device_to_device|CopyOp|CatArray|Fill|arange|linspace|triu_tril|_pad[123]?d"),
    (KernelClass.COPY, r"memset|memcpy|SubTensorOpWith(Scalar|Cast)|transpose"),
    (KernelClass.ELEMENTWISE, r"elementwise|pointwise|dropout|activation|MIOpenNeuron"),
    (KernelClass.MATRIX_PRODUCT, r"gemm|gemv|cublas|splitKreduce|Cijk_|nvjet|matmul|triton_tem_|_b?mm_|_addmm"),
    (KernelClass.REDUCTION, r"reduce|DeviceScan|cumsum|nll_?(loss|criterion)"),
    # Ops and layers, where the trace has no kernels.
    (KernelClass.OPTIMIZER, r"_foreach_"),
    (KernelClass.MATRIX_PRODUCT, r"\b(mm|bmm|addmm|baddbmm|linear|dot|mv)\b|(addmm|b?mm|linear)backward"),
    (
        KernelClass.ELEMENTWISE,
        r"[rg]elu|silu|sigmoid|tanh|\b(add|sub|mul|div|sqrt|exp|neg)_?\b|(add|mul|div)backward",
    ),
    (KernelClass.REDUCTION, r"loss|\b(sum|mean|max|min)\b"),
    (KernelClass.COPY, r"\b(copy_?|clone|zeros|ones|zero_|ones_like|zeros_like|concat|cat)\b"),
)
"""Tried in this order, whatever the case of the letters; the first that is found in the name tells its class."""

_COMPILED = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in PATTERNS)


@cache
def kernel_class(name: str) -> KernelClass:
    """The class of the first of `PATTERNS` found in ``name``; `KernelClass.OTHER` for none.

    >>> kernel_class("volta_sgemm_128x64_nn").value
    'matrix product'
    """
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), KernelClass.OTHER)
