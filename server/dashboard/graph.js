// SPDX-License-Identifier: Apache-2.0
// HLO text -> computations and instructions, and a layered drawing of one computation. No page in here: dashboard.js gives the element to draw into.
"use strict";

// {entry: name, computations: Map(name -> {name, entry, instructions: [{name, op, shape, operands, calls, text}]})}
function parseHlo(text) {
  const out = { entry: "", computations: new Map() };
  let now = null;
  for (const line of text.split("\n")) {
    const head = /^(ENTRY )?%?([^\s(]+) \(.*\{\s*$/.exec(line);
    if (head && !line.startsWith(" ")) {
      now = { name: head[2], entry: !!head[1], instructions: [] };
      out.computations.set(now.name, now);
      if (now.entry) out.entry = now.name;
    } else if (line.startsWith("}")) now = null;
    else if (now) {
      const i = parseInstruction(line);
      if (i) now.instructions.push(i);
    }
  }
  return out;
}

// The end of the bracket that opens at `at`; quotes are skipped.
function closing(s, at) {
  let depth = 0, quoted = false;
  for (let k = at; k < s.length; k++) {
    const c = s[k];
    if (quoted) { if (c === "\\") k++; else if (c === '"') quoted = false; }
    else if (c === '"') quoted = true;
    else if ("([{".includes(c)) depth++;
    else if (")]}".includes(c) && --depth === 0) return k;
  }
  return s.length;
}

function parseInstruction(line) {
  const m = /^\s+(ROOT )?%?(\S+) = /.exec(line);
  if (!m) return null;
  let at = m[0].length;
  const start = at;
  at = line[at] === "(" ? closing(line, at) + 1 : line.indexOf(" ", at);
  const shape = line.slice(start, at).trim(), open = line.indexOf("(", at);
  if (open < 0) return null;
  const end = closing(line, open), rest = line.slice(end + 1);
  const operands = [...line.slice(open + 1, end).matchAll(/%([^\s,()]+)/g)].map(x => x[1]);
  const calls = [...rest.matchAll(/(?:calls|to_apply|body|condition|true_computation|false_computation)=%([^\s,}]+)/g)].map(x => x[1]);
  const branches = /(?:branch_computations|called_computations)=\{([^}]*)\}/.exec(rest);
  if (branches) calls.push(...[...branches[1].matchAll(/%([^\s,}]+)/g)].map(x => x[1]));
  const node = /op_name="((?:[^"\\]|\\.)*)"/.exec(rest);
  return { name: m[2], root: !!m[1], op: line.slice(at, open).trim(), shape, operands, calls, node: node ? node[1] : "", text: line.trim() };
}

const QUIET_OPS = new Set(["parameter", "constant", "get-tuple-element", "tuple"]);

// What to draw: instructions with edges, parameters and the like left out unless wanted, edges then going through get-tuple-element.
function graphOf(computation, all) {
  const by = new Map(computation.instructions.map(i => [i.name, i]));
  const shown = computation.instructions.filter(i => all || !QUIET_OPS.has(i.op));
  const keep = new Set(shown.map(i => i.name)), edges = [];
  const sources = (name, depth) => {
    const i = by.get(name);
    if (!i || depth > 8) return [];
    if (keep.has(name)) return [name];
    return i.op === "get-tuple-element" || i.op === "tuple" ? i.operands.flatMap(o => sources(o, depth + 1)) : [];
  };
  for (const i of shown) for (const s of new Set(i.operands.flatMap(o => sources(o, 0)))) edges.push([s, i.name]);
  return { nodes: shown, edges };
}

// Layers by longest path, order within a layer by the mean place of what feeds a node (two sweeps): plain, and good enough for networks that are chains with branches.
function layout(graph, sizeOf) {
  const place = new Map(graph.nodes.map(n => [n.name, { node: n, rank: 0, x: 0, y: 0, ...sizeOf(n) }]));
  const into = new Map(), from = new Map();
  for (const [a, b] of graph.edges) {
    if (!into.has(b)) into.set(b, []);
    if (!from.has(a)) from.set(a, []);
    into.get(b).push(a);
    from.get(a).push(b);
  }
  for (const n of graph.nodes) // the text is in the order of execution: operands first
    for (const a of into.get(n.name) || []) place.get(n.name).rank = Math.max(place.get(n.name).rank, place.get(a).rank + 1);
  for (const n of [...graph.nodes].reverse()) // what has no source stands right above its first reader
    if (!(into.get(n.name) || []).length && from.has(n.name)) place.get(n.name).rank = Math.max(0, Math.min(...from.get(n.name).map(b => place.get(b).rank)) - 1);
  const layers = [];
  for (const p of place.values()) (layers[p.rank] = layers[p.rank] || []).push(p);
  const rows = layers.filter(Boolean), order = new Map();
  for (const row of rows) row.forEach((p, k) => order.set(p.node.name, k));
  for (let sweep = 0; sweep < 2; sweep++)
    for (const row of rows) {
      const mean = p => { const v = into.get(p.node.name) || []; return v.length ? v.reduce((s, a) => s + order.get(a), 0) / v.length : order.get(p.node.name); };
      row.map(p => [mean(p), p]).sort((a, b) => a[0] - b[0]).forEach(([, p], k) => { row[k] = p; order.set(p.node.name, k); });
    }
  const gapX = 26, gapY = 38;
  let y = 24, width = 0;
  const widths = rows.map(row => row.reduce((s, p) => s + p.w + gapX, -gapX));
  width = Math.max(320, ...widths) + 48;
  rows.forEach((row, k) => {
    let x = (width - widths[k]) / 2;
    const height = Math.max(...row.map(p => p.h));
    for (const p of row) { p.x = x; p.y = y; x += p.w + gapX; }
    y += height + gapY;
  });
  return { place, width, height: y };
}
