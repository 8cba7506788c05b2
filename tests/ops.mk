# Reference evaluator against the expected values of XLA:CPU.
.PHONY: check-ops
check-ops: $(BUILD)/hlo-opt ## evaluate every case of tests/ops
	@fail=0; for f in tests/ops/*.hlo; do $(BUILD)/hlo-opt --eval $$f > $(BUILD)/ops.log || \
	  { echo "$$f"; cat $(BUILD)/ops.log; fail=1; }; done; exit $$fail
