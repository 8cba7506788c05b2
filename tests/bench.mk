.PHONY: bench
bench: all ## latency beside ONNX Runtime, OpenVINO and JAX (sh deploy/setup.sh bench first)
	$(Q)$(PYTHON) tests/bench/bench.py $(BUILD)
