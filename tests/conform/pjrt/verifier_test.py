# SPDX-License-Identifier: Apache-2.0
"""What a plugin gets of us, given to XLA: after the passes that no target depends on (@whole,
@portable) each module goes as HloModuleProto through XLA's reader and XLA:CPU's compiler, whose
first pass is its verifier.

    verifier_test.py BUILD
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "..", "ops"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "models"))
import child  # noqa: E402

import zoo  # noqa: E402


def compiles(data):
    """In the child: XLA reads, verifies and compiles the bytes."""
    import jax
    from jax._src import xla_bridge
    from jax._src.lib import _jax, xla_client
    from jaxlib import _hlo
    jax.config.update("jax_enable_x64", True)
    module = _hlo.HloModule.from_serialized_hlo_module_proto(data)
    backend = xla_bridge.get_backend("cpu")
    exe = backend.compile_and_load(
        _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()),
        _jax.DeviceList((backend.local_devices()[0],)), xla_client.CompileOptions())
    return len(exe.hlo_modules())


def portable(path, *more):
    p = subprocess.run([sys.argv[1] + "/hlo-opt", "--passes=@whole,@portable", "--to=proto", *more,
                        path], capture_output=True)
    return p.stdout if p.returncode == 0 else p.stderr.decode()


def main():
    xla = child.Child()
    cases = [("mlp", zoo.ensure("build/models", "mlp"), ["--bind", "N=2"]),
             ("resnet18", zoo.ensure("build/models", "resnet18"), [])]
    cases += [(os.path.basename(f), f, [])
              for f in (os.path.join("tests/conform/pjrt", n)
                        for n in ("while_conditional.hlo", "conv_bias_relu.hlo"))]
    for name, path, more in cases:
        data = portable(path, *more)
        if isinstance(data, str):
            print("FAIL pjrt verifier %s: %s" % (name, data))
            continue
        got = xla.call(compiles, data)
        print("%s pjrt XLA verifies and compiles %s, %d bytes%s" % (
                  "PASS" if got == 1 else "FAIL", name, len(data),
                  "" if got == 1 else ": %s" % got), flush=True)
    xla.close()


if __name__ == "__main__":
    main()
