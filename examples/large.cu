/* fa-tune
{
  "kernel": "large",
  "arguments": [
    {"name": "left", "type": "i64", "shape": ["ceil_div(n, 1 << 30)"], "is": "out"},
    {"name": "n", "type": "i64"}
  ],
  "sizes": {"n": 6000000000},
  "tune": {"THREADS": [64, 128]},
  "block": "THREADS",
  "grid": "ceil_div(n, THREADS << 30)",
  "answer": {"kernel": "large_naive", "block": 1, "grid": 1}
}
*/
// A size of more than 31 bits, which the kernel takes as an i64: how many numbers are left at each 2^30th.
__global__ void large(long long *left, long long n)
{
    const long long at = ((long long)blockIdx.x * THREADS + threadIdx.x) << 30;
    if (at < n) left[at >> 30] = n - at;
}

__global__ void large_naive(long long *left, long long n)
{
    for (long long at = 0; at < n; at += 1LL << 30) left[at >> 30] = n - at;
}
