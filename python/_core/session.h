/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's tuner, its policy of misses, and tunes.
 */
#ifndef FA_PYTHON_SESSION_H
#define FA_PYTHON_SESSION_H

#include "errors.h"

/* Tells a note of the library by the package's logger: an fa_options.log, called without the GIL. */
void session_note(void *context, const char *sentence);
/* The tuner, opened when it is first needed. */
fa_tuner *session_tuner(void);
/* Another number for every tuner that this process opens: what belongs to one is gone with it. */
unsigned session_number(void);
/* Around what holds the tuner or a kernel of it, and may run other Python meanwhile: it is not closed. */
void session_begin(void);
void session_end(void);
/* As fa_enter_device(). */
int session_enter(int device, bool *ret_entered, fa_diag *diag);
/* Releases the GIL for a call of the tuner, which is not closed meanwhile, and takes it again. */
PyThreadState *session_release(void);
void session_acquire(PyThreadState *state);

/* What attention() does about a kernel that is not loaded. */
extern fa_effort policy_effort;
extern PyObject *policy_on_miss;  /* or NULL */
extern PyObject *policy_recorder; /* or NULL */

/* The best kernel for the request's problem on the device, tuned where the effort allows: other threads run
 * meanwhile, and Ctrl-C ends it. progress: a function, None or NULL for the terminal, or False. */
int session_kernel(fa_request *request, PyObject *progress, const fa_kernel **ret_kernel);
/* fa_get_near_kernel() on a device; as above. */
int session_near_kernel(const fa_problem *problem, int device, const fa_kernel **ret_kernel);

/* Functions of the module. */
PyObject *session_tune(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *session_close(PyObject *self, PyObject *unused);
PyObject *session_forget(PyObject *self, PyObject *unused);
PyObject *session_set_policy(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *session_set_recorder(PyObject *self, PyObject *recorder);

#endif
