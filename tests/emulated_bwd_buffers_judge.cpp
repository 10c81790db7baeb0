// SPDX-License-Identifier: Apache-2.0
// The judge of kernels whose texts read buffers, too.
#define D_LSE 1
#define BUFFER_COUNT 7
#define D_BUFFERS 4096
#include "emulated_bwd_judge.cpp"
