// SPDX-License-Identifier: Apache-2.0
// last_words: a process that a signal of its own making ends (abort, a bad address) leaves one line
// on stderr that says so, with the last error that a library told before: `ev=server.died signal=6
// why="..."`. The signal then does what it always does. Not under sanitizers, which say more.
#pragma once
#include <stdbool.h>

void last_words_watch(void); // once, at start. Thread: main
// What would explain an end that follows. Kept: the newest. Thread: any.
void last_words(const char *why);
// Holds back, or no more, the signals that end the daemon or ask it for something: from the first
// moment on, so that one that comes early ends it in good order too, and in the threads that
// libraries make, since the loop's thread is asked.
void last_words_hold(bool yes);
