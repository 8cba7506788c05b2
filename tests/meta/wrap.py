#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wraps the prose of Markdown at 100 columns; tables, code, headings and comments stay. A paragraph
is only touched where a line of it is longer. Usage: wrap.py <IN >OUT, or wrap.py FILE..."""
import re
import sys

WIDTH = 100
FENCE = re.compile(r"\s*(```|~~~)")
APART = re.compile(r"\s*(#|\||>|<|---|===|\[)")  # no prose
ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s+")
# A word that would begin something else if it began a line.
MARK = re.compile(r"([-+*]|\d+[.)]|#+|>.*|\|.*|=+|-+|<.*)$")

def fill(words, first, rest):
    """Lines of at most WIDTH columns: `first` before the first word, `rest` before later lines."""
    lines, line, indent = [], [], first
    for word in words:
        if line and len(indent + " ".join(line + [word])) > WIDTH:
            keep = len(line)  # words of this line; a mark takes the word before it along
            while keep > 1 and MARK.match((line + [word])[keep]):
                keep -= 1
            lines.append(indent + " ".join(line[:keep]))
            line, indent = line[keep:], rest
        line.append(word)
    return lines + [indent + " ".join(line)]

def paragraph(lines):
    """A paragraph or an item of a list, wrapped where it has to be."""
    if max(map(len, lines)) <= WIDTH or any(line.endswith("  ") for line in lines):
        return lines
    item = ITEM.match(lines[0])
    first = item.group(0) if item else re.match(" *", lines[0]).group(0)
    text = " ".join([lines[0][len(first):].strip()] + [line.strip() for line in lines[1:]])
    text = re.sub("`[^`]{1,60}`", lambda m: m.group(0).replace(" ", "\0"), text)  # in one piece
    return [line.replace("\0", " ") for line in fill(text.split(" "), first, " " * len(first))]

def wrap(text):
    lines, out, k, code = text.split("\n"), [], 0, False
    while k < len(lines):
        line = lines[k]
        code ^= bool(FENCE.match(line))
        k += 1
        if code or not line.strip() or FENCE.match(line) or APART.match(line) or line[:4] == "    ":
            out.append(line)
            continue
        begin = k - 1
        while (k < len(lines) and lines[k].strip() and not ITEM.match(lines[k])
               and not FENCE.match(lines[k]) and not APART.match(lines[k])):
            k += 1
        out += paragraph(lines[begin:k])
    return "\n".join(out)

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.stdout.write(wrap(sys.stdin.read()))
    for path in sys.argv[1:]:
        with open(path) as f:
            old = f.read()
        if wrap(old) != old:
            with open(path, "w") as f:
                f.write(wrap(old))
