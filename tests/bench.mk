.PHONY: bench
bench: all ## latency beside ONNX Runtime, OpenVINO and JAX (sh deploy/setup.sh bench first)
	$(Q)$(PYTHON) tests/bench/bench.py $(BUILD)
.PHONY: bench-compile
bench-compile: all ## compile time and instruction counts beside JAX's on the same graph; fails where JAX is faster
	$(Q)$(PYTHON) tests/bench/compile.py $(BUILD)
