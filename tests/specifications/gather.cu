// Integers, whose answers are exact, and indexes that must lie in the table.
/* fa-tune {
  "arguments": [
    {"name": "out", "type": "i64", "shape": ["n"], "is": "out"},
    {"name": "table", "type": "i64", "shape": ["n"]},
    {"name": "index", "type": "i32", "shape": ["n"], "range": [0, "n"]},
    {"name": "n"}
  ],
  "sizes": {"n": {"default": 1000, "max": 1000000}},
  "tune": {"THREADS": [32, 64], "UNROLLED": [false, true]},
  "default": {"THREADS": 64, "UNROLLED": false},
  "block": "THREADS", "grid": "ceil_div(n, THREADS)",
  "answer": "gather_naive"
} */
extern "C" __global__ void gather_naive(long long *out, const long long *table, const int *index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[index[i]];
}

extern "C" {
__global__ void gather(long long *out, const long long *table, const int *index, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) out[i] = table[index[i]] + 0 * UNROLLED;
}
}
