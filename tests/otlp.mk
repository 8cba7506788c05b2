# OpenTelemetry: spans and metrics to a collector.
.PHONY: check-otlp
check-otlp: ## traces and metrics by OTLP to a real collector, also one that misbehaves
check-otlp: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/tests/fake_worker
	$(Q)build/venv/bin/python tests/otlp/otlp_test.py --build $(BUILD) \
	  --worker $(BUILD)/tests/fake_worker
