/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers that proofs and races draw: the same for the same seed, on the host and on a device.
 */
#ifndef FA_TUNER_RANDOM_H
#define FA_TUNER_RANDOM_H

#include <stdint.h>

/* splitmix64 (Steele, Lea, Flood 2014): the i-th number of the stream `seed`. */
static inline uint64_t fa_random(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
