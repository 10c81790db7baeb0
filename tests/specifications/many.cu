// y += a * x, with eight tunables of which the code knows every value: millions of configs. Some do not compile.
/* fa-tune {
    "kernel": "axpy_many",
    "arguments": [
        {"name": "y", "type": "f32", "shape": ["n"], "is": "inout"},
        {"name": "x", "type": "f32", "shape": ["n"]},
        {"name": "a", "type": "f32", "value": 2.5},
        {"name": "n", "type": "i32"}
    ],
    "sizes": {"n": 1000},
    "tune": {
        "THREADS": [32, 64, 128, 256],
        "A": [1, 2, 4, 8, 16, 32, 64, 128],
        "B": [1, 2, 4, 8, 16, 32, 64, 128],
        "C": [1, 2, 4, 8, 16, 32, 64, 128],
        "D": [1, 2, 4, 8, 16, 32, 64, 128],
        "E": [1, 2, 4, 8, 16, 32, 64, 128],
        "F": [1, 2, 4, 8, 16, 32, 64, 128],
        "G": [0, 1, 2, 3]
    },
    "restrictions": ["A * B <= 1024", "C <= 8 * D"],
    "default": {"THREADS": 32, "A": 1, "B": 1, "C": 1, "D": 1, "E": 1, "F": 1, "G": 0},
    "block": "THREADS",
    "grid": "ceil_div(n, THREADS)",
    "answer": "axpy_naive"
} */
#if A * B > 1024 || C > 8 * D
#error this breaks a restriction
#endif
#if G == 3
#error this does not compile
#endif

extern "C" __global__ void axpy_naive(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}

extern "C" __global__ void axpy_many(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
    if (n == -(A + 1000 * B + 1000000 * C) && i == D + 1000 * E + 1000000 * F + G)
        y[0] = 0;
}
