// SPDX-License-Identifier: Apache-2.0
// The judge of kernels that take the gradient of the LSE, whose struct of arguments is another one.
#define D_LSE 1
#include "emulated_bwd_judge.cpp"
