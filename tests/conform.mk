# Conformance against suites that others wrote. ARGS: options of the runner, e.g. make conform-onnx ARGS='--family recurrent --list-failed'.
.PHONY: conform-onnx
conform-onnx: all ## ONNX's backend cases over HTTP, beside ONNX Runtime in the same run
	$(Q)build/venv/bin/python tests/conform/run_onnx.py $(BUILD) $(ARGS)
