# make fuzz-hlo N=1000 SEED=k: random HLO modules through the evaluator, every implementation, every
# pass switched off in turn, and XLA:CPU. What differs is reduced and written to build/fuzz-hlo.
# SEED=clock takes one from the clock.
N    ?= 1000
SEED ?= 1
HLO_DIFF := $(BUILD)/tests/hlo-diff
$(HLO_DIFF): tests/fuzz-hlo/hlo_diff.c $(foreach l,$(L_devices),$(BUILD)/lib$(l).a)
	$(call say,link hlo-diff)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(call link,devices)
.PHONY: fuzz-hlo
fuzz-hlo: ## random HLO modules against XLA:CPU and between implementations (N modules, SEED)
fuzz-hlo: $(HLO_DIFF)
	$(Q)$(PYTHON) tests/fuzz-hlo/fuzz_hlo.py --diff $(HLO_DIFF) --n $(N) --seed $(SEED) \
	  --out build/fuzz-hlo
.PHONY: fuzz-grad
fuzz-grad: $(BUILD)/hlo-opt ## derivatives of random HLO modules against differences (N, SEED)
	$(Q)$(PYTHON) tests/fuzz-hlo/fuzz_grad.py --opt $(BUILD)/hlo-opt --n $(N) --seed $(SEED)
.PHONY: check-grad
check-grad: $(BUILD)/hlo-opt ## every gradient rule against central differences
	$(Q)sh tests/check.sh gradients 'sh tests/fuzz-hlo/gradients.sh $(BUILD)'
# In `make check`: what the fuzzer found before (cases as in tests/ops), and a few modules with a
# fixed seed.
.PHONY: check-fuzz-hlo
check-fuzz-hlo: all $(HLO_DIFF)
	$(Q)for f in tests/fuzz-hlo/found/*.hlo; do \
	  $(BUILD)/hlo-opt --eval $$f && $(BUILD)/hlo-run --cases --impl onednn $$f && \
	  $(BUILD)/hlo-run --cases --impl kernel $$f && \
	  $(BUILD)/hlo-run --cases --impl reference $$f && \
	  $(BUILD)/hlo-run --cases $$f && \
	  HLOD_CPU_ISA=avx2 $(BUILD)/hlo-run --cases $$f && \
	  HLOD_CPU_ISA=avx2 $(BUILD)/hlo-run --cases --impl kernel $$f && \
	  echo "PASS $$f" || echo "FAIL $$f"; done
	$(Q)$(PYTHON) tests/fuzz-hlo/fuzz_hlo.py --diff $(HLO_DIFF) --n 40 --seed 20 --reduce 1 \
	  --out build/fuzz-hlo
