# SPDX-License-Identifier: Apache-2.0
"""An MLServer runtime over ONNX Runtime, as its documentation says to write one: decode, run,
encode. One thread for the model, which is tiny."""
import os

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OrtModel(MLModel):
    async def load(self) -> bool:
        o = onnxruntime.SessionOptions()
        o.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.environ["BENCH_MODEL"], o,
                                                    providers=["CPUExecutionProvider"])
        self.names = [x.name for x in self.session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feed = {x.name: np.ascontiguousarray(NumpyCodec.decode_input(x), np.float32)
                for x in payload.inputs}
        out = self.session.run(None, feed)
        return InferenceResponse(model_name=self.name,
                                 outputs=[NumpyCodec.encode_output(n, v)
                                          for n, v in zip(self.names, out)])
