// SPDX-License-Identifier: Apache-2.0
// As emulated_bwd.hpp, of kernels that take the gradient of the LSE and test_emulated_bwd.py's buffers.
#include "emulated_bwd.hpp"
