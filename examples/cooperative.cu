/* fa-tune
{
  "kernel": "scale_to_mean",
  "arguments": [
    {"name": "y", "type": "f32", "shape": ["n"], "is": "out"},
    {"name": "sum", "type": "f32", "shape": [1], "is": "out"},
    {"name": "x", "type": "f32", "shape": ["n"]},
    {"name": "scale", "type": "f16", "value": 0.5},
    {"name": "n"}
  ],
  "sizes": {"n": 100000},
  "tune": {"THREADS": [128, 256, 512], "BLOCKS": [16, 64]},
  "block": "THREADS",
  "grid": "BLOCKS",
  "cooperative": true,
  "answer": {"kernel": "scale_to_mean_naive", "block": 1, "grid": 1},
  "atol": 0.05
}
*/
// Blocks that wait for one another, and a number of 16 bits.
#include <cooperative_groups.h>
#include <cuda_fp16.h>

__global__ void scale_to_mean(float *y, float *sum, const float *x, __half scale, int n)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    int at = blockIdx.x * THREADS + threadIdx.x, step = BLOCKS * THREADS;
    if (at == 0) *sum = 0;
    grid.sync();
    float mine = 0;
    for (int i = at; i < n; i += step) mine += x[i];
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_down_sync(0xffffffffu, mine, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
    grid.sync();
    float shift = *(volatile float *)sum / n;
    for (int i = at; i < n; i += step) y[i] = (x[i] - shift) * __half2float(scale);
}

__global__ void scale_to_mean_naive(float *y, float *sum, const float *x, __half scale, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++) all += x[i];
    *sum = (float)all;
    for (int i = 0; i < n; i++) y[i] = (x[i] - *sum / n) * __half2float(scale);
}
