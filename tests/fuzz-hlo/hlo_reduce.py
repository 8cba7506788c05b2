# SPDX-License-Identifier: Apache-2.0
"""Makes a module that fails smaller. First the earliest instruction that already fails as the root
is found; then instructions before it are replaced, one by one, by parameters that hold XLA's value
of them, as long as the failure stays. The result has the form of tests/ops."""
import re

import numpy as np

import oracle


def parse(text):
    """(computations {name: lines}, entry name, [(name, shape, rest)])"""
    comps, entry, body, name = {}, None, [], None
    for line in text.split("\n"):
        m = re.match(r"(ENTRY )?([\w.-]+) \{$", line)
        if m:
            name, body = m.group(2), []
            entry = name if m.group(1) else entry
        elif line == "}":
            comps[name] = body
        elif name and line.startswith("  "):
            body.append(line)
    instrs = []
    for line in comps.pop(entry):
        m = re.match(r"  (?:ROOT )?([\w.]+) = (\(.*?\)|\S+) ([a-z0-9-]+\(.*)$", line)
        instrs.append([m.group(1), m.group(2), m.group(3)])
    root = next(re.match(r"  ROOT ([\w.]+)", x).group(1)
                for x in text[text.index("ENTRY"):].split("\n") if x.startswith("  ROOT "))
    return comps, instrs, root


def build(comps, instrs, inputs, root, replaced):
    """Text and inputs of the module whose root is `root`; `replaced`: {name: value}. Dead code
    goes."""
    by = {i[0]: i for i in instrs}
    names = re.compile(r"[\w.]+\.\d+")
    need, todo = set(), [root]
    while todo:
        n = todo.pop()
        if n in need or n not in by:
            continue
        need.add(n)
        if n not in replaced:
            todo += names.findall(by[n][2])
    lines, args = [], []
    for n, shape, rest in instrs:
        if n not in need:
            continue
        m = re.match(r"parameter\((\d+)\)(.*)", rest)
        mark = "ROOT " if n == root else ""
        if n in replaced or m:
            value, weight = (replaced[n], False) if n in replaced else inputs[int(m.group(1))]
            attrs = m.group(2) if m and n not in replaced else ""
            attrs = re.sub(r"weight:\d+", f"weight:{sum(w for _, w in args)}", attrs)
            shape = re.sub(r"\{[\d,]*\}$", "", shape)
            lines.append(f"  {mark}{n} = {shape} parameter({len(args)}){attrs}")
            args.append((value, weight))
        else:
            lines.append(f"  {mark}{n} = {shape} {rest}")
    used, todo = [], [" ".join(lines)]
    while todo:
        for c in names.findall(todo.pop()):
            if c in comps and c not in used:
                used.append(c)
                todo.append(" ".join(comps[c]))
    out = ["HloModule m"]
    for c in comps:
        if c in used:
            out += [f"{c} {{", *comps[c], "}"]
    return "\n".join(out + ["ENTRY main {", *lines, "}"]) + "\n", args


def case_of(name, comps, instrs, case, root, replaced, atol):
    text, args = build(comps, instrs, case["inputs"], root, replaced)
    return {"name": name, "text": text, "inputs": args, "atol": atol,
            "instructions": text.count(" = ")}


def with_oracle(xla, c):
    got = xla.run(c["text"], [v for v, _ in c["inputs"]])
    if not isinstance(got, str) and len(got) == len(c["atol"]):
        c["want"] = got
    return c


def as_test(c):
    """The text of a case in the form of tests/ops."""
    lines = [f"// IN: {oracle.literal_text(v)}" for v, _ in c["inputs"]]
    for k, v in enumerate(c.get("want") or []):
        scale = (np.nanmax(np.abs(np.where(np.isfinite(v.astype(np.complex128)), v, 0)), initial=0)
                 if c["atol"][k] else 0)
        if c["atol"][k] and scale:
            lines.append(f"// TOL: {c['atol'][k] / float(scale):.3g}")
        lines.append(f"// OUT: {oracle.literal_text(v)}")
    return c["text"] + "\n".join(lines) + "\n"


def reduce_case(xla, diff, case, why):
    """(text, complaints) of the smallest failing module found."""
    comps, instrs, root = parse(case["text"])
    use_xla = any(" evaluator:" in w for w in why)

    def failing(c):
        if use_xla:
            with_oracle(xla, c)
        return diff.run([c]).get(c["name"])

    def leaves(shape):
        return len(re.findall(r"[a-z0-9]+\[", shape))

    best, complaint = dict(case), why
    for name, shape, rest in instrs:  # the earliest instruction that fails
        if rest.startswith("parameter("):
            continue
        c = case_of("r", comps, instrs, case, name, {},
                    [case["atols"].get(name, 0.0)] * leaves(shape))
        f = failing(c)
        if f:
            best, complaint, root = c, f, name
            break
    else:
        return as_test(best), complaint
    replaced, shapes = {}, dict((i[0], i[1]) for i in instrs)
    for name, shape, rest in reversed(instrs):  # from the root upwards: the last ones cut most away
        if (name == root or rest.startswith(("parameter(", "constant("))
            or f" {name} = " not in best["text"] or shape.startswith("(")):
            continue
        v = xla.run(*(lambda t: (t["text"], [x for x, _ in t["inputs"]]))(
                        case_of("v", comps, instrs, case, name, replaced, [0.0])))
        if isinstance(v, str):
            continue
        trial = {**replaced, name: v[0]}
        c = case_of("r", comps, instrs, case, root, trial, best["atol"])
        f = failing(c)
        if f:
            replaced, best, complaint = trial, c, f
    return as_test(best), complaint
