/* fa-tune
{
  "kernel": "blur",
  "arguments": [
    {"name": "out", "type": "f32", "shape": ["n"], "is": "out"},
    {"name": "in", "type": "f32", "shape": ["n + 4"]},
    {"name": "w", "type": "f32", "shape": [5], "symbol": "weights"},
    {"name": "n"}
  ],
  "sizes": {"n": 4096},
  "tune": {"THREADS": [64, 128, 256]},
  "block": "THREADS",
  "grid": "ceil_div(n, THREADS)",
  "answer": "blur_naive"
}
*/
namespace mine {
__constant__ float weights[8];
}

__device__ float at(const float *in, const float *weights, int i)
{
    float sum = 0;
    for (int k = 0; k < 5; k++) sum += in[i + k] * weights[k];
    return sum;
}

__global__ void blur_naive(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = at(in, mine::weights, i);
}

__global__ void __launch_bounds__(THREADS) blur(float *out, const float *in, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) out[i] = at(in, mine::weights, i);
}

__global__ void blurred_naive(float *out, const float *in, const float *weights, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = at(in, weights, i);
}

__global__ void __launch_bounds__(THREADS) blurred(float *out, const float *in, const float *, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) out[i] = at(in, mine::weights, i);
}
