# Models in browsers: compiler/web in Node, and in headless Chromium.
WEB_TESTS := $(BUILD)/web_cases $(BUILD)/web_kernels
$(WEB_TESTS): $(BUILD)/%: tests/web/%.c tests/web/web_runner.c tests/web/web_runner.h \
  tests/unit/compiler/kernel_cases.h $(foreach l,$(L_compiler),$(BUILD)/lib$(l).a)
	$(call say,link $*)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) $(call link,compiler)
WEB_NODE := compiler/web/runtime tests/web/serve.mjs
WEB_SAMPLE := bitcast-convert complex concatenate conditional dot dynamic-update-slice fusion pad \
  reduce while
.PHONY: check-web-ops check-web-models check-web-page check-web-browser \
  check-web-gpu-models check-web-worker check-web-devices check-web-fuzz
check-web-ops: ## kernels and the cases of tests/ops as WebAssembly, in Node; what WGSL and GLSL
## can say; some of them by WebGL2 in Chromium, where that is there
check-web-ops: $(WEB_TESTS) $(BUILD)/hlo-opt
	$(Q)sh tests/web/wgsl.sh $(BUILD) $(wildcard tests/golden/llvm/wgsl*.hlo)
	$(Q)command -v node >/dev/null || { echo "SKIP WebAssembly: no node"; exit 0; }; \
	  $(BUILD)/web_kernels $(WEB_NODE) && echo "PASS kernels as WebAssembly" && \
	  $(BUILD)/web_cases --refused tests/web/refused.txt --backend webgpu --wgsl \
	    tests/web/in_wasm.txt --glsl tests/web/in_wasm_webgl.txt $(WEB_NODE) \
	    $(wildcard tests/ops/*.hlo) && \
	  echo "PASS cases of tests/ops as WebAssembly" && \
	  $(PYTHON) tests/web/pairs.py $(BUILD)
	$(Q)$(PYTHON) tests/web/browser_cases.py $(BUILD) webgl \
	  $(patsubst %,tests/ops/%.hlo,$(WEB_SAMPLE))
WEB_TOOLS := $(BUILD)/hlo $(BUILD)/hlo-opt
check-web-models: ## exported models in Node beside ONNX Runtime; ARGS='--which all --runs 20'
check-web-models: $(WEB_TOOLS)
	$(Q)$(PYTHON) tests/web/models.py $(BUILD) $(ARGS)
	$(Q)$(PYTHON) tests/web/unseen_models.py $(BUILD)
check-web-page: ## the exported page in Chromium, with screenshots in build/web (sh
## deploy/setup.sh dashboard first)
check-web-page: $(WEB_TOOLS)
	$(Q)$(PYTHON) tests/web/page.py $(BUILD)
check-web-browser: ## kernels and the cases of tests/ops in Chromium, as WebAssembly, by WebGPU
## and by WebGL2 over the CPU (minutes)
check-web-browser: $(WEB_TESTS)
	$(Q)$(PYTHON) tests/web/browser_cases.py $(BUILD) $(wildcard tests/ops/*.hlo)
check-web-gpu-models: ## the zoo's small networks in Chromium by WebGPU and WebGL2 over the CPU;
## ARGS='--which families --backend webgl' (minutes)
check-web-gpu-models: $(WEB_TOOLS)
	$(Q)$(PYTHON) tests/web/gpu_models.py $(BUILD) $(ARGS)
	$(Q)$(PYTHON) tests/web/unseen_models.py $(BUILD) --on webgpu,webgl
WEB_DAEMON := $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo
check-web-worker: ## pages as devices: hostile ones by hand, honest ones in Chromium, where that is
check-web-worker: $(WEB_DAEMON)
	$(Q)build/venv/bin/python tests/web/worker.py $(BUILD)
	$(Q)build/venv/bin/python tests/web/worker_page.py $(BUILD) $(ARGS)
check-web-devices: ## pages as devices in Chromium, by WebAssembly, WebGPU and WebGL2 over the CPU:
## the device contract and all cases of tests/ops, and the page (minutes)
check-web-devices: $(WEB_DAEMON) $(BUILD)/hlo-run $(BUILD)/device_test
	$(Q)build/venv/bin/python tests/web/worker_page.py $(BUILD) --gpu
	$(Q)build/venv/bin/python tests/web/worker_farm.py $(BUILD)
check-web-fuzz: ## random modules through pages in Chromium, by WebAssembly, WebGPU and WebGL2 over
## the CPU (minutes; N, SEED, ARGS=webgl)
check-web-fuzz: $(HLO_DIFF)
	$(Q)build/venv/bin/python tests/web/worker_farm.py $(BUILD) --fuzz $(N) --seed $(SEED) $(ARGS)
