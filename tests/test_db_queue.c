/* SPDX-License-Identifier: Apache-2.0
 *
 * What a fleet shares: leases and the claims of its queue, how they run out, what is refused then,
 * and how waiters wake.
 */
#include "db_fixture.h"

#include "statements.h"

#include "operation.h"


static const fa_sweep_spent nothing;
enum { ITEMS = 3, LONG_MS = 600000 };

static void make_items(fa_sweep_item item[ITEMS])
{
    memset(item, 0, ITEMS * sizeof *item);
    for (int i = 0; i < ITEMS; i++) {
        item[i].problem = db_scope(64 << i).problem;
        snprintf(item[i].gpu, sizeof item[i].gpu, "%s", i == 1 ? "H100" : "L4");
    }
}

static int64_t enter_with(char letter, bool restart, fa_sweep_budget budget)
{
    fa_sweep sweep = {.plan = "--seq 64:256:x2", .budget = budget};
    fa_sweep_item item[ITEMS];
    int64_t id = 0;
    memset(sweep.key, letter, sizeof sweep.key - 1);
    make_items(item);
    return fa_store_sweep_enter(store,
                                &(fa_sweep_entry){&sweep, item, ITEMS, restart, "{\"effort\":1}"},
                                &id, &diag) == 0
               ? id
               : 0;
}

static int64_t enter(char letter)
{
    return enter_with(letter, false, (fa_sweep_budget){0});
}

static int claim_ms(const char *gpu, fa_work_stage stage, const char *holder, int64_t lease_ms,
                    fa_queue_claim *ret_claim)
{
    const fa_queue_taker taker = {0, gpu, stage, holder, lease_ms};
    fa_sweep_item item;
    return fa_store_queue_claim(store, &taker, ret_claim, &item, &diag);
}

static int claim(const char *gpu, const char *holder, fa_queue_claim *ret_claim)
{
    return claim_ms(gpu, FA_WORK_MEASURE, holder, LONG_MS, ret_claim);
}

static int publish(const fa_queue_claim *held, uint32_t n)
{
    unsigned char *bytes = malloc(DB_CUBIN_SIZE);
    if (bytes == NULL)
        return FA_ENOMEM;
    fa_cubin_record cubin = db_cubin(n, bytes);
    fa_winner_record winner = db_winner(64 << held->position, n, FA_ORIGIN_MEASURED);
    const fa_queue_end end = {FA_ITEM_DONE, .winner = &winner, .cubin = &cubin};
    int rc = fa_store_queue_end(store, held, &end, &diag);
    free(bytes);
    return rc;
}

static int fail(const fa_queue_claim *held, const fa_sweep_spent *spent)
{
    const fa_queue_end end = {FA_ITEM_FAILED, .reason = "it broke", .spent = spent};
    return fa_store_queue_end(store, held, &end, &diag);
}

static int give_back(const fa_queue_claim *held, bool compiled, const fa_sweep_spent *spent)
{
    const fa_queue_end end = {FA_ITEM_PENDING, .compiled = compiled, .spent = spent};
    return fa_store_queue_end(store, held, &end, &diag);
}

static fa_queue counts_of(int64_t id)
{
    fa_queue counts = {.pending = -1};
    fa_store_queue_counts(store, id, &counts, &diag);
    return counts;
}

static fa_sweep_state state_of(int64_t id)
{
    fa_sweep sweep = {.state = FA_SWEEP_STOPPED};
    fa_store_sweep_read(store, id, &sweep, &diag);
    return sweep.state;
}

/* ---- leases ---------------------------------------------------------------------------------*/
static void a_lease_has_one_holder_and_each_a_higher_fence(void)
{
    fa_store_lease a, b, again;
    CHECK_OK(fa_store_lease_take(store, "key", "a", LONG_MS, &a, &diag), diag);
    CHECK_INT(fa_store_lease_take(store, "key", "b", LONG_MS, &b, &diag), FA_EBUSY);
    CHECK_HAS(diag.text, "key");
    CHECK_OK(fa_store_lease_take(store, "other key", "b", LONG_MS, &b, &diag), diag);
    CHECK_OK(fa_store_lease_renew(store, &a, LONG_MS, &diag), diag);
    CHECK_OK(fa_store_lease_take(store, "key", "a", LONG_MS, &again, &diag), diag);
    CHECK(again.fence > a.fence);
    CHECK_INT(fa_store_lease_renew(store, &a, LONG_MS, &diag), FA_EBUSY);
    CHECK_OK(fa_store_lease_release(store, &a, &diag), diag); /* stale: lets nothing go */
    CHECK_INT(fa_store_lease_take(store, "key", "b", LONG_MS, &b, &diag), FA_EBUSY);
    CHECK_OK(fa_store_lease_release(store, &again, &diag), diag);
    CHECK_OK(fa_store_lease_take(store, "key", "b", LONG_MS, &b, &diag), diag);
    CHECK(b.fence > again.fence);
    CHECK_INT(fa_store_lease_renew(store, &again, LONG_MS, &diag), FA_EBUSY);
}

static void a_lease_that_ran_out_goes_to_the_next_and_can_be_renewed_until_then(void)
{
    fa_store_lease a, b;
    CHECK_OK(fa_store_lease_take(store, "key", "a", 1, &a, &diag), diag);
    while (fa_store_lease_take(store, "key", "b", 1, &b, &diag) == FA_EBUSY)
        usleep(1000);
    CHECK(b.fence == a.fence + 1);
    CHECK_INT(fa_store_lease_renew(store, &a, LONG_MS, &diag), FA_EBUSY);
    CHECK_OK(fa_store_lease_renew(store, &b, LONG_MS, &diag), diag); /* over, and nobody's yet */
    CHECK_INT(fa_store_lease_take(store, "key", "a", LONG_MS, &a, &diag), FA_EBUSY);
}

struct publishing {
    fa_store *store;
    const fa_store_lease *lease;
    const fa_winner_record *winner;
    const fa_cubin_record *cubin;
};

static int publish_under_lease(void *context, fa_diag *d)
{
    const struct publishing *p = context;
    int rc = fa_store_cubin_put(p->store, p->cubin, d);
    if (rc == 0)
        rc = fa_store_lease_renew(p->store, p->lease, LONG_MS, d);
    if (rc == 0)
        rc = fa_store_winner_hold(p->store, &p->winner->scope, d);
    return rc == 0 ? fa_store_winner_replace(p->store, p->winner, NULL, d) : rc;
}

static void a_winner_is_published_under_a_lease_that_is_held_alone(void)
{
    static unsigned char bytes[DB_CUBIN_SIZE];
    fa_store_lease a, b;
    CHECK_OK(fa_store_lease_take(store, "key", "a", 1, &a, &diag), diag);
    while (fa_store_lease_take(store, "key", "b", LONG_MS, &b, &diag) == FA_EBUSY)
        usleep(1000);
    fa_winner_record winner = db_winner(512, 1, FA_ORIGIN_MEASURED);
    fa_cubin_record cubin = db_cubin(1, bytes), got;
    struct publishing p = {store, &a, &winner, &cubin};
    CHECK_INT(fa_store_batch(store, publish_under_lease, &p, &diag), FA_EBUSY);
    CHECK_INT(fa_store_cubin_get(store, cubin.key, &got, &diag), FA_ENOTFOUND);
    CHECK(!db_winner_is(store, 512, 1, &diag));
    p.lease = &b;
    CHECK_OK(fa_store_batch(store, publish_under_lease, &p, &diag), diag);
    CHECK(db_winner_is(store, 512, 1, &diag));
}

static void leases_and_claims_that_cannot_be_are_refused(void)
{
    fa_store_lease lease;
    fa_queue_claim held;
    char name[FA_LEASE_NAME_MAX + 1], holder[FA_HOLDER_MAX + 1];
    memset(name, 'n', sizeof name - 1);
    memset(holder, 'h', sizeof holder - 1);
    name[sizeof name - 1] = holder[sizeof holder - 1] = 0;
    CHECK(enter('a') > 0);
    CHECK_INT(fa_store_lease_take(store, name, "a", 1, &lease, &diag), FA_EINVAL);
    CHECK_INT(fa_store_lease_take(store, "", "a", 1, &lease, &diag), FA_EINVAL);
    CHECK_INT(fa_store_lease_take(store, "key", holder, 1, &lease, &diag), FA_EINVAL);
    CHECK_INT(fa_store_lease_take(store, "key", "a", 0, &lease, &diag), FA_EINVAL);
    CHECK_INT(fa_store_lease_take(store, "key", "a", INT64_MAX, &lease, &diag), FA_EINVAL);
    CHECK_INT(claim(NULL, "", &held), FA_EINVAL);
    CHECK_INT(claim(NULL, holder, &held), FA_EINVAL);
    CHECK_INT(claim_ms(NULL, FA_WORK_MEASURE, "a", -1, &held), FA_EINVAL);
    CHECK_INT(claim_ms(NULL, (fa_work_stage)7, "a", 1, &held), FA_EINVAL);
    fa_sweep sweep = {.plan = ""};
    fa_sweep_item item[ITEMS];
    int64_t id;
    memset(sweep.key, 'b', sizeof sweep.key - 1);
    make_items(item);
    item[1].gpu[0] = 0;
    CHECK_INT(
        fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, ""}, &id, &diag),
        FA_EINVAL);
    CHECK_HAS(diag.text, "item 1");
}

/* ---- claims ---------------------------------------------------------------------------------*/
static void a_host_takes_items_of_its_gpu_types_and_learns_how_to_tune_them(void)
{
    int64_t id = enter('a');
    fa_queue_claim held;
    fa_sweep_item item;
    CHECK(id > 0);
    CHECK_INT(claim("B200", "a", &held), FA_ENOTFOUND);
    CHECK_OK(claim("H100", "a", &held), diag);
    CHECK_INT(held.position, 1);
    CHECK_INT(held.fence, 1);
    CHECK_INT(held.sweep_id, id);
    CHECK_TEXT(held.request, "{\"effort\":1}");
    CHECK_INT(claim("H100", "b", &held), FA_ENOTFOUND);
    const fa_queue_taker b = {0, "L4", FA_WORK_MEASURE, "b", LONG_MS};
    CHECK_OK(fa_store_queue_claim(store, &b, &held, &item, &diag), diag);
    CHECK_INT(held.position, 0);
    CHECK_TEXT(item.gpu, "L4");
    CHECK_INT(item.problem.seq_q, 64);
    CHECK_OK(claim(NULL, "c", &held), diag);
    CHECK_INT(held.position, 2);
    CHECK_INT(counts_of(id).running, 3);
    CHECK_INT(claim(NULL, "d", &held), FA_ENOTFOUND);
}

static void a_sweep_of_one_host_is_not_the_fleets(void)
{
    fa_sweep sweep = {.plan = "alone"};
    fa_sweep_item item[ITEMS];
    fa_queue_claim held;
    int64_t id;
    memset(sweep.key, 'c', sizeof sweep.key - 1);
    make_items(item);
    CHECK_OK(fa_store_sweep_enter(store, &(fa_sweep_entry){&sweep, item, ITEMS, false, NULL}, &id,
                                  &diag),
             diag);
    CHECK_INT(claim(NULL, "a", &held), FA_ENOTFOUND);
    CHECK_INT(counts_of(0).pending, 0);
}

static void a_published_item_is_done_with_its_winner_and_closes_its_sweep(void)
{
    int64_t id = enter('a');
    fa_queue_claim held;
    CHECK(id > 0);
    for (int i = 0; i < ITEMS; i++) {
        CHECK_INT(state_of(id), FA_SWEEP_RUNNING);
        CHECK_OK(claim(NULL, "a", &held), diag);
        if (i == 1)
            CHECK_OK(fail(&held, NULL), diag);
        else
            CHECK_OK(publish(&held, (uint32_t)i + 1), diag);
    }
    CHECK_INT(state_of(id), FA_SWEEP_DONE);
    CHECK_INT(counts_of(id).sweep.done, 2);
    CHECK_INT(counts_of(id).sweep.failed, 1);
    CHECK(db_winner_is(store, 64, 1, &diag) && db_winner_is(store, 256, 3, &diag));
    CHECK_OK(publish(&held, 9), diag); /* said before: its answer may have been lost */
    CHECK(db_winner_is(store, 256, 3, &diag));
    CHECK_INT(counts_of(id).refused, 0);
    CHECK_INT(fail(&held, NULL), FA_EBUSY); /* not so, though */
    CHECK_INT(counts_of(id).refused, 1);
    CHECK_INT(enter('a'), id); /* what failed is tried again */
    CHECK_OK(claim(NULL, "a", &held), diag);
    CHECK_INT(held.position, 1);
    CHECK_INT(held.fence, 2);
}

static void whoever_lost_a_claim_publishes_nothing_and_is_counted(void)
{
    int64_t id = enter('a');
    fa_queue_claim first, second;
    CHECK(id > 0);
    CHECK_OK(claim_ms("H100", FA_WORK_MEASURE, "a", 1, &first), diag);
    while (claim("H100", "b", &second) == FA_ENOTFOUND)
        usleep(1000);
    CHECK_INT(second.item_id, first.item_id);
    CHECK_INT(second.fence, first.fence + 1);
    CHECK_INT(fa_store_queue_renew(store, &first, LONG_MS, &diag), FA_EBUSY);
    CHECK_INT(publish(&first, 1), FA_EBUSY);
    CHECK_HAS(diag.text, "taken over");
    CHECK_INT(fail(&first, &nothing), FA_EBUSY);
    CHECK_INT(give_back(&first, true, &nothing), FA_EBUSY);
    CHECK_INT(give_back(&first, false, &nothing), FA_EBUSY); /* not counted */
    CHECK_INT(counts_of(id).refused, 3);
    CHECK(!db_winner_is(store, 128, 1, &diag));
    CHECK_OK(fa_store_queue_renew(store, &second, LONG_MS, &diag), diag);
    CHECK_OK(publish(&second, 2), diag);
    CHECK(db_winner_is(store, 128, 2, &diag));
    CHECK_INT(publish(&first, 1), FA_EBUSY);
    CHECK(db_winner_is(store, 128, 2, &diag));
    CHECK_INT(counts_of(id).refused, 4);
}

static void a_claim_that_ran_out_and_is_nobodys_yet_still_counts(void)
{
    int64_t id = enter('a');
    fa_queue_claim held, other;
    CHECK(id > 0);
    CHECK_OK(claim_ms("H100", FA_WORK_MEASURE, "a", 1, &held), diag);
    while (counts_of(id).expired != 1)
        usleep(1000);
    CHECK_OK(fa_store_queue_renew(store, &held, LONG_MS, &diag), diag);
    CHECK_INT(counts_of(id).expired, 0);
    CHECK_INT(claim("H100", "b", &other), FA_ENOTFOUND);
    CHECK_OK(publish(&held, 1), diag);
}

static void compiling_comes_before_measuring_where_somebody_compiles(void)
{
    int64_t id = enter('a');
    fa_queue_claim held, other;
    CHECK(id > 0);
    CHECK_OK(claim_ms(NULL, FA_WORK_COMPILE, "c", LONG_MS, &other), diag);
    CHECK_INT(other.position, 0);
    CHECK_OK(claim_ms(NULL, FA_WORK_COMPILE, "d", LONG_MS, &held), diag);
    CHECK_OK(claim_ms(NULL, FA_WORK_COMPILE, "d", LONG_MS, &held), diag);
    CHECK_INT(held.position, 2);
    CHECK(!held.compiled);
    CHECK_INT(claim(NULL, "m", &held), FA_ENOTFOUND); /* all are being compiled */
    CHECK_OK(give_back(&other, false, NULL), diag);
    fa_sweep_spent spent = {.compiled = 7, .seconds = 2};
    fa_queue_claim last = held;
    CHECK_OK(give_back(&last, true, &spent), diag);
    CHECK_OK(give_back(&last, true, &spent), diag); /* counts once */
    fa_sweep now = {0};
    CHECK_OK(fa_store_sweep_read(store, id, &now, &diag), diag);
    CHECK_INT(now.spent.compiled, 7);
    CHECK_INT(counts_of(id).compiled, 1);
    CHECK_OK(claim("L4", "m", &held), diag); /* that, not the earlier one */
    CHECK_INT(held.position, 2);
    CHECK(held.compiled);
    CHECK_INT(held.fence, 2);
    CHECK_OK(claim_ms(NULL, FA_WORK_COMPILE, "c", LONG_MS, &other), diag);
    CHECK_INT(other.position, 0); /* what is compiled is not compiled again */
    CHECK_INT(claim_ms(NULL, FA_WORK_COMPILE, "c", LONG_MS, &other), FA_ENOTFOUND);
    CHECK_OK(give_back(&held, false, NULL), diag);
    CHECK_OK(claim("L4", "m", &held), diag);
    CHECK(held.compiled); /* giving back loses nothing */
}

static void a_budget_that_is_spent_closes_the_queue(void)
{
    int64_t id = enter_with('a', false, (fa_sweep_budget){.trials = 10});
    fa_queue_claim first, second;
    fa_sweep_spent spent = {.trials = 6};
    CHECK(id > 0);
    CHECK_OK(claim(NULL, "a", &first), diag);
    CHECK_OK(claim(NULL, "b", &second), diag);
    CHECK_OK(fail(&first, &spent), diag);
    CHECK_INT(state_of(id), FA_SWEEP_RUNNING);
    CHECK_OK(fail(&second, &spent), diag);
    CHECK_INT(state_of(id), FA_SWEEP_BUDGET_SPENT);
    CHECK_INT(claim(NULL, "a", &first), FA_ENOTFOUND);
    CHECK_INT(enter_with('a', false, (fa_sweep_budget){.trials = 100}), id);
    CHECK_OK(claim(NULL, "a", &first), diag);
}

static void entering_again_leaves_items_with_those_who_hold_them(void)
{
    int64_t id = enter('a');
    fa_queue_claim held;
    CHECK(id > 0);
    CHECK_OK(claim("H100", "a", &held), diag);
    CHECK_INT(enter('a'), id);
    CHECK_INT(counts_of(id).running, 1);
    CHECK_OK(publish(&held, 1), diag);
    CHECK_OK(claim("L4", "a", &held), diag);
    CHECK(enter_with('a', true, (fa_sweep_budget){0}) > 0); /* --restart forgets them all */
    CHECK_INT(publish(&held, 1), FA_EBUSY);
    CHECK_INT(counts_of(0).pending, ITEMS);
}

static void an_item_that_cannot_be_read_fails_and_the_next_is_taken(void)
{
    int64_t id = enter('a');
    fa_queue_claim held;
    CHECK(id > 0);
    CHECK_OK(fa_db_exec(store, "UPDATE sweep_item SET problem = '{}' WHERE position = 0", &diag),
             diag);
    CHECK_OK(claim("L4", "a", &held), diag);
    CHECK_INT(held.position, 2);
    CHECK_INT(counts_of(id).sweep.failed, 1);
    CHECK_OK(publish(&held, 1), diag);
    CHECK_OK(fa_db_exec(store, "UPDATE sweep_item SET problem = '{}' WHERE position = 1", &diag),
             diag);
    CHECK_INT(claim(NULL, "a", &held), FA_ENOTFOUND); /* the last one: that is kept */
    CHECK_INT(counts_of(id).sweep.failed, 2);
    CHECK_INT(state_of(id), FA_SWEEP_DONE);
}

/* As a worker meets it whose template directory has another edition of the operation. */
static void an_item_of_an_operation_with_other_fields_now_is_passed_over_and_stays(void)
{
    static const char now[] = "{\"name\":\"queued\",\"title\":\"queued\",\"fields\":["
                              "{\"name\":\"rows\",\"kind\":\"integer\",\"key\":\"r\"}]}";
    static const char *const then[] = {
        "'{\"operation\":\"queued\",\"lines\":4}', problem_key = 'queued l=4'",
        "'{\"operation\":\"queued\",\"rows\":4}', problem_key = 'queued rows=4'"};
    const fa_operation *operation = NULL;
    int64_t id = enter('a');
    fa_queue_claim held;
    char change[256];
    CHECK(id > 0);
    CHECK_OK(fa_operation_register(now, sizeof now - 1, "test", &operation, &diag), diag);
    for (size_t i = 0; i < sizeof then / sizeof *then; i++) {
        snprintf(change, sizeof change, "UPDATE sweep_item SET problem = %s WHERE position = 0",
                 then[i]);
        CHECK(db_tamper(change));
        CHECK_INT(claim("L4", "a", &held), i == 0 ? 0 : FA_ENOTFOUND); /* the other one */
        CHECK_INT(held.position, 2);
        CHECK_INT(counts_of(id).sweep.failed, 0);
        CHECK_INT(counts_of(id).pending, ITEMS - 1);
    }
}

/* As an older worker meets it beside newer ones. */
static void an_item_that_only_a_newer_version_can_read_is_passed_over_and_stays(void)
{
    int64_t id = enter('a');
    fa_queue_claim held;
    CHECK(id > 0);
    CHECK(db_tamper("UPDATE sweep_item SET problem = replace(problem, 'bf16', 'fp8') "
                    "WHERE position = 0"));
    CHECK_OK(claim("L4", "a", &held), diag);
    CHECK_INT(held.position, 2);
    CHECK_INT(claim("L4", "b", &held), FA_ENOTFOUND);
    CHECK_INT(counts_of(id).sweep.failed, 0);
    CHECK_INT(counts_of(id).pending, ITEMS - 1);
    CHECK(db_tamper("UPDATE sweep_item SET problem = replace(problem, 'fp8', 'bf16') "
                    "WHERE position = 0"));
    CHECK(db_tamper("UPDATE sweep_item SET problem = replace(problem, '\"unaligned\"', "
                    "'\"window\":5,\"unaligned\"'), problem_key = problem_key || ' window=5' "
                    "WHERE position = 0"));
    CHECK_INT(claim("L4", "b", &held), FA_ENOTFOUND);
    CHECK_INT(counts_of(id).sweep.failed, 0);
    CHECK(db_tamper("UPDATE sweep_item SET problem = replace(problem, '\"window\":5,', ''), "
                    "problem_key = replace(problem_key, ' window=5', '') WHERE position = 0"));
    CHECK_OK(claim("L4", "b", &held), diag);
    CHECK_INT(held.position, 0);
    CHECK_INT(held.fence, 1); /* it had not been taken before */
}

static void a_sweep_whose_request_cannot_be_read_fails_and_does_not_hold_up_the_others(void)
{
    int64_t id = enter('a'), next = 0;
    fa_queue_claim held;
    CHECK(id > 0);
    CHECK(db_tamper("UPDATE sweep SET request = " DB_REPEAT(2000)));
    CHECK((next = enter('b')) > id);
    CHECK_OK(claim(NULL, "a", &held), diag);
    CHECK_INT(held.sweep_id, next);
    CHECK_INT(counts_of(id).sweep.failed, ITEMS);
    CHECK_INT(state_of(id), FA_SWEEP_DONE);
}

/* ---- waiting --------------------------------------------------------------------------------*/
static void a_waiter_wakes_when_another_connection_has_changed_the_store(void)
{
    fa_store *waiter = db_open(&diag);
    fa_queue_claim held;
    fa_store_lease lease;
    CHECK(waiter != NULL);
    CHECK_OK(fa_store_wait(waiter, 0, &diag), diag); /* the first time: look */
    CHECK_INT(fa_store_wait(waiter, 1, &diag), FA_ETIMEOUT);
    CHECK(enter('a') > 0);
    CHECK_OK(fa_store_wait(waiter, 60000, &diag), diag);
    CHECK_INT(fa_store_wait(waiter, 1, &diag), FA_ETIMEOUT);
    CHECK_OK(claim(NULL, "a", &held), diag);
    CHECK_OK(fa_store_lease_take(store, "key", "a", LONG_MS, &lease, &diag), diag);
    while (fa_store_wait(waiter, 1, &diag) == 0) /* taking may wake it: nothing is free for it */
        continue;
    CHECK_OK(give_back(&held, false, NULL), diag);
    CHECK_OK(fa_store_wait(waiter, 60000, &diag), diag);
    CHECK_OK(fa_store_lease_release(store, &lease, &diag), diag);
    CHECK_OK(fa_store_wait(waiter, 60000, &diag), diag);
    CHECK_OK(db_put_winner(store, 7, 7, FA_ORIGIN_MEASURED, NULL, &diag), diag);
    CHECK_OK(fa_store_wait(waiter, 60000, &diag), diag);
    CHECK_OK(db_put_winner(waiter, 8, 8, FA_ORIGIN_MEASURED, NULL, &diag), diag); /* its own */
    CHECK_INT(fa_store_wait(waiter, 1, &diag), FA_ETIMEOUT);
    fa_store_close(&waiter);
}

/* ---- the outbox -----------------------------------------------------------------------------*/
struct mail {
    int count;
    int32_t seq[4];
    int64_t ticket[4];
};

static int collect(void *context, const fa_scope *scope, int64_t ticket)
{
    struct mail *mail = context;
    if (mail->count < 4) {
        mail->seq[mail->count] = scope->problem.seq_q;
        mail->ticket[mail->count] = ticket;
    }
    mail->count++;
    return 0;
}

static void the_outbox_keeps_a_scope_that_was_added_again_since_it_was_told(void)
{
    fa_scope one = db_scope(1), two = db_scope(2);
    struct mail mail = {0};
    CHECK_OK(fa_store_outbox_add(store, "a", &one, &diag), diag);
    CHECK_OK(fa_store_outbox_add(store, "a", &two, &diag), diag);
    CHECK_OK(fa_store_outbox_each(store, "a", collect, &mail, &diag), diag);
    CHECK_INT(mail.count, 2);
    CHECK_INT(mail.seq[0], 1);
    CHECK_OK(fa_store_outbox_add(store, "a", &one, &diag), diag);
    CHECK_OK(fa_store_outbox_remove(store, "a", &one, mail.ticket[0], &diag), diag);
    CHECK_OK(fa_store_outbox_remove(store, "a", &two, mail.ticket[1], &diag), diag);
    mail = (struct mail){0};
    CHECK_OK(fa_store_outbox_each(store, "a", collect, &mail, &diag), diag);
    CHECK_INT(mail.count, 1);
    CHECK_INT(mail.seq[0], 1);
    CHECK_OK(fa_store_outbox_remove(store, "a", &one, mail.ticket[0], &diag), diag);
    mail = (struct mail){0};
    CHECK_OK(fa_store_outbox_each(store, "a", collect, &mail, &diag), diag);
    CHECK_INT(mail.count, 0);
}

static void an_entry_of_the_outbox_is_for_its_fleet_alone(void)
{
    fa_scope one = db_scope(1), two = db_scope(2);
    struct mail a = {0}, b = {0};
    CHECK_OK(fa_store_outbox_add(store, "a", &one, &diag), diag);
    CHECK_OK(fa_store_outbox_add(store, "b", &one, &diag), diag);
    CHECK_OK(fa_store_outbox_add(store, "b", &two, &diag), diag);
    CHECK_OK(fa_store_outbox_each(store, "a", collect, &a, &diag), diag);
    CHECK_OK(fa_store_outbox_each(store, "b", collect, &b, &diag), diag);
    CHECK(a.count == 1 && b.count == 2);
    CHECK_OK(fa_store_outbox_remove(store, "b", &one, a.ticket[0], &diag), diag); /* a's ticket */
    CHECK_OK(fa_store_outbox_remove(store, "a", &one, a.ticket[0], &diag), diag);
    a = b = (struct mail){0};
    CHECK_OK(fa_store_outbox_each(store, "a", collect, &a, &diag), diag);
    CHECK_OK(fa_store_outbox_each(store, "b", collect, &b, &diag), diag);
    CHECK(a.count == 0 && b.count == 2);
}

int main(void)
{
    DB_STORE_TEST(a_lease_has_one_holder_and_each_a_higher_fence);
    DB_STORE_TEST(a_lease_that_ran_out_goes_to_the_next_and_can_be_renewed_until_then);
    DB_STORE_TEST(a_winner_is_published_under_a_lease_that_is_held_alone);
    DB_STORE_TEST(leases_and_claims_that_cannot_be_are_refused);
    DB_STORE_TEST(a_host_takes_items_of_its_gpu_types_and_learns_how_to_tune_them);
    DB_STORE_TEST(a_sweep_of_one_host_is_not_the_fleets);
    DB_STORE_TEST(a_published_item_is_done_with_its_winner_and_closes_its_sweep);
    DB_STORE_TEST(whoever_lost_a_claim_publishes_nothing_and_is_counted);
    DB_STORE_TEST(a_claim_that_ran_out_and_is_nobodys_yet_still_counts);
    DB_STORE_TEST(compiling_comes_before_measuring_where_somebody_compiles);
    DB_STORE_TEST(a_budget_that_is_spent_closes_the_queue);
    DB_STORE_TEST(entering_again_leaves_items_with_those_who_hold_them);
    DB_STORE_TEST(an_item_that_cannot_be_read_fails_and_the_next_is_taken);
    DB_STORE_TEST(an_item_of_an_operation_with_other_fields_now_is_passed_over_and_stays);
    DB_STORE_TEST(an_item_that_only_a_newer_version_can_read_is_passed_over_and_stays);
    DB_STORE_TEST(a_sweep_whose_request_cannot_be_read_fails_and_does_not_hold_up_the_others);
    DB_STORE_TEST(a_waiter_wakes_when_another_connection_has_changed_the_store);
    DB_STORE_TEST(the_outbox_keeps_a_scope_that_was_added_again_since_it_was_told);
    DB_STORE_TEST(an_entry_of_the_outbox_is_for_its_fleet_alone);
    return check_done();
}
