# make check: every group in turn, counted together (tests/check.sh). Groups that need minutes have
# their own targets.
GOLDEN := $(sort $(foreach x,hlo mlir onnxtxt,$(wildcard tests/golden/*/*.$x)))
OPS    := $(sort $(wildcard tests/ops/*.hlo))
OPS_EVAL = for f in $(OPS); do $(BUILD)/hlo-opt --eval $$f && echo "PASS $$f" || \
  echo "FAIL $$f"; done
# The same cases on the CPU device, each implementation forced in turn; what it does not take runs
# on the reference evaluator.
OPS_CPU = for i in onednn kernel reference; do $(BUILD)/hlo-run --cases --impl $$i $(OPS); done; \
  for c in matmul:dot update:dynamic-update-slice concat:concatenate transpose:transpose \
  sort:topk pad:pad; do \
  f=tests/ops/$${c\#*:}.hlo; \
  $(BUILD)/hlo-run --cases --impl $${c%:*} $$f && echo "PASS $${c%:*} $$f" || \
  echo "FAIL $${c%:*} $$f"; done
OPS_SIM = $(BUILD)/hlo-run --cases --device sim $(OPS)
.PHONY: check check-quick check-models lint
check: all units $(FAKE_WORKER) $(BUILD)/device_test ## all tests; prints "N passed, N failed" last
	$(Q)sh tests/check.sh \
	  units 'for t in $(UNIT); do $$t || echo "not ok $$t"; done' \
	  ops '$(OPS_EVAL)' \
	  devices '$(BUILD)/device_test' \
	  ops-sim '$(OPS_SIM)' \
	  fuzz-hlo '$(MAKE) -s check-fuzz-hlo' \
	  ops-cpu '$(OPS_CPU)' \
	  direct '$(MAKE) -s check-direct' \
	  web-ops '$(MAKE) -s check-web-ops' \
	  web-models '$(MAKE) -s check-web-models' \
	  web-worker '$(MAKE) -s check-web-worker' \
	  fuzz-corpus '$(MAKE) -s check-fuzz' \
	  golden 'sh tests/run_golden.sh $(BUILD) $(GOLDEN)' \
	  corpus 'build/venv/bin/python tests/conform/hlo_corpus.py $(BUILD) --quick' \
	  truncation 'build/venv/bin/python tests/models/hostile.py $(BUILD)' \
	  hostile '$(MAKE) -s fuzz-daemon SECS=3' \
	  attack '$(MAKE) -s check-attack' \
	  api '$(MAKE) -s check-api' \
	  grpc '$(MAKE) -s check-grpc' \
	  programs 'build/venv/bin/python tests/api/programs.py $(BUILD)' \
	  defaults 'build/venv/bin/python tests/api/defaults.py $(BUILD)' \
	  profile 'build/venv/bin/python tests/api/profile.py $(BUILD)' \
	  train-jobs 'build/venv/bin/python tests/api/train.py --build $(BUILD)' \
	  secure '$(MAKE) -s check-secure' \
	  fleet '$(MAKE) -s check-fleet' \
	  cluster '$(MAKE) -s check-cluster-short' \
	  openapi '$(MAKE) -s check-openapi' \
	  client '$(MAKE) -s check-client' \
	  client-python '$(MAKE) -s check-client-python' \
	  otlp '$(MAKE) -s check-otlp' \
	  sched '$(MAKE) -s check-sched' \
	  sim '$(MAKE) -s check-sim' \
	  soak '$(MAKE) -s check-soak' \
	  disk '$(MAKE) -s check-soak-disk' \
	  memory '$(MAKE) -s check-memory' \
	  onnx '$(PYTHON) tests/conform/run_onnx.py $(BUILD) --list tests/conform/onnx_cases.txt' \
	  onnx-attrs 'build/venv/bin/python tests/meta/onnx_attrs.py' \
	  onnx-variants 'build/venv/bin/python tests/conform/onnx_variants.py $(BUILD)' \
	  trees 'build/venv/bin/python tests/conform/trees.py $(BUILD)' \
	  recurrent 'build/venv/bin/python tests/conform/recurrent.py $(BUILD)' \
	  convs 'build/venv/bin/python tests/conform/convs.py $(BUILD)' \
	  products 'build/venv/bin/python tests/conform/products.py $(BUILD) --n 40' \
	  int8-products 'build/venv/bin/python tests/fuzz-hlo/int8_products.py $(BUILD)' \
	  few-bits 'build/venv/bin/python tests/precision/few_bits.py $(BUILD)' \
	  attention 'build/venv/bin/python tests/conform/attention.py $(BUILD)' \
	  fast 'build/venv/bin/python tests/precision/fast.py $(BUILD) && \
	    HLOD_CPU_BF16=emulated \
	    build/venv/bin/python tests/precision/fast.py $(BUILD) --n 24 --seed 2' \
	  amx 'build/venv/bin/python tests/precision/amx.py $(BUILD)' \
	  fast-models 'build/venv/bin/python tests/precision/models.py $(BUILD)' \
	  bounds 'build/venv/bin/python tests/precision/bounds.py $(BUILD) --n 27 && \
	    build/venv/bin/python tests/precision/not_finite.py $(BUILD)' \
	  precision 'build/venv/bin/python tests/precision/replies.py $(BUILD)' \
	  loops 'build/venv/bin/python tests/conform/loops.py $(BUILD)' \
	  transforms 'build/venv/bin/python tests/conform/transforms.py $(BUILD) --n 24' \
	  lapack 'build/venv/bin/python tests/conform/lapack.py $(BUILD)' \
	  complex 'build/venv/bin/python tests/conform/functions/complex.py $(BUILD)' \
	  sorts 'build/venv/bin/python tests/conform/sorts.py $(BUILD) --n 24' \
	  hlo-formats 'build/venv/bin/python tests/models/hlo_formats.py $(BUILD)' \
	  from-jax 'build/venv/bin/python tests/models/from_jax.py $(BUILD)' \
	  stablehlo 'build/venv/bin/python tests/models/stablehlo.py $(BUILD) tests/conform/stablehlo' \
	  to-stablehlo 'build/venv/bin/python tests/models/to_stablehlo.py $(BUILD)' \
	  stablehlo-twins 'sh tests/models/stablehlo_twins.sh $(BUILD)' \
	  jax-models 'build/venv/bin/python tests/models/jax_models.py $(BUILD)' \
	  jax-functions 'build/venv/bin/python tests/models/jax_functions.py $(BUILD) --each 1' \
	  lapack-calls 'build/venv/bin/python tests/models/lapack_calls.py $(BUILD)' \
	  models 'build/venv/bin/python tests/models/serve.py $(BUILD) --quick' \
	  pass-values 'sh tests/conform/pass_values.sh $(BUILD)' \
	  device-values 'sh tests/conform/device_values.sh $(BUILD)' \
	  groups 'python3 tests/meta/group.py' \
	  rules 'sh tests/meta/rules.sh $(BUILD)' \
	  graphs 'build/venv/bin/python tests/models/graphs.py $(BUILD)' \
	  gradient 'build/venv/bin/python tests/models/gradient.py $(BUILD)' \
	  gradients 'sh tests/fuzz-hlo/gradients.sh $(BUILD)' \
	  train 'build/venv/bin/python tests/models/train.py $(BUILD)' \
	  train-half 'build/venv/bin/python tests/precision/train_half.py $(BUILD)' \
	  new-weights 'build/venv/bin/python tests/models/new_weights.py $(BUILD)' \
	  jax-gradient 'build/venv/bin/python tests/models/jax_gradient.py $(BUILD)' \
	  fuzz-grad '$(PYTHON) tests/fuzz-hlo/fuzz_grad.py --opt $(BUILD)/hlo-opt --n 60 --seed 5' \
	  zoo 'build/venv/bin/python tests/zoo/conform.py $(BUILD) --which small' \
	  fuzz-onnx-graphs \
	  'build/venv/bin/python tests/fuzz-onnx/fuzz_onnx.py $(BUILD) --found --n 40 --seed 20' \
	  quantised 'build/venv/bin/python tests/models/quantised.py $(BUILD)' \
	  plan-memory 'build/venv/bin/python tests/models/plan_memory.py $(BUILD)' \
	  parts 'build/venv/bin/python tests/models/parts.py $(BUILD)' \
	  text 'build/venv/bin/python tests/models/text.py $(BUILD)' \
	  oip-text 'build/venv/bin/python tests/models/oip_text.py $(BUILD)' \
	  vad 'build/venv/bin/python tests/models/vad.py $(BUILD) --quick' \
	  deploy '$(MAKE) -s check-deploy' \
	  bundle '$(MAKE) -s check-bundle' \
	  lint 'sh tests/meta/lint.sh $(BUILD)' \
	  pjrt 'sh tests/conform/pjrt/run.sh $(BUILD)' \
	  opencl 'sh tests/conform/opencl/run.sh $(BUILD)' \
	  gl 'sh tests/conform/gl/run.sh $(BUILD)' \
	  layers '$(MAKE) -s layers'
check-quick: units ## unit tests and operator cases
	$(Q)sh tests/check.sh units 'for t in $(UNIT); do $$t || echo "not ok $$t"; done' ops \
	  '$(OPS_EVAL)'
check-models: all ## every model of the zoo, light and real ones, over HTTP against ONNX Runtime
	$(Q)sh tests/check.sh models 'build/venv/bin/python tests/models/serve.py $(BUILD)'
.PHONY: check-aot check-aot-nightly
check-aot: ## compiling for TPUs and GPUs that are not here; fetches their plugins from PyPI (some
## 400 MB) at the first run
check-aot: all
	$(Q)mkdir -p build/aot; \
	  sh tests/check.sh aot 'build/venv/bin/python tests/conform/aot/aot_test.py $(BUILD)'
check-aot-nightly: all ## VGG19 with batch 100 for a TPU and two GPUs (minutes)
	$(Q)mkdir -p build/aot; \
	  sh tests/check.sh aot 'build/venv/bin/python tests/conform/aot/aot_test.py $(BUILD) --nightly'
.PHONY: conform-hlo
conform-hlo: ## the modules of XLA's own tests: text, HloModuleProto and values against XLA
conform-hlo: $(BUILD)/hlo-opt
	$(Q)build/venv/bin/python tests/conform/hlo_corpus.py $(BUILD)
lint: $(LIBS) ## the house rules
	$(Q)sh tests/meta/lint.sh $(BUILD)
# The whole archive of a folder links with those below it and nothing else; every header compiles
# alone.
layer_link = $(CC) $(SANFLAGS) -shared -Wl,-z,$(if $(SAN),undefs,defs) -o /dev/null \
  -Wl,--whole-archive $(BUILD)/lib$(1).a -Wl,--no-whole-archive \
  $(foreach l,$(wordlist 2,9,$(L_$(1))),$(BUILD)/lib$(l).a) $(foreach l,$(L_$(1)),$(SYS_$(l)))
HEADERS := $(shell git ls-files '*.h' 2>/dev/null)
.PHONY: layers
layers: $(LIBS) ## each archive links with the layers below it only; each header compiles alone
	$(Q)$(foreach d,$(FOLDERS),if $(call layer_link,$(d)); \
	  then echo "PASS lib$(d).a links with: $(wordlist 2,9,$(L_$(d)))"; \
	  else echo "FAIL lib$(d).a"; fi;) true
	$(Q)bad=0; for h in $(HEADERS); do $(CC) -std=gnu11 $(DEFS) -I. -I$(BUILD)/gen $(LLVM_CFLAGS) \
	  -fsyntax-only -x c $$h 2>/dev/null || { echo "$$h does not compile alone"; bad=1; }; done; \
	  if [ $$bad = 0 ]; then echo "PASS $(words $(HEADERS)) headers compile alone"; else \
	  echo "FAIL headers"; fi
.PHONY: docs
docs: docs-daemon $(BUILD)/hlo-opt ## documents made from tables
	$(Q)(echo "# Passes"; echo; \
	  echo "Generated by \`hlo-opt --list-passes\`; the order is in compiler/pipeline.c."; echo; \
	  $(BUILD)/hlo-opt --list-passes; echo; echo "## Rules of algsimp"; echo; \
	  echo "Tried in this order on each instruction (compiler/passes/rules/rules.def);"; \
	  echo "\`--disable-rule=NAME\` leaves one out."; echo; \
	  $(BUILD)/hlo-opt --list-rules) | $(WRAP) > docs/passes.md
	$(Q)$(PYTHON) client/python/make_schema.py client/python/hlod/_schema.py
	$(Q)$(PYTHON) tests/meta/ops_table.py --opt $(BUILD)/hlo-opt > $(BUILD)/ops.md && \
	  mv $(BUILD)/ops.md docs/ops.md
# What needs minutes and a build of its own: make check-san SAN=address,undefined, make check-san
# SAN=thread. Each process writes its reports to a file (tests/check.sh), so that none is lost, a
# worker's neither; ignore_noninstrumented_modules: what libgrpc, libuv and others do among
# themselves is not ours to judge.
SAN_DIR  = $(CURDIR)/$(BUILD)/san
SAN_LOG  = log_path=$(SAN_DIR)/report
SAN_ENV  = SAN_REPORTS=$(SAN_DIR) UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1:$(SAN_LOG)" \
  ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:quarantine_size_mb=32:$(SAN_LOG)" \
  LSAN_OPTIONS="suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0" \
  TSAN_OPTIONS="suppressions=$(CURDIR)/tests/tsan.supp ignore_noninstrumented_modules=1 $(SAN_LOG)"
# These use one thread: ThreadSanitizer finds nothing in them.
SAN_GROUPS_ADDRESS = fuzz-corpus '$(MAKE) -s check-fuzz SAN=$(SAN)' \
  truncation 'build/venv/bin/python tests/models/hostile.py $(BUILD)' \
  models 'build/venv/bin/python tests/models/serve.py $(BUILD) --quick' \
  ops '$(OPS_EVAL)' \
  ops-cpu '$(OPS_CPU)'
.PHONY: check-san
check-san: ## units, device contract, scenarios, transcripts, gRPC, clients, traces, hostile input,
## a soak under the sanitizer named by SAN
check-san: all units $(FAKE_WORKER) $(BUILD)/device_test
	$(Q)[ -n "$(SAN)" ] || { echo "say SAN=address,undefined or SAN=thread"; exit 2; }
	$(Q)rm -rf $(SAN_DIR); mkdir -p $(SAN_DIR); $(SAN_ENV) sh tests/check.sh \
	  units 'for t in $(UNIT); do $$t || echo "not ok $$t"; done' \
	  devices '$(BUILD)/device_test' \
	  sim '$(MAKE) -s check-sim SAN=$(SAN)' \
	  api '$(MAKE) -s check-api SAN=$(SAN)' \
	  sched '$(MAKE) -s check-sched SAN=$(SAN)' \
	  otlp '$(MAKE) -s check-otlp SAN=$(SAN)' \
	  grpc '$(MAKE) -s check-grpc SAN=$(SAN)' \
	  secure '$(MAKE) -s check-secure SAN=$(SAN)' \
	  fleet '$(MAKE) -s check-fleet SAN=$(SAN)' \
	  cluster '$(MAKE) -s check-cluster SAN=$(SAN)' \
	  client '$(MAKE) -s check-client SAN=$(SAN)' \
	  programs 'build/venv/bin/python tests/api/programs.py $(BUILD)' \
	  profile 'build/venv/bin/python tests/api/profile.py $(BUILD)' \
	  train-jobs 'build/venv/bin/python tests/api/train.py --build $(BUILD)' \
	  openapi '$(MAKE) -s check-openapi SAN=$(SAN)' \
	  soak '$(MAKE) -s check-soak SAN=$(SAN)' \
	  hostile '$(MAKE) -s fuzz-daemon SAN=$(SAN) SECS=20' \
	  $(if $(findstring address,$(SAN)),$(SAN_GROUPS_ADDRESS))
