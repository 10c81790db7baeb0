/* SPDX-License-Identifier: Apache-2.0
 *
 * Where this library or program itself lies.
 */
#ifndef FA_BASE_OWN_PLACE_H
#define FA_BASE_OWN_PLACE_H

#include <stddef.h>

/* The directory of the file that this code was loaded from, absolute; "" where it cannot be told. */
void fa_own_directory(char *ret_path, size_t size);

#endif
