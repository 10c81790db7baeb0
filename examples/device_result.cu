/* fa-tune
{
  "kernel": "sum_device",
  "arguments": [
    {"name": "total", "type": "f32", "shape": [1], "is": "out", "symbol": "total"},
    {"name": "x", "type": "f32", "shape": ["n"]},
    {"name": "n"}
  ],
  "sizes": {"n": 100000},
  "tune": {"THREADS": [64, 256]},
  "block": "THREADS",
  "grid": 1,
  "answer": {"kernel": "sum_device_naive", "block": 1, "grid": 1},
  "atol": 0.05
}
*/
// A result in a variable of the source, which is read back after each launch.
__device__ float total;

__global__ void sum_device(const float *x, int n)
{
    __shared__ float part[THREADS];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[i];
    part[threadIdx.x] = sum;
    for (int s = THREADS / 2; s > 0; s /= 2) {
        __syncthreads();
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    }
    if (threadIdx.x == 0) total = part[0];
}

__global__ void sum_device_naive(const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    total = (float)sum;
}
