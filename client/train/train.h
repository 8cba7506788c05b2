// SPDX-License-Identifier: Apache-2.0
// train: what `hlo train` is asked for, and what it knows on its way. It trains itself, run by run
// (cmd_train.c), or has the server do it as a job (train_job.c).
#pragma once
#include <signal.h>

#include "client/cli/hlo.h"
#include "client/train/train_program.h"

enum { MAX_DATA = 64, MAX_SETS = 32 };
struct train {
    struct hlo *h;
    const char *model, *out, *loss, *optimizer, *schedule, *device, *checkpoint, *resume, *dir;
    const char *data[MAX_DATA], *held[MAX_DATA], *whole[MAX_DATA], *sets[MAX_SETS];
    const char *precision;
    int n_data, n_held, n_whole, n_sets, batch, epochs, steps, seed, every, patience, window;
    bool in_order;
    bool job, detach;   // the server trains, and hlo waits or does not
    const char *attach; // a job that is there
    struct train_program p, validation;
    char *digest, *validation_digest; // of executables
    const char **names;               // of the results that are state
    char **handles, **held_handles;   // of the leaves; NULL = none
    int64_t step, end, saved, rows;
    struct npy *given;      // all rows
    struct npy *given_whole; // [n_whole] what is the same for all of them
    struct arena window_of; // what of `given` is on the device, in the program's types
    int64_t windows, at;    // parts that the rows come in; which is there, -1 = none
    double per_step_ms;
    float *losses, *accuracy; // of the last run
    double held_loss, held_accuracy, best_loss;
    const char *best; // file of the weights that did best on the rows held back; NULL = none yet
    int worse;        // validations since
};

// The arrays of words NAME=VALUE; *rows how many rows each has, NULL: they have none.
status_t train_read_rows(struct train *t, const char *const *words, int n, struct npy *v,
                         int64_t *rows) MUST_CHECK;
bool train_interrupted(void);
// The steps from+1 to to, as lines of JSON; or the last line for people, which `ends` an epoch.
void train_tell_steps(const struct train *t, int64_t from, int64_t made, double ms, bool accuracy);
void train_tell_line(const struct train *t, int64_t per_epoch, int64_t made, bool accuracy,
                     bool ends);
void train_tell_validation(const struct train *t, bool accuracy); // a line of JSON
bool train_ends_in(const char *path, const char *suffix);
int train_job(struct train *t); // an exit code
