/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's store: its address, the connection to it, and what is published there: a tune's winner with its cubin, its
 * trials and the cubins that others will want. Results that could not be published yet wait in the outbox.
 *
 * An address says where to connect, what people are shown, and which store it is. A connection is made when it is first
 * needed and closed when it fails. It is tried again after a pause that doubles, or a long pause if every try keeps a
 * caller waiting.
 *
 * Results that wait while the store is down wait for that store alone, so it is known by its address: an identifier
 * in the database would be copied with it, and a staging server is often made from a copy of production's. Two
 * addresses of one store that differ in user, password, other settings, capitals of the host or a port 5432 are the
 * same.
 *
 * Workload: one winner, its hundred trials and some cubins of 50 KB after a tune. Invariants: a scope
 * is in the outbox from the transaction that stores its winner until the fleet has it, so that a
 * kill -9 or a database that is gone loses nothing; what is published right after a tune goes out under
 * the key's lease, compared in the transaction that publishes; publishers of one key come one after
 * another, and a better winner is never replaced by a worse. What a worker tunes is in the outbox only
 * when it could not publish: else another process of its host would, without its claim.
 */
#include "fleet.h"

#include "buf.h"
#include "bundle_check.h"
#include "catalogue.h"
#include "error.h"
#include "pool.h"
#include "store.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- the address: its parts -----------------------------------------------------------------*/
static const char file_prefix[] = "sqlite://"; /* a file that containers of one machine share */

/* The parts of postgresql://USER:PASSWORD@HOSTS/DATABASE?QUERY, not yet decoded. */
struct parts {
    const char *user, *hosts, *database, *query;
    size_t user_size, hosts_size, database_size;
};

/* False where a password that was not written as it should be may have ended up in another part. */
static bool split_address(const char *location, struct parts *ret)
{
    const char *user = strstr(location, "://") + 3;
    size_t before = strcspn(user, "@/");
    bool named = user[before] == '@';
    struct parts parts = {.user = user, .user_size = named ? strcspn(user, ":@") : 0};
    parts.hosts = named ? user + before + 1 : user;
    parts.hosts_size = strcspn(parts.hosts, "/?");
    parts.database = parts.hosts + parts.hosts_size;
    parts.database += *parts.database == '/';
    parts.database_size = strcspn(parts.database, "?");
    parts.query = parts.database + parts.database_size;
    parts.query += *parts.query == '?';
    for (const char *item = parts.query; *item != 0; item += item[0] == '&') {
        size_t key = strspn(item, "abcdefghijklmnopqrstuvwxyz_");
        item += key;
        if (key == 0 || *item != '=')
            return false;
        item += strcspn(item, "&");
    }
    *ret = parts;
    return memchr(parts.hosts, '@', (size_t)(parts.query - parts.hosts)) == NULL;
}

/* ---- what is shown --------------------------------------------------------------------------*/
/* Scheme, user, host and database. A password that was not written as it should be may have any character in it: then
 * nothing is shown between the user's name and the last @, nor behind what should be a port and is none. */
static void print_location(const char *location, char *ret, size_t size)
{
    struct parts parts;
    const char *host = strstr(location, "://") + 3, *at = strrchr(host, '@');
    if (split_address(location, &parts))
        at = parts.hosts > host ? parts.hosts - 1 : NULL;
    size_t user = at != NULL ? strcspn(host, ":/@?") : 0;
    const char *rest = at != NULL ? at + 1 : host;
    size_t name = strcspn(rest, ":?");
    size_t port = rest[name] == ':' ? 1 + strspn(rest + name + 1, "0123456789,") : 0;
    size_t end = name + port;
    if (port > 0 && rest[end] != '/' && rest[end] != 0)
        end = name;
    else
        end += strcspn(rest + end, "?");
    snprintf(ret, size, "%.*s%.*s%s%.*s", (int)(host - location), location, (int)user, host,
             at != NULL ? "@" : "", (int)end, rest);
}

/* ---- which store it is ----------------------------------------------------------------------*/
static void append_decoded(fa_buf *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        char digits[3] = {0}, c = text[i];
        if (c == '%' && i + 2 < size && isxdigit((unsigned char)text[i + 1]) &&
            isxdigit((unsigned char)text[i + 2])) {
            memcpy(digits, text + i + 1, 2);
            c = (char)strtol(digits, NULL, 16);
            i += 2;
        }
        fa_buf_append(out, &c, 1);
    }
}

static const char *text_of(const fa_buf *buf)
{
    return buf->data != NULL ? buf->data : "";
}

/* h1:1,h2:2 as h1,h2 and 1,2, the way libpq has them. */
static void split_hosts(const struct parts *parts, fa_buf *host, fa_buf *port)
{
    const char *at = parts->hosts, *end = parts->hosts + parts->hosts_size;
    while (at < end) {
        const char *item = memchr(at, ',', (size_t)(end - at)), *colon = at;
        item = item != NULL ? item : end;
        if (*at == '[') /* an address of IPv6 */
            while (colon < item && *colon != ']')
                colon++;
        while (colon < item && *colon != ':')
            colon++;
        append_decoded(host, at, (size_t)(colon - at));
        append_decoded(port, colon + (colon < item), (size_t)(item - colon) - (colon < item));
        at = item + (item < end);
        if (item < end) {
            fa_buf_text(host, ",");
            fa_buf_text(port, ",");
        }
    }
}

/* What the query says goes before what the address says in front of it, and that before the environment. */
static void add_setting(const struct parts *parts, const char *key, const char *variable,
                        fa_buf *value)
{
    const char *from_environment = getenv(variable);
    size_t length = strlen(key);
    for (const char *item = parts->query; *item != 0; item += *item == '&') {
        size_t size = strcspn(item, "&");
        if (strncmp(item, key, length) == 0 && item[length] == '=') {
            fa_buf_clear(value);
            append_decoded(value, item + length + 1, size - length - 1);
        }
        item += size;
    }
    if (value->size == 0 && from_environment != NULL)
        fa_buf_text(value, from_environment);
}

/* Of the server's options only the one that says whose tables these are; the last one counts. */
static void keep_search_path(fa_buf *options)
{
    const char *path = NULL;
    for (const char *at = text_of(options); *at != 0; at++)
        if (strncasecmp(at, "search_path=", 12) == 0 || strncasecmp(at, "search-path=", 12) == 0)
            path = at + 12;
    size_t size = path != NULL ? strcspn(path, " ") : 0;
    if (size > 0)
        memmove(options->data, path, size);
    options->size = size;
    if (options->data != NULL)
        options->data[size] = 0;
}

enum { HOST, PORT, DATABASE, HOSTADDR, SERVICE, OPTIONS, SETTINGS };
static const struct {
    const char *key, *variable, *shown;
} settings[SETTINGS] = {
    [HOST] = {"host", "PGHOST", "host"},
    [PORT] = {"port", "PGPORT", "port"},
    [DATABASE] = {"dbname", "PGDATABASE", "dbname"},
    [HOSTADDR] = {"hostaddr", "PGHOSTADDR", "hostaddr"},
    [SERVICE] = {"service", "PGSERVICE", "service"},
    [OPTIONS] = {"options", "PGOPTIONS", "search_path"},
};

/* Whether every port of a list is the one that is taken where there is none. */
static bool is_usual(const char *ports)
{
    while (*ports != 0) {
        size_t size = strcspn(ports, ",");
        if (size != 0 && (size != 4 || strncmp(ports, "5432", 4) != 0))
            return false;
        ports += size + (ports[size] == ',');
    }
    return true;
}

static void write_identity(const fa_buf value[SETTINGS], fa_buf *out)
{
    const char *host = text_of(&value[HOST]), *port = text_of(&value[PORT]), *before = "?";
    bool folder = host[0] == '/' || host[0] == '@'; /* of a socket */
    fa_buf_text(out, "postgresql://");
    for (const char *c = folder ? "" : host; *c != 0; c++)
        fa_buf_printf(out, "%c", tolower((unsigned char)*c));
    if (!is_usual(port))
        fa_buf_printf(out, ":%s", port);
    fa_buf_printf(out, "/%s", text_of(&value[DATABASE]));
    for (int i = 0; i < SETTINGS; i++) {
        if (value[i].size == 0 || i == PORT || i == DATABASE || (i == HOST && !folder))
            continue;
        fa_buf_printf(out, "%s%s=%s", before, settings[i].shown, text_of(&value[i]));
        before = "&";
    }
}

/* False: the address is not one that libpq takes. */
static bool identify(const char *location, fa_buf *out)
{
    struct parts parts;
    fa_buf value[SETTINGS] = {{0}};
    const char *user = getenv("PGUSER");
    if (!split_address(location, &parts))
        return false;
    split_hosts(&parts, &value[HOST], &value[PORT]);
    append_decoded(&value[DATABASE], parts.database, parts.database_size);
    if (strspn(text_of(&value[PORT]), ",") == value[PORT].size)
        fa_buf_clear(&value[PORT]);
    for (int i = 0; i < SETTINGS; i++)
        add_setting(&parts, settings[i].key, settings[i].variable, &value[i]);
    if (value[DATABASE].size == 0 && parts.user_size > 0) /* as libpq does */
        append_decoded(&value[DATABASE], parts.user, parts.user_size);
    else if (value[DATABASE].size == 0 && user != NULL)
        fa_buf_text(&value[DATABASE], user);
    keep_search_path(&value[OPTIONS]);
    const char *port = text_of(&value[PORT]);
    bool valid = port[strspn(port, "0123456789,")] == 0; /* else a part of a password, maybe */
    if (valid)
        write_identity(value, out);
    for (int i = 0; i < SETTINGS; i++) {
        out->failed = out->failed || value[i].failed;
        fa_buf_free(&value[i]);
    }
    return valid;
}

/* Sets location, shown and identity. */
static int read_address(fa_fleet *fleet, const char *location, fa_diag *diag)
{
    fa_buf identity = {0};
    if (strncmp(location, file_prefix, sizeof file_prefix - 1) == 0) {
        snprintf(fleet->location, sizeof fleet->location, "%s", location + sizeof file_prefix - 1);
        snprintf(fleet->shown, sizeof fleet->shown, "%s", location);
        snprintf(fleet->identity, sizeof fleet->identity, "%s", location);
        return 0;
    }
    snprintf(fleet->location, sizeof fleet->location, "%s", location);
    print_location(location, fleet->shown, sizeof fleet->shown);
    if (!identify(location, &identity))
        fa_buf_text(&identity, fleet->shown); /* it is refused when it is opened */
    int rc = identity.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a tuner") : 0;
    if (rc == 0 && identity.size >= sizeof fleet->identity)
        rc = fa_fail(diag, FA_EINVAL, "the location of the fleet's store is too long");
    if (rc == 0)
        memcpy(fleet->identity, identity.data, identity.size + 1);
    fa_buf_free(&identity);
    return rc;
}

/* ---- a fleet --------------------------------------------------------------------------------*/
enum { RETRY_FIRST_MS = 1000, RETRY_MOST_MS = 60000, LEASE_S = 30, LEASE_MOST_S = 3600 };
/* A try that failed after so long had no answer at all, as from behind a wall: of the time from then on
 * one part in SLOW_SHARE may go into the next. */
enum { SLOW_MS = 1500, SLOW_SHARE = 30 };
static const char source_id;

/* How long a silent holder is believed to live, from FA_TUNE_LEASE in seconds. */
static int read_lease(int32_t *ret_ms, fa_diag *diag)
{
    const char *text = secure_getenv("FA_TUNE_LEASE");
    char *end;
    if (text == NULL || text[0] == 0) {
        *ret_ms = LEASE_S * 1000;
        return 0;
    }
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || value < 1 || value > LEASE_MOST_S)
        return fa_fail(diag, FA_EINVAL,
                       "FA_TUNE_LEASE is \"%.40s\": use whole seconds from 1 to %d", text,
                       LEASE_MOST_S);
    *ret_ms = (int32_t)value * 1000;
    return 0;
}

int fa_fleet_new(const char *location, fa_fleet **ret_fleet, fa_diag *diag)
{
    char host[64] = "";
    uint64_t number = 0;
    *ret_fleet = NULL;
    if (location[0] == 0)
        return 0;
    if (strlen(location) >= FA_STORE_PATH_MAX)
        return fa_fail(diag, FA_EINVAL, "the location of the fleet's store is longer than %d bytes",
                       FA_STORE_PATH_MAX - 1);
    fa_fleet *fleet = calloc(1, sizeof *fleet);
    if (fleet == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a tuner");
    fleet->source.id = &source_id;
    gethostname(host, sizeof host - 1);
    int rc = read_address(fleet, location, diag);
    if (rc == 0)
        rc = read_lease(&fleet->lease_ms, diag);
    if (rc == 0 && getrandom(&number, sizeof number, 0) != sizeof number)
        rc = fa_fail(diag, FA_EIO, "no randomness to be had");
    snprintf(fleet->holder, sizeof fleet->holder, "%s:%d:%08" PRIx64, host, (int)getpid(),
             number & 0xffffffff);
    if (rc != 0)
        fa_fleet_free(&fleet);
    *ret_fleet = fleet;
    return rc;
}

void fa_fleet_free(fa_fleet **fleet)
{
    if (*fleet == NULL)
        return;
    fa_store_close(&(*fleet)->store);
    free(*fleet);
    *fleet = NULL;
}

/* Whether the calling thread is a worker with an item. */
static bool is_worker(const fa_fleet *fleet)
{
    return fleet->working && pthread_equal(fleet->worker, pthread_self());
}

fa_fleet *fa_fleet_of(const fa_tuner *tuner)
{
    return (fa_fleet *)fa_source_of(tuner, &source_id);
}

/* ---- connection -----------------------------------------------------------------------------*/
static int64_t took_ms(const fa_fleet *fleet)
{
    return (int64_t)(fa_clock_ns() - fleet->asked_ns) / 1000000;
}

bool fa_fleet_is_worth_retry(const fa_tuner *tuner, int rc)
{
    return rc == FA_EIO && took_ms(fa_fleet_of(tuner)) < SLOW_MS;
}

void fa_fleet_failed(fa_tuner *tuner, int rc, const fa_diag *why)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT || rc == FA_EINVAL || rc == FA_ENOMEM)
        return; /* of one row */
    int64_t wait_ms = RETRY_FIRST_MS;
    for (int i = 0; i < fleet->failures && wait_ms < RETRY_MOST_MS; i++)
        wait_ms *= 2;
    if (rc == FA_EIO && took_ms(fleet) >= SLOW_MS)
        wait_ms = took_ms(fleet) * SLOW_SHARE;
    fleet->failures++;
    fleet->retry_ns = fa_clock_ns() + (uint64_t)wait_ms * 1000000;
    atomic_store(&fleet->reached, false);
    fa_store_close(&fleet->store);
    if (!fleet->noted)
        fa_note(tuner, "the fleet's store %s does not serve: %s; going on with the local store %s",
                fleet->shown, why->text, tuner->store_path);
    fleet->noted = true;
    fleet->why = *why;
}

void fa_fleet_gpu_type(const fa_gpu *gpu, char ret_name[64])
{
    fa_gpu known;
    bool listed = fa_catalogue_match(gpu, &known) == 0;
    snprintf(ret_name, 64, "%s", listed ? known.name : gpu->name);
}

fa_store *fa_fleet_store(fa_tuner *tuner)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    fa_diag why = {{0}};
    if (fleet == NULL)
        return NULL;
    fleet->asked_ns = fa_clock_ns();
    if (fleet->store != NULL)
        return fleet->store;
    if (fleet->failures > 0 && fa_clock_ns() < fleet->retry_ns)
        return NULL;
    int rc = fa_store_open(fleet->location, FA_STORE_READ_WRITE, &fleet->store, NULL, &why);
    if (rc != 0) {
        fa_fleet_failed(tuner, FA_EIO, &why); /* whatever it is, it is not of one row */
        return NULL;
    }
    fleet->failures = 0;
    atomic_store(&fleet->reached, true);
    if (fleet->connected != NULL)
        fleet->connected(tuner);
    return fleet->store;
}

/* ---- publishing: trials and cubins ----------------------------------------------------------*/
enum { CUBINS_WORTH_HAVING = 8, CATCH_UP_MS = 2000, OUTBOX_LOOK = 256 };

struct sharing {
    fa_tuner *tuner;
    const fa_scope *scope;
    int rc;
    fa_diag *diag;
};

static int share_trial(void *context, const fa_trial_record *record)
{
    struct sharing *sharing = context;
    sharing->rc = fa_store_trial_put(fa_fleet_of(sharing->tuner)->store, sharing->scope, record,
                                     sharing->diag);
    return sharing->rc;
}

/* Inside a batch of the fleet's store. */
static int share_trials(void *context, fa_diag *diag)
{
    struct sharing *sharing = context;
    sharing->diag = diag;
    return fa_store_trials_each(sharing->tuner->store, sharing->scope, share_trial, sharing, diag);
}

/* A cubin that the local store has lost since is nobody's concern here. */
static int share_cubin(fa_tuner *tuner, const char *key, fa_diag *diag)
{
    fa_cubin_record cubin = {0};
    bool there = false;
    int rc = key[0] == 0 ? 0 : fa_store_cubin_exists(fa_fleet_of(tuner)->store, key, &there, diag);
    if (rc != 0 || there || key[0] == 0 || fa_store_cubin_get(tuner->store, key, &cubin, NULL) != 0)
        return rc;
    rc = fa_store_cubin_put(fa_fleet_of(tuner)->store, &cubin, diag);
    fa_cubin_record_free(&cubin);
    return rc;
}

static int share_cubin_of_trial(void *context, const fa_trial_record *record)
{
    struct sharing *sharing = context;
    return sharing->rc = share_cubin(sharing->tuner, record->cubin_key, sharing->diag);
}

int fa_fleet_share_cubins(fa_tuner *tuner, const fa_scope *scope, bool all, fa_diag *diag)
{
    struct sharing sharing = {tuner, scope, 0, diag};
    int32_t most = all ? INT32_MAX : CUBINS_WORTH_HAVING;
    int rc = fa_store_trials_fastest(tuner->store, scope, FA_STATUS_MEASURED, most,
                                     share_cubin_of_trial, &sharing, diag);
    return rc != 0 ? rc
                   : fa_store_trials_fastest(tuner->store, scope, FA_STATUS_COMPILED, most,
                                             share_cubin_of_trial, &sharing, diag);
}

int fa_fleet_share_rest(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag)
{
    struct sharing sharing = {.tuner = tuner, .scope = scope};
    int rc = fa_fleet_share_cubins(tuner, scope, false, diag);
    return rc != 0 ? rc : fa_store_batch(fa_fleet_of(tuner)->store, share_trials, &sharing, diag);
}

/* ---- a winner -------------------------------------------------------------------------------*/
void fa_fleet_void_other_proof(fa_store *store, fa_winner_record *winner,
                               const fa_cubin_record *cubin)
{
    fa_cubin_record there = {0};
    if (fa_store_cubin_get(store, winner->cubin_key, &there, NULL) == 0 &&
        (there.size != cubin->size || memcmp(there.bytes, cubin->bytes, there.size) != 0))
        winner->driver_version = 0;
    fa_cubin_record_free(&there);
}

struct publishing {
    fa_tuner *tuner;
    const fa_scope *scope;
    const fa_source_lease *lease; /* NULL: caught up with */
    const fa_winner_record *winner;
    const fa_cubin_record *cubin;
};

/* Whether the fleet's winner, where it has one that may be served, is replaced. */
static int compare_with_fleet(struct publishing *publishing, fa_bundle_change *ret_change,
                              fa_diag *diag)
{
    fa_store *store = fa_fleet_of(publishing->tuner)->store;
    fa_winner_record there = {0};
    bool served = false;
    const char *why;
    *ret_change = FA_BUNDLE_ADDED;
    int rc = fa_store_winner_get(store, publishing->scope, &there, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    rc = fa_store_cubin_exists(store, there.cubin_key, &served, diag);
    if (served)
        *ret_change = fa_bundle_weigh(&there, publishing->winner, &why);
    fa_winner_record_free(&there);
    return rc;
}

/* Nobody else changes the winner between weighing and replacing it. */
static int publish_in_batch(void *context, fa_diag *diag)
{
    struct publishing *publishing = context;
    fa_tuner *tuner = publishing->tuner;
    const fa_source_lease *lease = publishing->lease;
    fa_bundle_change change = FA_BUNDLE_SAME;
    int rc = lease != NULL ? fa_store_lease_renew(fa_fleet_of(tuner)->store, &lease->lease,
                                                  lease->lease_ms, diag)
                           : 0;
    if (rc == 0)
        rc = fa_store_winner_hold(fa_fleet_of(tuner)->store, publishing->scope, diag);
    if (rc == 0)
        rc = compare_with_fleet(publishing, &change, diag);
    if (rc != 0 || change == FA_BUNDLE_SAME) /* published before, by another process of this host */
        return rc;
    if (change != FA_BUNDLE_KEPT)
        rc = fa_store_winner_replace(fa_fleet_of(tuner)->store, publishing->winner,
                                     publishing->cubin, diag);
    return rc != 0 ? rc : share_trials(&(struct sharing){tuner, publishing->scope, 0, diag}, diag);
}

/* 0: the fleet has it, or there is nothing to publish any more. FA_EBUSY: the lease was lost. */
static int publish_winner(fa_tuner *tuner, const fa_scope *scope, const fa_source_lease *lease,
                          fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    struct publishing publishing = {tuner, scope, lease, &winner, &cubin};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, &cubin, diag);
    bool gone = rc == FA_ENOTFOUND || rc == FA_ECORRUPT;
    if (rc == 0)
        rc = fa_fleet_share_cubins(tuner, scope, false, diag);
    if (rc == 0) {
        fa_fleet_void_other_proof(fa_fleet_of(tuner)->store, &winner, &cubin);
        rc = fa_store_batch(fa_fleet_of(tuner)->store, publish_in_batch, &publishing, diag);
    }
    if (gone)
        rc = 0;
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

/* ---- the outbox -----------------------------------------------------------------------------*/
int fa_fleet_remember(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag)
{
    return fa_fleet_of(tuner) != NULL && !is_worker(fa_fleet_of(tuner))
               ? fa_store_outbox_add(tuner->store, fa_fleet_of(tuner)->identity, scope, diag)
               : 0;
}

struct outbox {
    struct {
        fa_scope scope;
        int64_t ticket;
    } one[OUTBOX_LOOK];
    int count;
    const fa_scope *only; /* this one; NULL: all */
};

static int add_outbox_entry(void *context, const fa_scope *scope, int64_t ticket)
{
    struct outbox *outbox = context;
    char key[FA_HASH_HEX], only[FA_HASH_HEX];
    if (outbox->only != NULL) {
        fa_scope_key(scope, key);
        fa_scope_key(outbox->only, only);
        if (strcmp(key, only) != 0)
            return 0;
    }
    outbox->one[outbox->count].scope = *scope;
    outbox->one[outbox->count].ticket = ticket;
    return ++outbox->count == (outbox->only != NULL ? 1 : OUTBOX_LOOK);
}

/* What waits, the oldest first; NULL: nothing, or it cannot be told. Caller frees. */
static struct outbox *read_outbox(fa_tuner *tuner, const fa_scope *only)
{
    struct outbox *outbox = calloc(1, sizeof *outbox);
    if (outbox == NULL)
        return NULL;
    outbox->only = only;
    int rc = fa_store_outbox_each(tuner->store, fa_fleet_of(tuner)->identity, add_outbox_entry,
                                  outbox, NULL);
    if (rc < 0 || outbox->count == 0) {
        free(outbox);
        return NULL;
    }
    return outbox;
}

/* A scope is no longer to be published. */
static void remove_from_outbox(fa_tuner *tuner, const fa_scope *scope)
{
    struct outbox *outbox = read_outbox(tuner, scope);
    if (outbox != NULL)
        fa_store_outbox_remove(tuner->store, fa_fleet_of(tuner)->identity, scope,
                               outbox->one[0].ticket, NULL);
    free(outbox);
}

void fa_fleet_publish(fa_tuner *tuner, const fa_scope *scope, const fa_source_lease *lease)
{
    fa_diag why = {{0}};
    if (is_worker(fa_fleet_of(tuner)) || fa_fleet_store(tuner) == NULL)
        return;
    if (lease != NULL && !lease->held) /* it is there again */
        lease = NULL;
    int rc = publish_winner(tuner, scope, lease, &why);
    if (fa_fleet_is_worth_retry(tuner, rc))
        rc = publish_winner(tuner, scope, lease, &why);
    bool lost = rc == FA_EBUSY && lease != NULL &&
                fa_store_lease_renew(fa_fleet_of(tuner)->store, &lease->lease, lease->lease_ms,
                                     NULL) == FA_EBUSY;
    if (lost)
        fa_note(tuner,
                "another host took this key over while it was tuned here: the result stays in "
                "the local store");
    if (rc == 0 || lost)
        remove_from_outbox(tuner, scope);
    else
        fa_fleet_failed(tuner, rc, &why);
    if (rc != 0 && !lost &&
        fa_fleet_of(tuner)->store != NULL) /* nobody was told that it does not serve */
        fa_note(tuner, "the result is in the local store only: %s", why.text);
}

/* Publishes one scope of the outbox. False: going on has no use. The key's lock on this host is held,
 * because whoever tunes the key publishes it, and one of several processes that catch up is enough. */
static bool publish_outbox_entry(fa_tuner *tuner, const fa_scope *scope)
{
    char key[FA_HASH_HEX];
    fa_lock *lock = NULL;
    fa_diag why = {{0}};
    fa_scope_key(scope, key);
    if (fa_lock_acquire(tuner->store_path, key, (fa_lock_wait){.timeout_ms = 0}, &lock, NULL) != 0)
        return true;
    struct outbox *still = read_outbox(tuner, scope);
    fa_fleet_of(tuner)->asked_ns = fa_clock_ns();
    int rc = still != NULL ? publish_winner(tuner, scope, NULL, &why) : 0;
    if (still != NULL && rc == 0)
        fa_store_outbox_remove(tuner->store, fa_fleet_of(tuner)->identity, scope,
                               still->one[0].ticket, NULL);
    if (rc != 0)
        fa_fleet_failed(tuner, rc, &why);
    free(still);
    fa_lock_release(&lock);
    return fa_fleet_of(tuner)->store != NULL;
}

void fa_fleet_catch_up(fa_tuner *tuner)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    uint64_t until = fa_clock_ns() + (uint64_t)CATCH_UP_MS * 1000000;
    if (fleet == NULL || fleet->store == NULL || is_worker(fleet) ||
        fa_store_is_read_only(tuner->store))
        return;
    struct outbox *outbox = read_outbox(tuner, NULL);
    for (int i = 0; outbox != NULL && i < outbox->count && fa_clock_ns() < until; i++)
        if (!publish_outbox_entry(tuner, &outbox->one[i].scope))
            break;
    free(outbox);
}

/* ---- what waits -----------------------------------------------------------------------------*/
struct waiting {
    fa_waiting_visit *visit;
    void *context;
};

static int tell_waiting(void *context, const char *fleet, int64_t count)
{
    const struct waiting *waiting = context;
    return waiting->visit(waiting->context, &(fa_waiting){.fleet = fleet, .results = count});
}

int fa_list_waiting(fa_tuner *tuner, fa_waiting_visit *visit, void *context, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc =
        fa_store_outbox_counts(tuner->store, tell_waiting, &(struct waiting){visit, context}, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}
