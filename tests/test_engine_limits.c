/* SPDX-License-Identifier: Apache-2.0
 *
 * A host that is short of descriptors: a tune ends with a sentence, and the host lives.
 */
#include "engine_fixture.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct outcome {
    int rc;
    char text[sizeof((fa_diag *)NULL)->text];
};

/* In a process of its own: limits one resource, opens a session and tunes. The status of that process. */
static int tune_within(engine_fixture *f, int resource, rlim_t limit, struct outcome *ret)
{
    int pair[2], status = -1;
    *ret = (struct outcome){.rc = 1};
    if (pipe2(pair, O_CLOEXEC) != 0)
        return -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        fa_request request = {.size = sizeof request,
                              .problem = small_problem,
                              .effort = FA_EFFORT_PREDICT,
                              .again = true,
                              .gpu = "L4"};
        struct rlimit r = {limit, limit};
        struct outcome outcome = {0};
        fa_answer answer = {.size = sizeof answer};
        fa_diag diag = {{0}};
        for (int fd = 3; fd < 64; fd++) /* nothing but the answer's pipe is open */
            if (fd != pair[1])
                close(fd);
        dup2(pair[1], 3);
        setrlimit(resource, &r);
        f->tuner = NULL;
        outcome.rc = fixture_session(f, &diag);
        if (outcome.rc == 0)
            outcome.rc = fa_tune(f->tuner, &request, &answer, &diag);
        snprintf(outcome.text, sizeof outcome.text, "%s", outcome.rc == 0 ? "" : diag.text);
        _exit(write(3, &outcome, sizeof outcome) == sizeof outcome ? 0 : 3);
    }
    close(pair[1]);
    ssize_t got = read(pair[0], ret, sizeof *ret);
    close(pair[0]);
    waitpid(pid, &status, 0);
    return got == sizeof *ret ? status : status != 0 ? status : -1;
}

static void a_tune_without_descriptors_ends_with_that_sentence_and_no_signal(void)
{
    engine_fixture f;
    int failed = 0;
    CHECK(fixture_open(&f, NULL));
    for (rlim_t limit = 40; limit >= 4; limit--) {
        struct outcome outcome;
        int status = tune_within(&f, RLIMIT_NOFILE, limit, &outcome);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            printf("# with %d descriptors: status %d\n", (int)limit, status);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (outcome.rc == 0)
            continue;
        failed++;
        printf("# with %d descriptors: %s\n", (int)limit, outcome.text);
        CHECK(strstr(outcome.text, "out of memory") == NULL);
        CHECK(strstr(outcome.text, "was not found") == NULL);
    }
    CHECK(failed >= 4);
    fixture_close(&f);
}

int main(void)
{
    TEST(a_tune_without_descriptors_ends_with_that_sentence_and_no_signal);
    return check_done();
}
