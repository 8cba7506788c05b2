# Daemon tests: transcripts and fault scenarios, over a scripted worker; and the documents made from
# the daemon's tables.
FAKE_WORKER := $(BUILD)/tests/fake_worker
$(FAKE_WORKER): tests/api/fake_worker.c tests/fuzz/mutate.c tests/fuzz/mutate.h \
  $(BUILD)/libproto.a $(BUILD)/libbase.a
	$(call say,link fake_worker)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) $(BUILD)/libproto.a \
	  $(BUILD)/libbase.a $(SYS_proto) $(SYS_base)

.PHONY: soak soak-jobs soak-disk check-soak-disk check-soak check-api check-sched check-sim \
  check-bad-models docs-daemon
check-api: ## API transcripts over the daemon
check-api: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/hlo-opt $(FAKE_WORKER)
	$(Q)python3 tests/api/run.py --hlod $(BUILD)/hlod --worker $(FAKE_WORKER) \
	  $(sort $(wildcard tests/api/*.http))
	$(Q)python3 tests/api/run.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker \
	  $(sort $(wildcard tests/api/real/*.http))
	$(Q)python3 tests/api/cors.py $(BUILD)
	$(Q)build/venv/bin/python tests/api/web.py --build $(BUILD)
# A wall clock that is set (tests/sched/clock.py).
MOVED_CLOCK := $(BUILD)/tests/moved_clock.so
$(MOVED_CLOCK): tests/sched/moved_clock.c
	$(call say,link moved_clock)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -fvisibility=default -shared -o $@ $<
check-sched: ## fault scenarios: crash, hang, cancel, restart, damage, memory; batch jobs
check-sched: $(BUILD)/hlod $(BUILD)/hlod-worker $(FAKE_WORKER) $(MOVED_CLOCK)
	$(Q)python3 tests/sched/faults.py --hlod $(BUILD)/hlod --worker $(FAKE_WORKER)
	$(Q)$(if $(SAN),,python3 tests/sched/clock.py --hlod $(BUILD)/hlod \
	  --worker $(BUILD)/hlod-worker --preload $(CURDIR)/$(MOVED_CLOCK))
	$(Q)python3 tests/sched/ends.py --hlod $(BUILD)/hlod --worker $(FAKE_WORKER)
	$(Q)python3 tests/sched/jobs.py --hlod $(BUILD)/hlod --worker $(FAKE_WORKER)
	$(Q)python3 tests/sched/backup.py --build $(BUILD) --worker $(FAKE_WORKER)
soak-jobs: ## 200 batch jobs, 50 times `kill -9` of the daemon: one recorded result each; SEED=n to
## repeat
soak-jobs: $(BUILD)/hlod $(FAKE_WORKER)
	$(Q)python3 tests/sched/jobs.py --hlod $(BUILD)/hlod --worker $(FAKE_WORKER) --kills 50 \
	  --jobs 200 $(if $(SEED),--seed $(SEED)) kill_9
check-sim: ## fault scenarios with real workers on simulated devices
check-sim: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)python3 tests/sched/sim.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
	$(Q)python3 tests/sched/share.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
	$(Q)python3 tests/sched/buffers.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
	$(Q)$(PYTHON) tests/sched/batching.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
	$(Q)$(PYTHON) tests/sched/streams.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
	$(Q)$(PYTHON) tests/sched/shapes.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
.PHONY: check-openapi fuzz-openapi
check-openapi: ## openapi.json validates; a few hundred requests made from it
check-openapi: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)build/venv/bin/python tests/api/openapi_test.py $(BUILD)
fuzz-openapi: ## thousands of requests made from openapi.json: no 5xx, replies as documented
fuzz-openapi: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)build/venv/bin/python tests/api/openapi_test.py $(BUILD) --examples 12 --at-least 2000
check-bad-models: ## hostile models against the real worker over HTTP
check-bad-models: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)python3 tests/api/bad_models.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
WRAP := python3 tests/meta/wrap.py
docs-daemon: $(BUILD)/hlod ## docs/{config,api,errors}.md from their tables
	$(Q)$(BUILD)/hlod --print-docs=config | $(WRAP) > docs/config.md
	$(Q)$(BUILD)/hlod --print-docs=errors | $(WRAP) > docs/errors.md
	$(Q)$(BUILD)/hlod --print-docs=api < proto/hlod.proto | $(WRAP) > docs/api.md
# Many clients, random cancels, disconnects and deadlines, workers killed; nothing may be wrong or
# left (tests/sched/soak.py).
soak: ## 32 clients for MINUTES=5, a worker killed every ten seconds
soak: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)$(PYTHON) tests/sched/soak.py --build $(BUILD) --seconds $$((60 * $(or $(MINUTES),5))) \
	  $(if $(filter command%,$(origin SEED)),--seed $(SEED))
check-soak: $(BUILD)/hlod $(BUILD)/hlod-worker ## the same for 20 s, a worker killed every three
	$(Q)$(PYTHON) tests/sched/soak.py --build $(BUILD) --seconds 20 --kill-every 3 \
	  $(if $(filter command%,$(origin SEED)),--seed $(SEED))
# A disk that flips, loses, swaps and cuts files under load (tests/sched/disk.py).
soak-disk: ## five minutes (SECS=) of a bad disk under load: no wrong answer, no lost job, each
## damage named; SEED=n
soak-disk: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)$(PYTHON) tests/sched/disk.py --build $(BUILD) \
	  --seconds $(if $(filter command%,$(origin SECS)),$(SECS),300) \
	  $(if $(filter command%,$(origin SEED)),--seed $(SEED))
check-soak-disk: $(BUILD)/hlod $(BUILD)/hlod-worker ## the same for 20 s
	$(Q)$(PYTHON) tests/sched/disk.py --build $(BUILD) --seconds 20 \
	  $(if $(filter command%,$(origin SEED)),--seed $(SEED))
# Allocations of the daemon that fail (tests/sched/memory.py). Not under sanitizers, which have an
# allocator of their own.
FAILING_MALLOC := $(BUILD)/tests/failing_malloc.so
$(FAILING_MALLOC): tests/sched/failing_malloc.c
	$(call say,link failing_malloc)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -fvisibility=default -shared -o $@ $<
.PHONY: check-memory
check-memory: ## allocations that fail at random under load for SECS=10: requests fail, the daemon
## serves on; SEED=n
check-memory: $(BUILD)/hlod $(BUILD)/hlod-worker $(FAILING_MALLOC)
	$(Q)$(PYTHON) tests/sched/memory.py --build $(BUILD) --shim $(FAILING_MALLOC) \
	  --seconds $(if $(filter command%,$(origin SECS)),$(SECS),10) \
	  $(if $(filter command%,$(origin SEED)),--seed $(SEED))
# What the daemon hears from outside, at random: HTTP, gRPC, faulty workers
# (tests/fuzz/daemon.py). SECS each, RANDOM_SEED= to repeat one.
.PHONY: fuzz-daemon
fuzz-daemon: ## hostile requests, messages, HTTP/2 frames and workers for SECS seconds each
## (RANDOM_SEED=1)
fuzz-daemon: $(BUILD)/hlod $(BUILD)/hlod-worker $(FAKE_WORKER)
	$(Q)$(PYTHON) tests/fuzz/daemon.py --build $(BUILD) --seconds $(SECS) --seed $(or $(RANDOM_SEED),1)
