/* fa-tune
{
  "kernel": "scale",
  "arguments": [
    {"name": "y", "type": "f16", "shape": ["n"], "is": "inout"},
    {"name": "factor", "type": "f16", "value": 0.5},
    {"name": "n"}
  ],
  "sizes": {"n": 1000000},
  "tune": {"BLOCK": [64, 128, 256]},
  "block": "BLOCK",
  "grid": "ceil_div(n, BLOCK)"
}
*/
// A file for nvcc as it is: `nvcc with_main.cu` makes a program of it, and `fa-tune with_main.cu` tunes its kernel.
#include <cstdio>
#include <vector>
#include <cuda_fp16.h>

#ifndef BLOCK
#define BLOCK 128
#endif

__global__ void scale(__half *y, __half factor, int n)
{
    const uint i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = __hmul(y[i], factor);
}

int main()
{
    std::vector<__half> host(1000, __float2half(3.0f));
    __half *y;
    cudaMalloc(&y, host.size() * sizeof *y);
    cudaMemcpy(y, host.data(), host.size() * sizeof *y, cudaMemcpyHostToDevice);
    scale<<<(1000 + BLOCK - 1) / BLOCK, BLOCK>>>(y, __float2half(0.5f), 1000);
    cudaMemcpy(host.data(), y, host.size() * sizeof *y, cudaMemcpyDeviceToHost);
    std::printf("%g\n", __half2float(host[999]));
    return cudaFree(y);
}
