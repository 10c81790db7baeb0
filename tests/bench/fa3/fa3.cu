// SPDX-License-Identifier: Apache-2.0
//
// A dense call of FlashAttention-3's forward kernels without PyTorch, as its package makes it: one split, heads not packed,
// and under a causal mask a counter of tiles that is 0 before the launch.
#include <cuda_runtime.h>
#include <cutlass/numeric_types.h>

#include "flash.h"

// Defined in its instantiations.
template <int Arch, typename T, int kHeadDim, int kHeadDimV, bool Split, bool PagedKVNonTMA, bool Has_softcap, bool PackGQA>
void run_mha_fwd_(Flash_fwd_params &params, cudaStream_t stream);

template <int kDim> static void run(Flash_fwd_params &params, cudaStream_t stream) {
    if (params.is_bf16) run_mha_fwd_<90, cutlass::bfloat16_t, kDim, kDim, false, false, false, false>(params, stream);
    else run_mha_fwd_<90, cutlass::half_t, kDim, kDim, false, false, false, false>(params, stream);
}

// fp16 or bf16 tensors [batch, seq, heads, dim], contiguous in dim. strides: of batch, seq and heads, in elements, of q, k, v and o.
// lse: [batch, heads, seq] floats. counter: one int on the device. Returns a cudaError_t, or -1 for a head dim without a kernel.
extern "C" int fa3_forward(void *q, void *k, void *v, void *o, void *lse, int *counter, const long long *strides, int batch,
                           int heads, int seq_q, int seq_k, int dim, int bf16, float scale, int causal, int sms, void *stream) {
    Flash_fwd_params params = {};
    params.q_ptr = q, params.k_ptr = k, params.v_ptr = v, params.o_ptr = o, params.softmax_lse_ptr = lse;
    params.q_batch_stride = strides[0], params.q_row_stride = strides[1], params.q_head_stride = strides[2];
    params.k_batch_stride = strides[3], params.k_row_stride = strides[4], params.k_head_stride = strides[5];
    params.v_batch_stride = strides[6], params.v_row_stride = strides[7], params.v_head_stride = strides[8];
    params.o_batch_stride = strides[9], params.o_row_stride = strides[10], params.o_head_stride = strides[11];
    params.v_dim_stride = 1;
    params.b = params.b_k = batch, params.h = params.h_k = heads;
    params.d = params.dv = params.d_rounded = params.dv_rounded = dim;
    params.seqlen_q = seq_q, params.seqlen_k = seq_k, params.total_q = batch * seq_q, params.total_k = batch * seq_k;
    params.seqlen_q_rounded = (seq_q + 127) / 128 * 128, params.seqlen_k_rounded = (seq_k + 127) / 128 * 128;
    params.scale_softmax = scale, params.is_bf16 = bf16 != 0;
    params.p_dropout = params.rp_dropout = 1.0f, params.p_dropout_in_uint8_t = 255;
    params.is_causal = causal != 0, params.window_size_left = seq_k - 1, params.window_size_right = causal ? 0 : seq_q - 1;
    params.num_splits = 1, params.page_size = 1, params.arch = 90, params.num_sm = sms;
    params.varlen_sort_batches = true, params.head_swizzle = causal != 0;
    const cudaStream_t s = (cudaStream_t)stream;
    if (causal) {
        cudaMemsetAsync(counter, 0, sizeof *counter, s);
        params.tile_count_semaphore = counter;
    }
    if (dim == 64) run<64>(params, s);
    else if (dim == 128) run<128>(params, s);
    else if (dim == 256) run<256>(params, s);
    else return -1;
    return (int)cudaGetLastError();
}
