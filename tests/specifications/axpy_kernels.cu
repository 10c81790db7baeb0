namespace {
// Not the kernel: __global__ void axpy(int) in a comment is none.
__device__ float times(float a, float x) { return a * x; }
}

__global__ void other(float *x) { x[0] = 0; }

__global__ void __launch_bounds__(THREADS) axpy(float *y, const float *x, float a, int n)
{
    __shared__ float kept[THREADS];
    for (int k = 0; k < PER_THREAD; k++) {
        int i = (blockIdx.x * PER_THREAD + k) * THREADS + threadIdx.x;
        if (i >= n) return;
        kept[threadIdx.x] = times(a, x[i]);
        y[i] += kept[threadIdx.x];
    }
}
