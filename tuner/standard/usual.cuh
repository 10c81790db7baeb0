/* SPDX-License-Identifier: Apache-2.0
 *
 * What nvcc includes before every source, and NVRTC does not. A part that a source uses is put before it; std is a name to ask for. */
typedef unsigned int uint; typedef unsigned short ushort; typedef unsigned long ulong;
typedef unsigned char uchar; typedef unsigned char u_int8_t; typedef unsigned short u_int16_t;
typedef unsigned int u_int32_t; typedef unsigned long long u_int64_t; typedef long ssize_t;
typedef signed char int8_t; typedef short int16_t; typedef int int32_t;
typedef long long int64_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t;
typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
typedef long long intptr_t; typedef unsigned long long uintptr_t;
#define INFINITY __int_as_float(0x7f800000)
#define HUGE_VALF __int_as_float(0x7f800000)
#define HUGE_VAL __longlong_as_double(0x7ff0000000000000)
#define NAN __int_as_float(0x7fffffff)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
__device__ inline void cudaGridDependencySynchronize()
{ asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void cudaTriggerProgrammaticLaunchCompletion()
{ asm volatile("griddepcontrol.launch_dependents;"); }
#define std
