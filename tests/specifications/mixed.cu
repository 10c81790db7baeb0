/* fa-tune
{
  "kernel": "mixed",
  "arguments": [
    {"name": "y", "type": "f8e4m3", "shape": ["n"], "is": "out"},
    {"name": "v", "type": "f8e5m2", "shape": ["n"], "is": "out"},
    {"name": "w", "type": "c64", "shape": ["n"], "is": "out"},
    {"name": "x", "type": "f8e4m3", "shape": ["n"]},
    {"name": "u", "type": "f8e5m2", "shape": ["n"]},
    {"name": "z", "type": "c128", "shape": ["n"]},
    {"name": "where", "type": "bool", "shape": ["n"]},
    {"name": "n"}
  ],
  "sizes": {"n": 1000},
  "tune": {"THREADS": [32, 64, 128]},
  "block": "THREADS",
  "grid": "ceil_div(n, THREADS)",
  "answer": "mixed_naive"
}
*/
typedef unsigned char fp8;

__global__ void mixed_naive(fp8 *y, fp8 *v, float2 *w, const fp8 *x, const fp8 *u, const double2 *z, const bool *where, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i] ^ 0x80;
    v[i] = u[i] ^ 0x80;
    w[i] = where[i] ? make_float2(-(float)z[i].y, (float)z[i].x) : make_float2(0, 0);
}

__global__ void __launch_bounds__(THREADS)
mixed(fp8 *y, fp8 *v, float2 *w, const fp8 *x, const fp8 *u, const double2 *z, const bool *where, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i] ^ 0x80;
    v[i] = u[i] ^ 0x80;
    w[i] = where[i] ? make_float2(-(float)z[i].y, (float)z[i].x) : make_float2(0, 0);
}
