# SPDX-License-Identifier: Apache-2.0
"""Makes a graph that fails smaller while it still fails: one output, nodes before it cut off (their
results become inputs with the values ONNX Runtime gives), nodes left out whose input has their
result's shape and type."""
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_gen import TYPE


def needed(graph, outputs):
    """Nodes that the outputs need, in order; with the values that bodies of Loop, If and Scan read
    from outside."""
    want, kept = set(outputs), []
    for n in reversed(graph.node):
        if want & set(n.output):
            kept.append(n)
            want |= set(reads(n))
    return kept[::-1]


def reads(node):
    found = [i for i in node.input if i]
    for a in node.attribute:
        for g in [a.g] if a.HasField("g") else []:
            inside = ({o for n in g.node for o in n.output} | {i.name for i in g.input}
                      | {i.name for i in g.initializer})
            found += [r for n in g.node for r in reads(n) if r not in inside]
    return found


def every(model, inputs, run):
    """The values of all float and integer results by name, from ONNX Runtime; those that it cannot
    show are left out."""
    g = model.graph
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    have = {o.name for o in g.output}
    info = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    shown.graph.output.extend(info[o] for n in g.node for o in n.output
                              if o in info and o not in have)
    return run(shown, inputs)


def rebuild(model, nodes, outputs, inputs, values):
    """The model of these nodes; what they read and no one makes becomes an input, whose value is
    known. None where it is not."""
    made, inits = {o for n in nodes for o in n.output}, {i.name: i for i in model.graph.initializer}
    new, used = {}, [r for n in nodes for r in reads(n)]
    for name in dict.fromkeys(used):
        if name not in made and name not in inits:
            if name not in inputs and name not in values:
                return None
            new[name] = np.asarray(inputs[name] if name in inputs else values[name])
    infos = {o.name: o for o in model.graph.output}
    for name in outputs:
        if name not in made:
            return None
        if name not in infos:
            a = values[name]
            infos[name] = helper.make_tensor_value_info(name, TYPE[str(a.dtype)], a.shape)
    g = helper.make_graph(nodes, "reduced",
                          [helper.make_tensor_value_info(n, TYPE[str(a.dtype)], a.shape)
                           for n, a in new.items()], [infos[o] for o in outputs],
                          [i for n, i in inits.items() if n in set(used)])
    m = helper.make_model(g, opset_imports=model.opset_import, ir_version=model.ir_version)
    return m, new


def reduce(model, inputs, fails, run, steps=60):
    """fails(model, inputs) -> bool; run(model, inputs) -> name -> array of ONNX Runtime. At most
    `steps` questions. Gives (model, inputs)."""
    left = [steps]

    def ask(candidate):
        if candidate is None or left[0] <= 0:
            return False
        left[0] -= 1
        try:
            return fails(*candidate)
        except Exception:
            return False
    for o in [o.name for o in model.graph.output]:
        c = rebuild(model, needed(model.graph, [o]), [o], inputs, {})
        if ask(c):
            model, inputs = c
            break
    try:
        values = every(model, inputs, run)
    except Exception:
        return model, inputs
    outs = [o.name for o in model.graph.output]
    # The earliest value that already fails.
    for n in list(model.graph.node):
        if n.output and n.output[0] not in outs and n.output[0] in values:
            c = rebuild(model, needed(model.graph, [n.output[0]]), [n.output[0]], inputs, values)
            if c and len(c[0].graph.node) < len(model.graph.node) and ask(c):
                model, inputs = c
                outs = [n.output[0]]
                break
    # Cut: node by node from the last, its results become inputs; then nodes that can be stepped
    # over.
    changed = True
    while changed and left[0] > 0:
        changed = False
        for n in reversed(list(model.graph.node)):
            if set(n.output) & set(outs):
                continue
            nodes = [k for k in model.graph.node if k is not n]
            c = rebuild(model, nodes, outs, inputs, values)
            if c:
                c = rebuild(c[0], needed(c[0].graph, outs), outs, c[1], values)
            if ask(c):
                model, inputs = c
                changed = True
                break
        for n in list(model.graph.node) if not changed else []:
            source = (next((i for i in reads(n)
                            if i in values and n.output[0] in values
                            and values[i].shape == values[n.output[0]].shape
                            and values[i].dtype == values[n.output[0]].dtype), None)
                      or next((i for i in inputs
                               if i in n.input and n.output[0] in values
                               and inputs[i].shape == values[n.output[0]].shape
                               and inputs[i].dtype == values[n.output[0]].dtype), None))
            if not source or set(n.output) & set(outs):
                continue
            m = onnx.ModelProto()
            m.CopyFrom(model)
            kept = [k for k in m.graph.node if k.output[:] != n.output[:]]
            for k in kept:
                for at, name in enumerate(k.input):
                    if name == n.output[0]:
                        k.input[at] = source
            c = rebuild(m, kept, outs, inputs, values)
            if c:
                c = rebuild(c[0], needed(c[0].graph, outs), outs, c[1], values)
            if ask(c):
                model, inputs = c
                changed = True
                break
    return model, inputs


def save(path, model, inputs):
    """PATH.onnx and PATH.npz"""
    onnx.save(model, path + ".onnx")
    np.savez(path + ".npz", **inputs)


def text(model):
    """The nodes in a line each."""
    inits = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    said = []
    for n in model.graph.node:
        attrs = ", ".join(
            "%s=%s" % (a.name, "{...}" if a.HasField("g") else helper.get_attribute_value(a))
            for a in n.attribute)
        ins = ", ".join("%s[%s]" % (i, "x".join(map(str, inits[i].shape))) if i in inits else i
                        for i in n.input)
        said.append("%s = %s(%s)%s"
                    % (", ".join(n.output), n.op_type, ins, " {" + attrs + "}" if attrs else ""))
    ends = "; ".join("%s %s" % (i.name, [d.dim_value for d in i.type.tensor_type.shape.dim])
                     for i in model.graph.input)
    return "inputs %s\n" % ends + "\n".join(said)
