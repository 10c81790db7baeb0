/* fa-tune
{
  "kernel": "packed",
  "arguments": [
    {"name": "p", "fields": [
      {"name": "y", "type": "f32", "shape": ["n"], "is": "out"},
      {"name": "x", "type": "f32", "shape": ["n"]},
      {"name": "n"},
      {"name": "scale", "type": "f64", "value": 0.5}
    ]}
  ],
  "sizes": {"n": 1000000},
  "tune": {"THREADS": [64, 128, 256]},
  "block": "THREADS",
  "grid": "ceil_div(n, THREADS)",
  "answer": "packed_naive"
}
*/
// All arguments in one struct by value, as many host programs pass them.
struct params {
    float *y;
    const float *x;
    int n;
    double scale;
};

__device__ void scale_one(const params &p, int i)
{
    if (i < p.n) p.y[i] = (float)(p.x[i] * p.scale);
}

__global__ void packed_naive(params p) { scale_one(p, blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void __launch_bounds__(THREADS) packed(params p) { scale_one(p, blockIdx.x * THREADS + threadIdx.x); }
