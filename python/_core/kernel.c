/* SPDX-License-Identifier: Apache-2.0
 *
 * A loaded kernel as a Python object.
 */
#include "kernel.h"

#include "session.h"

typedef struct kernel_object {
    PyObject_HEAD const fa_kernel *kernel; /* the tuner's, until it is closed */
    unsigned session;                      /* that it belongs to */
    int device;
} kernel_object;

PyTypeObject *kernel_type;

void kernel_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyObject *kernel_wrap(const fa_kernel *kernel, int device)
{
    kernel_object *object =
        session_tuner() != NULL ? PyObject_New(kernel_object, kernel_type) : NULL;
    if (object != NULL) {
        object->kernel = kernel;
        object->session = session_number();
        object->device = device;
    }
    return (PyObject *)object;
}

const fa_kernel *kernel_alive(PyObject *self)
{
    kernel_object *object = (kernel_object *)self;
    if (object->session == session_number())
        return object->kernel;
    fail(ERROR_ANY,
         "this kernel belongs to a tuner that has ended (fa_tune.close(), or a fork): ask for the "
         "kernel again");
    return NULL;
}

const fa_kernel *kernel_unwrap(PyObject *object)
{
    return Py_TYPE(object) == kernel_type ? ((kernel_object *)object)->kernel : NULL;
}

int kernel_device_of(PyObject *object)
{
    return ((kernel_object *)object)->device;
}

size_t kernel_size(void)
{
    return sizeof(kernel_object);
}
