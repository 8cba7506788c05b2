#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of Python, Markdown and .def over 100 columns, one each. Tables and code are free,
and so is text in triple quotes that is no docstring (data). Usage: width.py FILE..."""
import ast, re, sys, tokenize

def docstrings(tree):
    """Where the docstrings of a file begin: (line, column)."""
    at = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                at.add((first.lineno, first.col_offset))
    return at

def data(path, tree):
    """The lines of a file that lie in literals of several lines."""
    docs = docstrings(tree)
    with open(path, "rb") as f:
        for t in tokenize.tokenize(f.readline):
            if t.type == tokenize.STRING and t.start[0] < t.end[0] and t.start not in docs:
                yield from range(t.start[0], t.end[0] + 1)

def no_prose(lines):
    """The lines of a document that are tables or code."""
    code = False
    for n, line in enumerate(lines, 1):
        code ^= line.lstrip().startswith(("```", "~~~"))
        if code or line.startswith("    ") or line.lstrip().startswith("|"):
            yield n

def rows(lines):
    """The lines of a .def that are rows, or the heading of their columns."""
    for n, line in enumerate(lines, 1):
        if not line.lstrip().startswith(("/*", "* ", "//")) or re.search(r"\S {2,}\S", line):
            yield n

for path in sys.argv[1:]:
    with open(path) as f:
        text = f.read()
    lines = text.split("\n")
    wide = [n for n, line in enumerate(lines, 1) if len(line) > 100]
    if wide:
        free = set(data(path, ast.parse(text)) if path.endswith(".py")
                   else rows(lines) if path.endswith(".def") else no_prose(lines))
        for n in wide:
            if n not in free:
                print(f"{path}:{n}: {len(lines[n - 1])} columns")
