/* fa-tune
{
  "kernel": "convolution",
  "arguments": [
    {"name": "out", "type": "f32", "shape": ["h", "w"], "is": "out"},
    {"name": "in", "type": "f32", "shape": ["h + fh - 1", "w + fw - 1"]},
    {"name": "filter", "type": "f32", "shape": ["fh", "fw"]},
    {"name": "w"}, {"name": "h"}
  ],
  "sizes": {"w": 1024, "h": 1024, "fw": {"default": 17, "fixed": true}, "fh": {"default": 17, "fixed": true}},
  "tune": {"BLOCK_X": [16, 32, 64], "BLOCK_Y": [1, 2, 4, 8], "TILE_X": [1, 2, 4], "TILE_Y": [1, 2]},
  "defines": {"FILTER_W": "fw", "FILTER_H": "fh"},
  "restrictions": ["64 <= BLOCK_X * BLOCK_Y <= 1024"],
  "block": ["BLOCK_X", "BLOCK_Y"],
  "grid": ["ceil_div(w, BLOCK_X * TILE_X)", "ceil_div(h, BLOCK_Y * TILE_Y)"],
  "answer": {"kernel": "convolution_naive", "block": [32, 8], "grid": ["ceil_div(w, 32)", "ceil_div(h, 8)"]},
  "flops": "2 * w * h * fw * fh"
}
*/
__global__ void convolution_naive(float *out, const float *in, const float *filter, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float sum = 0;
    for (int i = 0; i < FILTER_H; i++)
        for (int j = 0; j < FILTER_W; j++) sum += in[(y + i) * (w + FILTER_W - 1) + x + j] * filter[i * FILTER_W + j];
    out[y * w + x] = sum;
}

__global__ void __launch_bounds__(BLOCK_X * BLOCK_Y)
convolution(float *out, const float *in, const float *filter, int w, int h)
{
    int x0 = blockIdx.x * BLOCK_X * TILE_X + threadIdx.x, y0 = blockIdx.y * BLOCK_Y * TILE_Y + threadIdx.y;
    float sum[TILE_Y][TILE_X] = {};
    for (int i = 0; i < FILTER_H; i++)
        for (int j = 0; j < FILTER_W; j++) {
            float f = filter[i * FILTER_W + j];
#pragma unroll
            for (int a = 0; a < TILE_Y; a++)
#pragma unroll
                for (int b = 0; b < TILE_X; b++) {
                    int x = x0 + b * BLOCK_X, y = y0 + a * BLOCK_Y;
                    if (x < w && y < h) sum[a][b] += in[(y + i) * (w + FILTER_W - 1) + x + j] * f;
                }
        }
    for (int a = 0; a < TILE_Y; a++)
        for (int b = 0; b < TILE_X; b++) {
            int x = x0 + b * BLOCK_X, y = y0 + a * BLOCK_Y;
            if (x < w && y < h) out[y * w + x] = sum[a][b];
        }
}
