# Attacks that a daemon must stand (tests/attack/attack.py): in `make check` whether each holds;
# `make attack` with memory and an honest client's latencies.
.PHONY: attack check-attack
ATTACK = python3 tests/attack/attack.py --hlod $(BUILD)/hlod --worker $(FAKE_WORKER)
check-attack: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(ATTACK)
attack: ## attacks on the daemon, each with its peak of memory and an honest client's p99 meanwhile
attack: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(ATTACK) --table $(NAMES)
