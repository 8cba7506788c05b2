// SPDX-License-Identifier: Apache-2.0
// training: the inside of one attempt at a job that trains, shared by training.c (its way),
// training_rows.c (what is read), training_keep.c (what is written) and training_tell.c (what is
// told). For no other file. Thread: loop, except the *_work functions (pool).
//
//   checkpoint looked at -> program -> compiled, its values and rows on the device
//     -> [the same for rows held back] -> slices, of about 250 ms each; after some of them a
//     validation, a checkpoint -> the last checkpoint -> the model with its weights
//
// The program is an ordinary one (docs/decisions/0028): each of these is an ordinary job, of the
// tenant, behind requests that wait for an answer.
#pragma once
#include "scheduler/job/job.h"
#include "scheduler/suite/suite_inside.h"

enum { TRAINING_SLICE = 1024, TRAINING_HANDLE = 96 }; // steps of a run at most; bytes of a handle
struct training_program {
    const char *spec;
    bool evaluates;
    Hlod__V1__JobTensor **given; // rows by the names of inputs; "label": the target
    size_t n_rows;
    Hlod__Wire__TrainLeaf **leaves; // parameters, in order
    size_t n_leaves, n_state;
    bool accuracy;
    int64_t steps_per_epoch, classes;
    int64_t all_rows;    // how many there are; of which the program has so many at a time
    int64_t rows, parts; // the last part begins where it is whole
    struct digest source, exe;
    char **names; // of its results
    size_t n_names;
    int values_fd;               // what the state and what is frozen begin with; -1
    struct memfd *payload;       // the rows, until they are on the device
    struct job_input *row_input; // in it
    size_t n_row_input;
    int64_t part; // that is in the payload, or on the device
    char rows_handle[TRAINING_HANDLE], frozen_handle[TRAINING_HANDLE]; // tuples; "" = none
    size_t n_frozen;
};
struct training_kept { // a checkpoint; file: of this write alone (store_write_end), 0 = not known
    struct digest digest;
    uint64_t file;
};
struct training {
    struct suite_job *j; // NULL: cancelled
    struct suite *suite;
    const Hlod__V1__Training *q;
    struct arena arena; // of the attempt
    struct arena slice; // of one run
    bool busy;          // the pool or a post holds it
    bool running;       // a run that takes the state is under way
    struct job *job;
    void (*then)(struct training *t); // after job or pool work that went well
    status_t st;
    status_t (*work)(struct training *t); // pool
    int64_t begin_ns;
    struct trace part; // of `job`, where that is told (training_tell.c)

    struct training_program train, held; // held: of the rows held back
    struct training_program *at;         // whose turn it is to be made
    struct digest from;                  // checkpoint that it begins at; zero = none
    bool own_checkpoint;                 // of an attempt before
    const char *device;
    char state[TRAINING_HANDLE];
    int64_t batch, step, end, saved_step;
    int64_t saved_ns, keep_ns; // keep: what the last checkpoint took
    double step_ms;
    int32_t numbers[2]; // seed and limit of the run under way
    int64_t run_ns;
    int64_t others_ns; // when work of others was seen last
    float losses[TRAINING_SLICE], accuracies[TRAINING_SLICE];
    bool kept_some;           // a checkpoint in this attempt
    bool is_best;             // the state being kept did best on the rows held back
    bool validated;           // the present step was
    char odd[160];            // what was seen in the rows that is no finite number, or ""
    status_t ending;          // why it ends once its state is kept; or NULL
    struct training_kept now; // kept last
    struct training_kept last, best;
    struct digest model; // what came out
    Hlod__V1__JobOutcome *outcome;
};

// training.c
void training_job(struct training *t, struct job_spec *spec, void (*then)(struct training *t));
void training_work(struct training *t, status_t (*work)(struct training *t),
                   void (*then)(struct training *t));
void training_fail(struct training *t, status_t st); // takes st
Hlod__V1__TrainProgress *training_progress(const struct training *t);

// training_rows.c
// How many rows there are. INVALID_ARGUMENT: tensors disagree, or have no rows.
status_t training_count(Hlod__V1__JobTensor *const *v, size_t n, int64_t *out) MUST_CHECK;
// The spec of compiler/train, for p->rows rows; in a.
char *training_spec(struct arena *a, const Hlod__V1__Training *q, int64_t batch,
                    const struct training_program *p);
bool training_is_given(const Hlod__Wire__TrainLeaf *l); // rows, or what is the same for all
// Steps of a pass over all rows.
int64_t training_epoch(const struct training *t);
// Stores t->at's program, and does the next for the part that t->step begins in. Labels are looked
// at in all parts.
status_t training_program_work(struct training *t) MUST_CHECK;
// Reads part t->at->part of the rows into memory for the device, in the program's types, with what
// is the same for all of them.
status_t training_rows_work(struct training *t) MUST_CHECK;

// training_keep.c
status_t training_from_work(struct training *t) MUST_CHECK; // is the checkpoint t->from whole?
// The state that t->job, a GET, brought becomes a checkpoint: t->now.
status_t training_keep_work(struct training *t) MUST_CHECK;
// It goes, after all that was given to suite_save before is on disk, and if it is still the file
// that its training wrote.
void training_drop(struct suites *s, const struct training_kept *k);
status_t training_model_work(struct training *t) MUST_CHECK; // stores what TRAINED gave: t->model

// training_tell.c
// The job's progress, as kept before or new; made once, lives as the job.
Hlod__V1__TrainProgress *training_progress_new(struct arena *a, const Hlod__V1__TrainProgress *was);
// It begins at t->step: what was told of later ones is forgotten, and all of it where the
// checkpoint of an attempt before is gone.
void training_goes_back(struct training *t);
// Steps `from` to t->step were made: watchers are told.
void training_told(struct training *t, int64_t from);
// A job of the attempt's, but no slice, as a part of its span: begins, has ended.
const struct trace *training_part(struct training *t); // NULL: it is not told
void training_part_ended(struct training *t, const struct job *job, status_t st); // borrows st
void training_set_checkpoint(struct training *t, bool best);
void training_quiet(struct training *t); // the attempt is over: what it lent to the progress goes
// A copy that lives in a, without the losses of single steps.
Hlod__V1__TrainProgress *training_progress_dup(struct arena *a, const Hlod__V1__TrainProgress *p);
