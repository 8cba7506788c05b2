# SPDX-License-Identifier: Apache-2.0
"""What tests of exported models have in common."""
import ml_dtypes
import numpy as np
import onnx

# Arrays as packages take and give them.
TYPES = {"pred": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32,
         "f64": np.float64, **{k + str(n): np.dtype("%s%d" % ("int" if k == "s" else "uint", n))
                               for k in "su" for n in (8, 16, 32, 64)}}


def bindings(path, inputs):
    """--bind of every symbolic size, from the shapes of the inputs."""
    sizes = {}
    for v in onnx.load(path, load_external_data=False).graph.input:
        for d, n in zip(v.type.tensor_type.shape.dim, np.shape(inputs.get(v.name, ()))):
            if d.dim_param:
                sizes[d.dim_param] = n
    return ["--bind", ",".join("%s=%d" % s for s in sizes.items())] if sizes else []
