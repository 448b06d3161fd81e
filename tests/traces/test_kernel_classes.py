"""Kernels by their names: of each library, what must not be mistaken, then how much of published traces is known."""

import pytest

from stepsim.traces.detect import read_any
from stepsim.traces.kernel_classes import PATTERNS, KernelClass, kernel_class

NATIVE = "void at::native::"
VECTORIZED = f"{NATIVE}vectorized_elementwise_kernel<4, at::native::"

KNOWN = {
    KernelClass.MATRIX_PRODUCT: [
        "volta_sgemm_128x64_nn",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(Params)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_kernel__5x_cublas",
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT",
        "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN",
        "void gemv2T_kernel_val<int, int, float>(cublasGemvParams<float>)",
        "void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)",
        "triton_tem_fused_addmm_relu_3",
        "aten::addmm",
        "Linear(in_features=4096, out_features=1000, bias=True)",
    ],
    KernelClass.CONVOLUTION: [
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>(int, int)",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(WinogradDataParams)",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_nhwckrsc_nchw_execute_kernel_cudnn",
        "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolution",
        "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x256x32",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm",
        "void fft2d_r2c_32x32<float, false, 1u, true>(float2*, float const*)",
        "volta_gcgemm_32x32_nt",
        "aten::conv2d",
    ],
    KernelClass.ATTENTION: [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, cutlass::bfloat16_t>>(Params)",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "attn_fwd",
        "bwd_kernel_dk_dv",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16",
    ],
    KernelClass.ELEMENTWISE: [
        f"{VECTORIZED}CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)",
        f"{VECTORIZED}GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)",
        f"{VECTORIZED}AddFunctor<c10::complex<float> > >(int)",
        f"{NATIVE}(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int>(TensorInfo)",
        "triton_poi_fused_convolution_relu_2",
        "ReLU(inplace)",
    ],
    KernelClass.NORMALISATION: [
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)",
        f"{NATIVE}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        f"{NATIVE}unrolled_elementwise_kernel_for_multi_outputs<3, at::native::batch_norm_update_stats>(int)",
        f"{NATIVE}GammaBetaBackwardCUDAKernel<float, float>(long)",
        "triton_per_fused_native_layer_norm_5",
    ],
    KernelClass.SOFTMAX: [
        "void softmax_warp_backward<float, float, float, 10, false, false>(float*)",
        f"{NATIVE}(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>(c10::BFloat16*)",
        "triton_red_fused__log_softmax_7",
    ],
    KernelClass.REDUCTION: [
        f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(ReduceOp)",
        f"{NATIVE}nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
        "void at_cuda_detail::cub::DeviceScanKernel<DeviceScanPolicy<int>::Policy600>(int*)",
        "triton_red_fused_convolution_backward_sum_9",
    ],
    KernelClass.POOLING: [
        f"{NATIVE}(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
        f"{NATIVE}(anonymous namespace)::atomic_adaptive_average_gradinput<float>(float*)",
        "MaxPool2d(kernel_size=2, stride=2)",
    ],
    KernelClass.INDEX: [
        "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 2ul>(int)",
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<float>(int)",
        f"{NATIVE}(anonymous namespace)::indexSelectLargeIndex<float, int, unsigned int>(TensorInfo)",
        f"{NATIVE}index_elementwise_kernel<128, 4, at::native::index_copy_kernel_impl>(int)",
        "void cub::DeviceRadixSortOnesweepKernel<DeviceRadixSortPolicy<long, int, int>::Policy800>(int*)",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)",
    ],
    KernelClass.OPTIMIZER: [
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
        f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, LerpFunctor<float> >(int)",
        "aten::_foreach_addcdiv_",
    ],
    KernelClass.COPY: [
        f"{VECTORIZED}FillFunctor<float>, at::detail::Array<char*, 1> >(int)",
        f"{NATIVE}elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)",
        f"{NATIVE}(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(nchw2nhwc_params_t<float>)",
        "batched_transpose_32x32_half",
        "void transpose_readWrite_alignment_kernel<float2, float2>(cublasTransposeParams<float2>)",
    ],
    KernelClass.COLLECTIVE: ["ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclKernel_AllReduce_RING_LL"],
    KernelClass.OTHER: ["triton__0d1d2d", "at::cuda::spin_kernel(long)", "my_kernel", ""],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in KNOWN.items() for name in names])
def test_a_kernel_is_known_by_its_name_whatever_the_case(kind, name):
    assert kernel_class(name) is kind
    assert kernel_class(name.lower()) is kind


def test_every_class_but_other_has_a_pattern_and_an_example():
    assert {kind for kind, _ in PATTERNS} == set(KernelClass) - {KernelClass.OTHER}
    assert set(KNOWN) == set(KernelClass)


# --- measured ---------------------------------------------------------------------------------------------------------

OPS = {
    "add": KernelClass.ELEMENTWISE,
    "mul": KernelClass.ELEMENTWISE,
    "gelu": KernelClass.ELEMENTWISE,
    "relu": KernelClass.ELEMENTWISE,
    "linear": KernelClass.MATRIX_PRODUCT,
    "bmm": KernelClass.MATRIX_PRODUCT,
    "ln": KernelClass.NORMALISATION,
    "softmax": KernelClass.SOFTMAX,
}


@pytest.mark.parametrize("op", OPS)
def test_the_longest_kernel_of_a_measured_op_is_of_the_class_of_the_op(data_dir, op):
    import pandas as pd

    files = sorted(data_dir.glob(f"neusight/kernels/{op}/*.csv.gz"))
    if not files:
        pytest.skip(f"no neusight/kernels/{op} in {data_dir}")
    names = pd.concat([pd.read_csv(path, usecols=["Kernel Name"])["Kernel Name"] for path in files]).dropna()

    kinds = names.map(kernel_class).value_counts(normalize=True)

    assert kinds[OPS[op]] > 0.999


LEFT = {"hta": 0.012, "kineto": 0.0, "param": 0.0, "tracelens": 0.0}
"""Share of the time of kernels of no known class, at most: in hta those that TorchInductor once named triton__0d1d."""


@pytest.mark.parametrize("folder", LEFT)
def test_the_class_of_almost_all_kernels_of_published_traces_is_known(data_dir, folder):
    files = [path for path in sorted(data_dir.glob(f"{folder}/**/*.json.gz")) if not path.name.endswith("_et.json.gz")]
    files = [path for path in files if "dlrm_eg" not in path.name]
    if not files:
        pytest.skip(f"no {folder} in {data_dir}")
    whole_s = other_s = 0.0
    for path in files:
        kernels = read_any(path).of("kernel")
        whole_s += kernels["duration_s"].sum()
        other_s += kernels.loc[kernels["name"].map(kernel_class) == KernelClass.OTHER, "duration_s"].sum()

    assert other_s <= LEFT[folder] * whole_s
