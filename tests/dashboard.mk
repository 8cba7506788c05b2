# The dashboard in headless Chromium: a big package, so a target of its own.
.PHONY: check-dashboard
check-dashboard: ## the page at / in Chromium, with screenshots in build/dashboard (sh
## deploy/setup.sh dashboard first)
check-dashboard: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)python3 tests/dashboard/dashboard.py $(BUILD)
