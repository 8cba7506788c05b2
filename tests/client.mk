# The C client as a user has it: installed, by pkg-config.
.PHONY: check-client check-jobs-cli
check-jobs-cli: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/tests/fake_worker ## hlo submit: suites, reports, CI examples, the commands of README and docs/jobs.md
	$(Q)build/venv/bin/python tests/client/submit.py --build $(BUILD) --worker $(BUILD)/tests/fake_worker
check-client: check-jobs-cli $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/tests/fake_worker $(LIBHLOD) ## libhlod as installed: header, example, both ways of linking
	$(Q)build/venv/bin/python tests/client/external.py $(BUILD)
	$(Q)python3 tests/client/cache.py --build $(BUILD)
	$(Q)python3 tests/client/cli.py --build $(BUILD) --worker $(BUILD)/tests/fake_worker
	$(Q)python3 tests/client/run.py --build $(BUILD) --worker $(BUILD)/tests/fake_worker --make "$(MAKE) CONFIG=$(CONFIG) SAN=$(SAN)" --flags="$(if $(SAN),-fsanitize=$(SAN))"
