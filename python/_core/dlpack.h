/* SPDX-License-Identifier: Apache-2.0
 *
 * As much of DLPack's binary interface as this module speaks. Layouts and values are those of DLPack 1.2
 * (github.com/dmlc/dlpack, include/dlpack/dlpack.h); they are an ABI, kept stable by its major version.
 *
 * A tensor comes in two ways: a capsule from tensor.__dlpack__(), which owns what it describes, or
 * through the table of functions that the tensor's type carries as __dlpack_c_exchange_api__, which
 * fills in a borrowed description without any Python object being made.
 */
#ifndef FA_PYTHON_DLPACK_H
#define FA_PYTHON_DLPACK_H

#include <stdint.h>

enum { DL_MAJOR = 1, DL_MINOR = 2 };
enum dl_device_type { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum dl_code {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_COMPLEX = 5,
    DL_BOOL = 6,
    DL_FLOAT8_E4M3FN = 10,
    DL_FLOAT8_E5M2 = 12
};
enum { DL_FLAG_READ_ONLY = 1 };

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_device {
    int32_t type; /* enum dl_device_type */
    int32_t id;
} dl_device;

typedef struct dl_dtype {
    uint8_t code; /* enum dl_code */
    uint8_t bits;
    uint16_t lanes;
} dl_dtype;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: contiguous */
    uint64_t byte_offset;
} dl_tensor;

/* In a capsule "dltensor". */
typedef struct dl_managed_old {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed_old *self);
} dl_managed_old;

/* In a capsule "dltensor_versioned". */
typedef struct dl_managed {
    dl_version version;
    void *context;
    void (*deleter)(struct dl_managed *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed;

/* In a capsule "dlpack_exchange_api". Functions return 0, or -1 with a Python exception set; the allocator
 * tells its error through the function it is given. Nothing here waits for a stream. */
typedef struct dl_exchange {
    dl_version version;
    const struct dl_exchange *previous; /* an older table, or NULL */
    int (*allocate)(dl_tensor *prototype, dl_managed **ret, void *error_context,
                    void (*set_error)(void *error_context, const char *kind, const char *message));
    int (*managed_from_object)(void *object, dl_managed **ret);
    int (*managed_to_object)(dl_managed *tensor, void **ret_object); /* takes the tensor over */
    int (*borrow)(void *object, dl_tensor *ret);                     /* may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **ret_stream);
} dl_exchange;

#endif
