# make fuzz-onnx-graphs N=2000 SEED=k: random small ONNX networks through the daemon against ONNX
# Runtime. What differs is reduced and written to build/fuzz-onnx.
# SEED=clock takes one from the clock.
.PHONY: fuzz-onnx-graphs
fuzz-onnx-graphs: all ## random small ONNX networks against ONNX Runtime (N graphs, SEED)
	$(Q)$(PYTHON) tests/fuzz-onnx/fuzz_onnx.py $(BUILD) --n $(N) --seed $(SEED) $(ARGS)
