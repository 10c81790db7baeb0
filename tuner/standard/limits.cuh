/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel has of limits.h and climits. */
#pragma once
#ifndef INT_MAX
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#endif
