# SPDX-License-Identifier: Apache-2.0
"""Prints the circles of calls between .c files: sets of files, each of which calls every other, if
only by way of a third.

A call is the relocation of a call or jump in an object file.  So a function whose address stands in
a table (ops.def) or is handed over as a callback draws no edge, nor does an inline function of a
header.  A circle of more than SMALL files fails.

Usage: circles.py [--large] BUILD [FOLDER...]
--large: only those that fail; exit status 1 if there is one
"""
import collections
import os
import subprocess
import sys

FOLDERS = ("base", "proto", "compiler", "devices", "scheduler", "server", "client")
SMALL = 3
CALLS = ("R_X86_64_PLT32", "R_AARCH64_CALL26", "R_AARCH64_JUMP26")


def objects(build, folders):
    """The object files of the sources that git knows, as {source: object}."""
    listed = ["git", "ls-files", *(f"{f}/*.c" for f in folders)]
    sources = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    sources = [s for s in sources if not s.startswith("client/examples/")]
    found = {s: os.path.join(build, s[:-2] + ".o") for s in sources}
    missing = [o for o in found.values() if not os.path.exists(o)]
    if missing:
        sys.exit(f"circles.py: {len(missing)} objects are missing, first {missing[0]}: run `make`")
    return found


def read(paths):
    """Yields (object, line) for each line of readelf: symbols and relocations of the objects."""
    command = ["readelf", "-W", "-s", "-r", *paths]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    path = paths[0]
    for line in out.stdout.splitlines():
        if line.startswith("File: "):
            path = line[6:]
        else:
            yield path, line


def edges_of(found):
    """{caller: {callee: names of functions called}} over sources."""
    source_of = {o: s for s, o in found.items()}
    owner, wanted = {}, collections.defaultdict(set)
    for path, line in read(list(found.values())):
        word = line.split()
        if len(word) == 8 and word[3] == "FUNC" and word[4] == "GLOBAL" and word[6] != "UND":
            owner[word[7]] = source_of[path]
        elif len(word) >= 5 and word[2] in CALLS:
            wanted[source_of[path]].add(word[4])
    edges = collections.defaultdict(lambda: collections.defaultdict(set))
    for caller, names in wanted.items():
        for name in names:
            callee = owner.get(name)
            if callee and callee != caller:
                edges[caller][callee].add(name)
    return edges


def circles_of(edges):
    """Strongly connected components of more than one file (Tarjan, 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(v):
        number[v] = low[v] = len(number)
        stack.append(v)
        for w in edges.get(v, ()):
            if w not in number:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == number[v]:
            at = stack.index(v)
            found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for v in sorted(edges):
        if v not in number:
            visit(v)
    return sorted((c for c in found if len(c) > 1), key=len, reverse=True)


def main(build, folders, large):
    edges = edges_of(objects(build, folders or FOLDERS))
    bad = False
    for circle in circles_of(edges):
        allowed = len(circle) <= SMALL
        bad = bad or not allowed
        if large and allowed:
            continue
        print(f"{len(circle)} files call each other in a circle:")
        for caller in circle:
            for callee in circle:
                if edges[caller].get(callee):
                    print(f"  {caller} -> {callee}: {' '.join(sorted(edges[caller][callee]))}")
    return bad


if __name__ == "__main__":
    words = [w for w in sys.argv[1:] if w != "--large"]
    sys.exit(main(words[0], words[1:], "--large" in sys.argv))
