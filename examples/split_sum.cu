/* fa-tune
{
  "arguments": [
    {"name": "x", "type": "f32", "shape": ["n"]},
    {"name": "parts", "type": "f32", "shape": ["BLOCKS"], "is": "scratch"},
    {"name": "y", "type": "f32", "shape": [1], "is": "out"},
    {"name": "n"}
  ],
  "sizes": {"n": 1000000},
  "tune": {"BLOCKS": [1, 64, 256, 1024], "THREADS": [128, 256]},
  "launches": [
    {"kernel": "sum_parts", "arguments": ["x", "parts", "n"], "block": "THREADS", "grid": "BLOCKS", "when": "BLOCKS > 1"},
    {"kernel": "sum_total", "arguments": ["y", "parts"], "block": "THREADS", "grid": 1, "when": "BLOCKS > 1"},
    {"kernel": "sum_whole", "arguments": ["y", "x", "n"], "block": "THREADS", "grid": 1, "when": "BLOCKS == 1"}
  ],
  "answer": {"kernel": "sum_naive", "arguments": ["y", "x", "n"], "block": 1, "grid": 1},
  "atol": 0.05
}
*/
// A sum in one launch, or in two with the sums of blocks between them.
__device__ void sum_of(float *y, const float *x, int first, int step, int n)
{
    __shared__ float part[THREADS];
    float sum = 0;
    for (int i = first; i < n; i += step) sum += x[i];
    part[threadIdx.x] = sum;
    for (int s = THREADS / 2; s > 0; s /= 2) {
        __syncthreads();
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    }
    if (threadIdx.x == 0) *y = part[0];
}

__global__ void sum_parts(const float *x, float *parts, int n)
{
    sum_of(&parts[blockIdx.x], x, blockIdx.x * THREADS + threadIdx.x, BLOCKS * THREADS, n);
}

__global__ void sum_naive(float *y, const float *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    *y = (float)sum;
}

__global__ void sum_total(float *y, const float *parts) { sum_of(y, parts, threadIdx.x, THREADS, BLOCKS); }

__global__ void sum_whole(float *y, const float *x, int n) { sum_of(y, x, threadIdx.x, THREADS, n); }
