// A convolution of which all sizes are arguments, as Kernel Tuner's users write it: what may be tuned is said in Python.
__global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
convolve(float *out, const float *inp, const float *filter, int w, int h, int fw, int fh)
{
#if USE_SHARED
    __shared__ float weights[1024];
    for (int i = threadIdx.y * BLOCK_X + threadIdx.x; i < fw * fh; i += BLOCK_X * BLOCK_Y) weights[i] = filter[i];
    __syncthreads();
#else
    const float *weights = filter;
#endif
    int x0 = blockIdx.x * BLOCK_X * TILE_X + threadIdx.x, y0 = blockIdx.y * BLOCK_Y * TILE_Y + threadIdx.y;
    for (int y = y0; y < h && y < y0 + BLOCK_Y * TILE_Y; y += BLOCK_Y)
        for (int x = x0; x < w && x < x0 + BLOCK_X * TILE_X; x += BLOCK_X) {
            float sum = 0;
            for (int i = 0; i < fh; i++)
                for (int j = 0; j < fw; j++) sum += inp[(y + i) * (w + fw - 1) + x + j] * weights[i * fw + j];
            out[y * w + x] = sum;
        }
}
