/* fa-tune
{
  "arguments": [
    {"name": "out", "type": "f32", "shape": [64], "is": "partial"},
    {"name": "x", "type": "f32", "shape": ["n"]},
    {"name": "n"}
  ],
  "sizes": {"n": 100000},
  "tune": {"THREADS": [64, 128], "BLOCKS": [1, 16, 64]},
  "block": "THREADS",
  "grid": "BLOCKS",
  "rtol": 1e-3
}
*/
__global__ void __launch_bounds__(THREADS) sums(float *out, const float *x, int n)
{
    __shared__ float part[THREADS];
    float sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += BLOCKS * THREADS) sum += x[i];
    part[threadIdx.x] = sum;
    for (int s = THREADS / 2; s > 0; s /= 2) {
        __syncthreads();
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
