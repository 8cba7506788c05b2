# make check: every group in turn, counted together (tests/check.sh). Groups that need minutes have their own targets.
GOLDEN := $(sort $(wildcard tests/golden/*/*.hlo))
OPS    := $(sort $(wildcard tests/ops/*.hlo))
.PHONY: check check-quick check-models lint
check: all units $(FAKE_WORKER) ## all tests; prints "N passed, N failed" last
	$(Q)sh tests/check.sh \
	  units 'for t in $(UNIT); do $$t || echo "not ok $$t"; done' \
	  ops 'for f in $(OPS); do $(BUILD)/hlo-opt --eval $$f && echo "PASS $$f" || echo "FAIL $$f"; done' \
	  golden 'sh tests/run_golden.sh $(BUILD) $(GOLDEN)' \
	  corpus 'sh tests/conform/hlo_corpus.sh $(BUILD)' \
	  truncation 'build/venv/bin/python tests/models/hostile.py $(BUILD)' \
	  api '$(MAKE) -s check-api' \
	  sched '$(MAKE) -s check-sched' \
	  models 'build/venv/bin/python tests/models/serve.py $(BUILD) --quick' \
	  lint 'sh tests/meta/lint.sh'
check-quick: units ## unit tests and operator cases
	$(Q)sh tests/check.sh units 'for t in $(UNIT); do $$t || echo "not ok $$t"; done' ops 'for f in $(OPS); do $(BUILD)/hlo-opt --eval $$f && echo "PASS $$f" || echo "FAIL $$f"; done'
check-models: all ## every model of the zoo, light and real ones, over HTTP against ONNX Runtime
	$(Q)sh tests/check.sh models 'build/venv/bin/python tests/models/serve.py $(BUILD)'
lint: ## the house rules
	$(Q)sh tests/meta/lint.sh
