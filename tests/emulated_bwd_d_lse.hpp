// SPDX-License-Identifier: Apache-2.0
// As emulated_bwd.hpp, of kernels that take the gradient of the LSE.
#include "emulated_bwd.hpp"
