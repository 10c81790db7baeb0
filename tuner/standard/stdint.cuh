/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel has of stdint.h and cstdint, which NVRTC does not bring. */
#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;
typedef unsigned long long uint64_t; typedef int64_t intptr_t; typedef uint64_t uintptr_t;
