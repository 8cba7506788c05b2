# Daemons that share a cache and know each other (tests/fleet): scripted workers, a cache that can
# misbehave in every way, an object store where build/fleet has one (deploy/setup.sh fleet). They
# mostly wait, so that several run at a time.
FLEET        = fleet-remote fleet-signing fleet-peers fleet-secrets fleet-s3
FLEET_PYTHON = $(if $(wildcard build/fleet/bin/python),build/fleet/bin/python,python3)
.PHONY: check-fleet $(FLEET)
check-fleet: ## the shared cache, signatures, peers: one compile a fleet, remotes that lie or hang
check-fleet: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(MAKE) -s -k -O -j3 $(FLEET)
$(FLEET): fleet-%: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(FLEET_PYTHON) tests/fleet/$*.py --hlod $(BUILD)/hlod --worker $(FAKE_WORKER)
