# make fuzz-hlo N=1000 SEED=k: random HLO modules through the evaluator, every implementation, every pass switched off in turn, and XLA:CPU.
# What differs is reduced and written to build/fuzz-hlo. SEED=clock takes one from the clock.
N    ?= 1000
SEED ?= 1
HLO_DIFF := $(BUILD)/tests/hlo-diff
$(HLO_DIFF): tests/fuzz-hlo/hlo_diff.c $(foreach l,$(L_devices),$(BUILD)/lib$(l).a)
	$(call say,link hlo-diff)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $(call link,devices)
.PHONY: fuzz-hlo
fuzz-hlo: $(HLO_DIFF) ## random HLO modules against XLA:CPU and between implementations (N modules, SEED)
	$(Q)$(PYTHON) tests/fuzz-hlo/fuzz_hlo.py --diff $(HLO_DIFF) --n $(N) --seed $(SEED) --out build/fuzz-hlo
