/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what ptxas decided out of a cubin (ELF64, .nv.info), and constants that a template left
 * there for the host, with no GPU and no CUDA library.
 * The bytes may be hostile: every offset is checked.
 */
#ifndef FA_GPU_CUBIN_H
#define FA_GPU_CUBIN_H

#include "buf.h"
#include "fa_types.h"

enum { FA_CUBIN_PARAMETERS = 28 };

typedef struct fa_cubin_info {
    int32_t sm;                 /* from e_flags: 89 */
    int32_t registers;          /* per thread */
    int32_t stack_bytes;        /* per thread: > 0 means spills or indexed local arrays */
    int32_t static_smem_bytes;  /* declared by the kernel, without the system's 1,024 */
    int32_t max_threads;        /* from __launch_bounds__; 0 when absent */
    int32_t parameter_bytes;    /* of all, with the gaps between them */
    int32_t parameter_count;
    int32_t parameter_size[FA_CUBIN_PARAMETERS]; /* of the first ones; 0 when absent */
} fa_cubin_info;

/* An entry is a symbol, or else the name of a kernel of C++ linkage without its namespaces, template arguments and
 * parameters, where the cubin has one of that name.
 * FA_ECORRUPT: not a cubin, truncated or inconsistent, or several such kernels; FA_ENOTFOUND: no such entry. */
int fa_cubin_read(const void *bytes, size_t size, const char *entry, fa_cubin_info *ret_info,
                  fa_diag *diag);
/* Raises the registers, stack and static shared memory to those of another kernel, where it has more. */
void fa_cubin_join(fa_cubin_info *info, const fa_cubin_info *other);
/* The most registers, stack and static shared memory that a kernel of the cubin has; sm; and 0 in all else. */
int fa_cubin_most(const void *bytes, size_t size, fa_cubin_info *ret_most, fa_diag *diag);

/* SHA-256 over what the kernel executes: its instructions, their relocations and its constants,
 * with its registers. Equal for two cubins that differ in names and in hints to the compiler alone. */
int fa_cubin_code(const void *bytes, size_t size, const char *entry, char ret_hex[FA_HASH_HEX],
                  fa_diag *diag);

/* Whether a kernel's symbol stands for this entry. */
bool fa_cubin_is_called(const char *symbol, const char *entry);
/* The symbols of kernels and variables of C++ linkage, each with its NUL, appended. */
int fa_cubin_mangled(const void *bytes, size_t size, fa_buf *ret_names, fa_diag *diag);

/* Copies the initial bytes of a __constant__ (or initialised __device__) variable by its extern "C"
 * name. FA_ENOTFOUND: there is none (no sentence); FA_ECORRUPT: as above, or it has another size or
 * no bytes in the file. */
int fa_cubin_constant(const void *bytes, size_t size, const char *name, void *ret_value,
                      size_t value_size, fa_diag *diag);

/* The bytes of a variable, __constant__ or __device__, that has this name without its namespaces. FA_ENOTFOUND: there is none;
 * FA_ECORRUPT: as above, or there are several. */
int fa_cubin_variable(const void *bytes, size_t size, const char *name, uint64_t *ret_size,
                      fa_diag *diag);

#endif
