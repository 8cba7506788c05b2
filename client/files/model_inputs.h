// SPDX-License-Identifier: Apache-2.0
// model_inputs: a model named on the command line, and values for its inputs where none are given:
// of the type and shape that the model says, open dimensions one, numbers from a fixed generator.
#pragma once
#include "client/cli/hlo.h"
#include "client/files/input.h"

enum { MODEL_INPUTS_MAX = 1024 };
struct model_inputs {
    const char *words[MODEL_INPUTS_MAX]; // behind -i
    struct npy v[MODEL_INPUTS_MAX];
    int n;
    const char *weights; // with an executable: the model whose weights and names it takes, or NULL
};
bool model_inputs_add(struct model_inputs *m, const char *word); // false: too many
// Words that leave type or shape to the model (input_untyped; v[k] has a name and no descr yet)
// become what its inputs are. A file is uploaded. shaped: the model's executable whose shapes they
// get, or NULL. 0, or an exit code already reported.
int model_inputs_fit(struct hlo *h, const char *model, const char *shaped, const char *const *words,
                     struct npy *v, int n);
// Inputs that nobody gave, of a model on the server: random numbers, in the usual size where one is
// open, ones where values decide shapes. 0, or an exit code already reported.
int model_inputs_default(struct hlo *h, const char *model, const char *shaped, struct npy *v,
                         int *n);
// Reads the words. A model that is a file is uploaded and compiled, *model becomes its digest; of a
// .hlox its executable's, and m->weights the model's. Without words: values as above. 0, or an exit
// code already reported.
int model_inputs_read(struct hlo *h, const char **model, struct model_inputs *m);
// Runs the model, or executable, a few times with these inputs and prints its longest steps beside
// what the cost model expects, and what is far from it. 0, or an exit code already reported.
int explain_measured(struct hlo *h, const char *model,
                     const struct model_inputs *in); // cmd_doctor.c
