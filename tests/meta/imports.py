# SPDX-License-Identifier: Apache-2.0
"""Prints names that a Python file imports and never uses; what it lists in __all__ is for others.
Usage: imports.py FILE..."""
import ast, sys

for path in sys.argv[1:]:
    with open(path) as f:
        tree = ast.parse(f.read())
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    for n in tree.body:
        if (isinstance(n, ast.Assign)
            and [t.id for t in n.targets if isinstance(t, ast.Name)] == ["__all__"]):
            used.update(ast.literal_eval(n.value))
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.module == "__future__":
            continue
        for a in n.names if isinstance(n, (ast.Import, ast.ImportFrom)) else ():
            name = (a.asname or a.name).split(".")[0]
            if name not in used and name != "*":
                print(f"{path}:{n.lineno}: {name} is not used")
