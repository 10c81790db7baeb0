/* SPDX-License-Identifier: Apache-2.0
 *
 * The module fa_tune._core: its functions and how they are made known.
 */
#include "attention.h"
#include "backward.h"
#include "bound.h"
#include "cases.h"
#include "configs.h"
#include "errors.h"
#include "problem.h"
#include "session.h"
#include "store.h"
#include "tensors.h"

#include "fa_bundle.h"

static PyObject *version(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyUnicode_FromString(fa_version());
}

static PyObject *session(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return session_tuner() != NULL ? PyLong_FromUnsignedLong(session_number()) : NULL;
}

static PyObject *write_file(PyObject *self, PyObject *arguments)
{
    PyObject *path = NULL;
    const char *bytes;
    Py_ssize_t size;
    fa_diag diag = {{0}};
    (void)self;
    if (!PyArg_ParseTuple(arguments, "O&y#:write_file", PyUnicode_FSConverter, &path, &bytes,
                          &size))
        return NULL;
    int rc = fa_output_write(PyBytes_AsString(path), bytes, (size_t)size, &diag);
    Py_DECREF(path);
    if (rc != 0) {
        fail_with(rc, &diag);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"attention", (PyCFunction)(void (*)(void))attention, METH_FASTCALL | METH_KEYWORDS,
     attention_doc},
    {"attention_varlen", (PyCFunction)(void (*)(void))attention_varlen,
     METH_FASTCALL | METH_KEYWORDS, attention_varlen_doc},
    {"attention_decode", (PyCFunction)(void (*)(void))attention_decode,
     METH_FASTCALL | METH_KEYWORDS, attention_decode_doc},
    {"attention_backward", (PyCFunction)(void (*)(void))attention_backward,
     METH_FASTCALL | METH_KEYWORDS,
     "attention_backward(d_o, o, lse, d_lse, deterministic, wanted, q, k, v, **options)\n--\n\n"
     "(dq, dk, dv, d_sinks, a list) of attention()'s call with these options, of PyTorch's tensors; d_sinks is None without sinks.\n"
     "The list: those of the buffers whose names are in `wanted`, in the order of their names.\n"
     "d_lse: the gradient of the LSE; None: the loss does not depend on it."},
    {"best_kernel", (PyCFunction)(void (*)(void))bound_best, METH_VARARGS | METH_KEYWORDS,
     "best_kernel(problem, effort=\"measure\", device=0, progress=None, strategy=None, evaluations=0, seconds=0, memory=0)\n--\n\n"
     "The best Kernel for a problem (a dict of the operation's fields), loaded in the device's current or "
     "primary context. progress: a function of one dict, called some times a second; None: a line "
     "on stderr where that is a terminal; False: none. Ctrl-C ends a tune and keeps what is done."},
    {"near_kernel", bound_near, METH_VARARGS,
     "near_kernel(problem, device)\n--\n\n"
     "The Kernel of the problem, or of the nearest one that is right for it, among those loaded in this process."},
    {"tune", (PyCFunction)(void (*)(void))session_tune, METH_VARARGS | METH_KEYWORDS,
     "tune(problem, gpu=None, device=0, effort=\"measure\", again=False, exact=False, progress=None)\n--\n\n"
     "The winner for a problem on a GPU type (gpu=\"L4\", here or not) or a device, as a dict; tuned now "
     "where it is not stored. Nothing is loaded into this process."},
    {"sweep", store_sweep, METH_VARARGS,
     "sweep(ask, on_event, on_item)\n--\n\n"
     "Runs the sweep that the JSON text asks for (fa_service.h) and returns how it stands, as a dict. Calls\n"
     "on_event(dict) as it goes, and at the end on_item(dict) for every item that is in the local store."},
    {"winners", store_winners, METH_NOARGS,
     "winners()\n--\n\nStored winners, newest first, as dicts."},
    {"report", store_report, METH_VARARGS,
     "report(format, keep)\n--\n\nThe report as bytes (html, markdown, csv or json) of the problems for which\n"
     "keep(problem, gpu) is true."},
    {"forget", store_forget, METH_VARARGS,
     "forget(select, dry_run)\n--\n\nForgets the stored problems for which select(dict) is true, or all for None; returns\n"
     "what went, as dicts, and a dict of counts. After an exception of select nothing is gone."},
    {"export", store_export, METH_VARARGS,
     "export(kernel, path)\n--\n\nWrites a signed bundle of the Kernel's winner."},
    {"import_bundle", store_import, METH_VARARGS,
     "import_bundle(path)\n--\n\nTakes the winners of a bundle that somebody trusted has signed into the store."},
    {"doctor", store_doctor, METH_NOARGS,
     "doctor()\n--\n\nThe doctor's findings: a list of (level, name, text, advice)."},
    {"kept", store_kept, METH_VARARGS,
     "kept(key, hold)\n--\n\nThe values of other tuners with this key, or all of them for None and then without their bytes:\n"
     "tuples of key, tuner, name, GPU, JSON of what made it, Unix time, size, bytes. hold: where there is\n"
     "none, the caller is to keep it (fa_report_data.h); None: another process is to."},
    {"keep", store_keep, METH_VARARGS,
     "keep(key, tuner, name, gpu, made, value)\n--\n\nKeeps bytes of another tuner, or for None forgets those of the key."},
    {"gpu", store_gpu, METH_VARARGS,
     "gpu(name, device=0)\n--\n\nA GPU type, or for None a device here: its name as the catalogue spells it, architecture, SMs,\n"
     "shared memory of a block and an SM, L2, bits of the memory bus, MHz."},
    {"gpu_types", store_gpu_types, METH_NOARGS,
     "gpu_types()\n--\n\nThe names of the GPU types in the catalogue."},
    {"problem", problem_complete, METH_O,
     "problem(fields)\n--\n\nA dict with every field of the problem, checked; defaults where none are given."},
    {"fields_of", problem_fields, METH_O,
     "fields_of(operation)\n--\n\nAn operation's fields, as a dict of pairs: what each may be (a list of words, bool or a pair\n"
     "of ints), and its default. None: attention forward; another may be of FA_TUNE_TEMPLATES."},
    {"load_specification", problem_specification, METH_VARARGS,
     "load_specification(where, text, source)\n--\n\nThe operation of a kernel specification, as \"NAME@HASH\": of the file\n"
     "`where` if text is None, else of JSON and the CUDA C++ that it speaks of."},
    {"give_cases", cases_give, METH_VARARGS,
     "give_cases(operation, contents)\n--\n\nTunes of a specification's operation ask fa_tune._cases.provide() for data from now\n"
     "on; contents: a hash of the inputs among it, or 0."},
    {"configs", configs_list, METH_VARARGS,
     "configs(problem, gpu, device)\n--\n\nEvery config of the problem and where it ended, best first, as dicts with a rank; 0: it\n"
     "did not finish."},
    {"set_policy", (PyCFunction)(void (*)(void))session_set_policy, METH_VARARGS | METH_KEYWORDS,
     "set_policy(effort, on_miss=None, same_bits=\"\")\n--\n\n"
     "How attention() comes by a kernel that is not loaded: by this effort, or by calling\n"
     "on_miss(problem, device, arguments), which returns a Kernel, or what attention() shall return."},
    {"set_recorder", session_set_recorder, METH_O,
     "set_recorder(function)\n--\n\nCalls function(problem, device) for every attention(); None ends it."},
    {"write_file", write_file, METH_VARARGS,
     "write_file(path, bytes)\n--\n\nWrites a file that is there whole, or as it was; replaces no store and no key."},
    {"close", session_close, METH_NOARGS,
     "close()\n--\n\nUnloads every kernel and closes the store. The next call opens it anew."},
    {"session", session, METH_NOARGS,
     "session()\n--\n\nThe number of the tuner that this process has open: its kernels end with it."},
    {"_forget", session_forget, METH_NOARGS, "In a forked child: leaves the parent's tuner alone."},
    {"version", version, METH_NOARGS, "version()\n--\n\nThe library's version."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "fa_tune._core",
    .m_doc = "The C part of fa_tune.",
    .m_size = -1,
    .m_methods = methods,
};

/* A forked child forgets its parent's tuner. */
static int watch_forks(PyObject *module)
{
    PyObject *os = PyImport_ImportModule("os"), *none = PyTuple_New(0);
    PyObject *watch = os != NULL ? PyObject_GetAttrString(os, "register_at_fork") : NULL;
    PyObject *forget = PyObject_GetAttrString(module, "_forget"), *words = NULL, *done = NULL;
    if (forget != NULL)
        words = Py_BuildValue("{s:O}", "after_in_child", forget);
    if (watch != NULL && none != NULL && words != NULL)
        done = PyObject_Call(watch, none, words);
    Py_XDECREF(words);
    Py_XDECREF(forget);
    Py_XDECREF(watch);
    Py_XDECREF(none);
    Py_XDECREF(os);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && (errors_init() != 0 || problem_init() != 0 || tensors_init() != 0 ||
                           attention_init() != 0 || backward_init() != 0 ||
                           bound_init(module) != 0 || watch_forks(module) != 0))
        Py_CLEAR(module);
    return module;
}
