# SPDX-License-Identifier: Apache-2.0
"""ONNX's text form (onnx.parser) to a model file on stdout: to_model.py FILE | hlo-opt -. Lines
that begin with // are dropped first."""
import sys

import onnx.parser

with open(sys.argv[1]) as f:
    text = "".join(line for line in f if not line.startswith("//"))
sys.stdout.buffer.write(onnx.parser.parse_model(text).SerializeToString())
