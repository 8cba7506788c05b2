// SPDX-License-Identifier: Apache-2.0
// What both loads share: when to send, what counts, the server's own times.
#include "client/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

void bench_result_done(struct bench_result *r) {
    vec_done(&r->ns);
}

void bench_begin(struct bench_progress *p, const struct bench_load *l, struct bench_result *r) {
    *p = (struct bench_progress){.load = l, .r = r, .start_ns = clock_ns()};
}

bool bench_may_send(struct bench_progress *p) {
    const struct bench_load *l = p->load;
    bool more = p->sent < l->warmup || (l->requests ? p->sent < l->warmup + l->requests
                                                    : clock_ns() - p->start_ns < l->duration_ns);
    p->sent += more;
    return more;
}

bool bench_took(struct bench_progress *p, int64_t sent_ns, const char *error) {
    struct bench_result *r = p->r;
    bool counts = p->done++ >= p->load->warmup;
    int64_t now = clock_ns();
    if (p->done == p->load->warmup) p->start_ns = now;
    if (error && !r->error[0]) snprintf(r->error, sizeof r->error, "%s", error);
    if (error) r->errors += counts;
    if (error || !counts) return false;
    vec_push(&r->ns, now - sent_ns);
    r->elapsed_ns = now - p->start_ns;
    return true;
}

bool bench_over(const struct bench_progress *p) {
    const struct bench_load *l = p->load;
    bool all_sent =
        p->sent >= l->warmup && (l->requests ? p->sent >= l->warmup + l->requests
                                             : clock_ns() - p->start_ns >= l->duration_ns);
    return all_sent && p->done == p->sent;
}

void bench_split_add(struct bench_split *s, const char *name, double ms) {
    if (!strcmp(name, "queue")) s->queue_ms += ms;
    if (!strcmp(name, "run")) s->run_ms += ms;
    if (!strcmp(name, "total")) {
        s->total_ms += ms;
        s->n++;
    }
}

void bench_split_text(struct bench_split *s, struct str text) {
    while (text.n) {
        size_t k = 0;
        char name[16];
        struct str value;
        while (text.n && strchr(" ,", *text.p))
            text.p++, text.n--;
        while (k < text.n && k < sizeof name - 1 && text.p[k] >= 'a' && text.p[k] <= 'z')
            name[k] = text.p[k], k++;
        name[k] = 0;
        const char *eq = memchr(text.p, '=', text.n);
        if (!eq) return;
        text.n -= (size_t)(eq + 1 - text.p);
        text.p = eq + 1;
        for (k = 0; k < text.n && !strchr(" ,\r", text.p[k]);)
            k++;
        value = (struct str){text.p, k};
        double ms;
        if (str_to_f64(value, &ms)) bench_split_add(s, name, ms);
        text.p += k;
        text.n -= k;
    }
}
