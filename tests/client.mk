# The C client as a user has it: installed, by pkg-config.
.PHONY: check-client check-jobs-cli
check-jobs-cli: ## hlo submit: suites, reports, CI examples, the commands of README and docs/jobs.md
check-jobs-cli: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/tests/fake_worker
	$(Q)build/venv/bin/python tests/client/submit.py --build $(BUILD) \
	  --worker $(BUILD)/tests/fake_worker
check-client: ## libhlod as installed: header, example, both ways of linking
check-client: check-jobs-cli $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo \
  $(BUILD)/tests/fake_worker $(LIBHLOD)
	$(Q)build/venv/bin/python tests/client/external.py $(BUILD)
	$(Q)build/venv/bin/python tests/client/untold.py $(BUILD)
	$(Q)python3 tests/client/words.py $(BUILD)
	$(Q)python3 tests/meta/commands.py $(BUILD)
	$(Q)build/venv/bin/python tests/client/ahead.py $(BUILD)
	$(Q)build/venv/bin/python tests/client/pages.py $(BUILD)
	$(Q)build/venv/bin/python tests/client/train.py --build $(BUILD)
	$(Q)build/venv/bin/python tests/client/train_models.py --build $(BUILD)
	$(Q)build/venv/bin/python tests/client/documents.py $(BUILD)
	$(Q)build/venv/bin/python tests/client/dtypes.py $(BUILD)
	$(Q)build/venv/bin/python tests/client/doctor.py $(BUILD)
	$(Q)python3 tests/client/cache.py --build $(BUILD)
	$(Q)python3 tests/client/tune.py --build $(BUILD)
	$(Q)python3 tests/client/buffers.py --build $(BUILD)
	$(Q)build/venv/bin/python tests/client/uploads.py --build $(BUILD) \
	  --worker $(BUILD)/tests/fake_worker
	$(Q)python3 tests/client/cli.py --build $(BUILD) --worker $(BUILD)/tests/fake_worker
	$(Q)build/venv/bin/python tests/client/readme.py --build $(BUILD) \
	  --flags="$(if $(SAN),-fsanitize=$(SAN))"
	$(Q)python3 tests/client/run.py --build $(BUILD) --worker $(BUILD)/tests/fake_worker \
	  --make "$(MAKE) CONFIG=$(CONFIG) SAN=$(SAN)" --flags="$(if $(SAN),-fsanitize=$(SAN))"
.PHONY: check-train-models
check-train-models: ## networks of 26 families through hlo train, alone and as a job, against JAX
check-train-models: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/hlo-opt
	$(Q)build/venv/bin/python tests/client/train_models.py --build $(BUILD) --all
.PHONY: soak-train
soak-train: ## hlo train with 20 kills of daemon, workers and client, then a training of the
## server's with 20 kills of daemon and workers: the same bytes in the end
soak-train: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/hlo-opt
	$(Q)build/venv/bin/python tests/client/train.py --build $(BUILD) --kills 20
	$(Q)build/venv/bin/python tests/api/train.py --build $(BUILD) --kills 20
# The library under a sanitizer, its tests with it; daemon and worker are the usual ones.
.PHONY: check-client-san
check-client-san: ## libhlod's tests, asynchronous ones first, under ASan with UBSan and under TSan
check-client-san: $(BUILD)/hlod $(BUILD)/tests/fake_worker
	$(Q)for s in address,undefined thread; do d=build/$(CONFIG)-$$(echo $$s | tr , -); \
	  $(MAKE) -s SAN=$$s $$d/libhlod.a && \
	  python3 tests/client/san.py --build $(BUILD) --worker $(BUILD)/tests/fake_worker \
	  --lib $$d/libhlod.a --flags=-fsanitize=$$s --libs="$(LIBHLOD_LIBS)" || exit 1; done
.PHONY: check-client-python
check-client-python: ## the Python package over HTTP and gRPC, and its README's examples
check-client-python: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo
	$(Q)build/venv/bin/python -X faulthandler tests/client/python_client.py --build $(BUILD)
