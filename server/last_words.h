// SPDX-License-Identifier: Apache-2.0
// last_words: a process that a signal of its own making ends (abort, a bad address) leaves one line
// on stderr that says so, with the last error that a library told before: `ev=server.died signal=6
// why="..."`. The signal then does what it always does. Not under sanitizers, which say more.
#pragma once
void last_words_watch(void); // once, at start. Thread: main
// What would explain an end that follows. Kept: the newest. Thread: any.
void last_words(const char *why);
