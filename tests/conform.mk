# Conformance against suites that others wrote. ARGS: options of the runner, e.g. make conform-onnx
# ARGS='--family recurrent --list-failed'.
.PHONY: conform-onnx
conform-onnx: all ## ONNX's backend cases over HTTP, beside ONNX Runtime in the same run
	$(Q)build/venv/bin/python tests/conform/run_onnx.py $(BUILD) $(ARGS)
# The cases of another release of onnx (its wheel has them), which the first run fetches from PyPI:
# make conform-onnx-later, or LATER_CASES=1.21.0.
LATER_CASES ?= 1.22.0
build/onnx-$(LATER_CASES)/.hlod:
	$(Q)build/venv/bin/pip install -q --disable-pip-version-check --no-deps --target $(@D) \
	  onnx==$(LATER_CASES) && touch $@
.PHONY: conform-onnx-later
conform-onnx-later: ## the node cases of a later onnx (1.22.0) over HTTP, beside ONNX Runtime;
## LATER_CASES=1.21.0 for another
conform-onnx-later: all build/onnx-$(LATER_CASES)/.hlod
	$(Q)PYTHONPATH=build/onnx-$(LATER_CASES) build/venv/bin/python tests/conform/run_onnx.py $(BUILD) \
	  --suites node $(ARGS)
# StableHLO's own programs with the results they expect; MLIR names folders of .mlir files.
.PHONY: conform-stablehlo
conform-stablehlo: all ## StableHLO programs with check.expect_* operations: MLIR=dir...
## (tests/conform/stablehlo), hlod's counts beside XLA:CPU's by family
	$(Q)build/venv/bin/python tests/models/stablehlo.py $(BUILD) --xla $(ARGS) \
	  $(or $(MLIR),tests/conform/stablehlo)
.PHONY: conform-stablehlo-twins
conform-stablehlo-twins: $(BUILD)/hlo-opt ## StableHLO bytecode beside text: MLIR=dir...
	$(Q)sh tests/models/stablehlo_twins.sh $(BUILD) $(MLIR)
.PHONY: conform-jax
conform-jax: all ## the 5,483 functions that JAX tests its lowering with, exported, against JAX
## on the CPU (ARGS="sort --list"); one of each kind in make check
	$(Q)build/venv/bin/python tests/models/jax_functions.py $(BUILD) $(ARGS)
# The contract of devices/device.h over every device kind.
DEVICE_TEST := $(BUILD)/device_test
$(DEVICE_TEST): tests/conform/device_test.c tests/conform/device_buffers.c \
  tests/conform/device_pjrt.c tests/conform/device_help.h \
  $(foreach l,$(L_devices),$(BUILD)/lib$(l).a)
	$(call say,link device_test)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) $(call link,devices) -lcmocka
# Both code generators on the same kernels, bit for bit.
KERNEL_DIFF := $(BUILD)/kernel_diff
DIRECT_CASES = $(wildcard tests/ops/*.hlo tests/fuzz-hlo/found/*.hlo tests/golden/kir/side-*.hlo)
$(KERNEL_DIFF): tests/conform/kernel_diff.c $(foreach l,$(L_devices),$(BUILD)/lib$(l).a)
	$(call say,link kernel_diff)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) $(call link,devices)
.PHONY: check-direct
check-direct: ## every kernel of tests/ops and of what the fuzzer found by LLVM and by the direct
## generator, bit for bit; where there is AVX-512, also as AVX2
## (ARGS="--time --bind N=1 FILE.onnx")
check-direct: $(KERNEL_DIFF)
	$(Q)$(KERNEL_DIFF) $(or $(ARGS),$(DIRECT_CASES))
	$(Q)! grep -qw avx512vl /proc/cpuinfo || \
	  HLOD_CPU_ISA=avx2 $(KERNEL_DIFF) $(or $(ARGS),$(DIRECT_CASES))
.PHONY: check-devices
check-devices: ## the device contract over every kind, and the operator cases on the simulated
## device
check-devices: $(DEVICE_TEST) $(BUILD)/hlo-run
	$(Q)$(DEVICE_TEST)
	$(Q)$(OPS_SIM)
.PHONY: check-variants
check-variants: all ## ONNX operators in settings the backend cases leave out, against ONNX Runtime
	$(Q)build/venv/bin/python tests/conform/onnx_variants.py $(BUILD) $(ARGS)
