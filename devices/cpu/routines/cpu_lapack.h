// SPDX-License-Identifier: Apache-2.0
// cpu_lapack: OpenBLAS's routines by name, for the files that call it.
#pragma once
#include "compiler/ir/shape.h"

#define CPU_LAPACK_PACKAGE "OpenBLAS (Debian's package libopenblas0-serial) is not installed"

// 0 to 3: s, d, c, z; odd in double precision, complex from 2 on. -1: LAPACK has no such type.
int cpu_lapack_type(enum dtype t);
// Fortran's routine `name` without the letter of the type; NULL: no library, or it has none.
void *cpu_lapack_routine(int type, const char *name);

// cpu_lapack_memory.c. Once, behind a first call of a routine that takes working memory: has each
// thread its own?
void cpu_lapack_decide(void);
bool cpu_lapack_turns(void); // no: calls take turns, so a stack is one thread's work
// Around each call of a routine.
void cpu_lapack_begin(void);
void cpu_lapack_end(void);
