.PHONY: bench
bench: all ## latency beside ONNX Runtime, OpenVINO and JAX (sh deploy/setup.sh bench first);
## PRECISION=fast
	$(Q)$(PYTHON) tests/bench/bench.py $(BUILD) $(if $(PRECISION),--precision $(PRECISION))
.PHONY: bench-conv
bench-conv: ## convolutions and poolings by family beside ONNX Runtime, one thread; fails where one
## is five times slower (ARGS=part of a name)
bench-conv: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/conform/convs.py $(BUILD) --bench $(ARGS)
.PHONY: bench-half
bench-half: ## models in f16 and bf16 beside the same in f32 and ONNX Runtime's, one thread
## (BENCH_HALF='resnet18 --strict 1.1')
bench-half: all
	$(Q)$(PYTHON) tests/bench/half.py $(BUILD) $(BENCH_HALF)
.PHONY: bench-transformers
bench-transformers: ## encoders and decoders of many makes, f32 and 8-bit, beside ONNX Runtime:
## values and latency (ARGS=part of a name, --threads N)
bench-transformers: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/bench/transformers.py $(BUILD) $(ARGS)
.PHONY: bench-rnn
bench-rnn: ## recurrent layers and tree ensembles beside ONNX Runtime (ARGS="--threads 2", part of a
## name)
bench-rnn: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/bench/recurrent.py $(BUILD) $(ARGS)
.PHONY: bench-programs
bench-programs: ## JAX programs that are not networks (scans, gradients, sorts, random, FFT, ...)
## beside XLA:CPU: values and latency (ARGS="part of a name", --threads N)
bench-programs: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/bench/programs.py $(BUILD) $(ARGS)
.PHONY: bench-train
bench-train: ## training steps of ONNX models beside JAX and optax on XLA:CPU (ARGS="ResNet
## --rounds 5", or "--remat segments": beside the same program without it)
bench-train: $(BUILD)/hlo-run $(BUILD)/hlo-opt
	$(Q)$(PYTHON) tests/bench/training.py $(BUILD) $(ARGS)
.PHONY: bench-kernels
bench-kernels: ## contractions one by one: our kernels, the default list and XLA:CPU, share of the
## measured peak; fails where values differ (ARGS="part of a name", --threads N, --strict: goals)
bench-kernels: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/bench/kernels.py $(BUILD) $(ARGS)
.PHONY: bench-memory
bench-memory: ## peak memory of a process that loads and runs a model, beside ONNX Runtime and
## OpenVINO (sh deploy/setup.sh bench first; ARGS="vgg19@100 --strict")
bench-memory: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/bench/memory.py $(BUILD) $(ARGS)
.PHONY: bench-compile
bench-compile: ## compile time and instruction counts beside JAX's on the same graph; fails where
## JAX is faster, or where reading a large file of jax.export copies its weights
bench-compile: all
	$(Q)$(PYTHON) tests/bench/compile.py $(BUILD); a=$$?; $(PYTHON) tests/bench/large.py $(BUILD) \
	  && exit $$a
.PHONY: bench-large
bench-large: ## compile time of large generated programs of one kind each, at growing sizes
## (ARGS="--sizes 1000,64000 --xla loops")
bench-large: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/fuzz-hlo/large_programs.py $(BUILD) $(ARGS)
.PHONY: bench-pool
bench-pool: ## what a parallel region costs, idle and beside two competing processes
## (docs/decisions/0002)
	$(Q)mkdir -p $(BUILD) && $(CC) $(CFLAGS) -fopenmp -o $(BUILD)/pool_bench tests/bench/pool_bench.c
	$(Q)for spin in 300000 1000; do for load in 0 2; do echo "GOMP_SPINCOUNT=$$spin"; \
	  GOMP_SPINCOUNT=$$spin $(BUILD)/pool_bench --load $$load --runs 100; done; done
.PHONY: bench-fair
bench-fair: ## a tenant's latency alone and beside one that floods; fails where p99 grows more than
## threefold
bench-fair: $(BUILD)/hlod $(BUILD)/hlod-worker
	$(Q)$(PYTHON) tests/bench/fair.py $(BUILD)
BARE := $(BUILD)/bench/bare_http $(BUILD)/bench/bare_grpc
$(BUILD)/bench/bare_http: tests/bench/bare_http.c
	$(Q)mkdir -p $(@D) && $(CC) -O2 $(WARN) -o $@ $< -lmicrohttpd
$(BUILD)/bench/bare_grpc: tests/bench/bare_grpc.c
	$(Q)mkdir -p $(@D) && $(CC) -O2 $(WARN) -o $@ $< -lgrpc -lgpr
.PHONY: bench-rest
bench-rest: ## the first run after 50 ms of rest beside ONNX Runtime (sh deploy/setup.sh bench
## first; ARGS="resnet18 --first --busy 1 --before DIR")
bench-rest: $(BUILD)/hlo-run
	$(Q)$(PYTHON) tests/bench/rest.py $(BUILD) $(ARGS)
.PHONY: bench-serve
bench-serve: ## serving: requests/s and latency beside MLServer and bare servers, tensors in MB/s,
## memory over 200,000 requests (BENCH_SERVE= for its options)
bench-serve: all $(BARE)
	$(Q)$(PYTHON) tests/bench/serve.py --build $(BUILD) $(BENCH_SERVE)
.PHONY: bench-traces
bench-traces: ## what traces at full sampling cost, over gRPC and HTTP, and a collector that hangs
## (ARGS="--rounds 5 --strict")
bench-traces: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BARE)
	$(Q)$(PYTHON) tests/bench/traces.py $(BUILD) $(ARGS)
.PHONY: bench-cluster
bench-cluster: ## one, two and three nodes under load, a forwarded run, 1,000 connections, what a
## message between nodes costs (ARGS="--rounds 3 --strict")
bench-cluster: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo
	$(Q)$(PYTHON) tests/bench/cluster.py $(BUILD) $(ARGS)
.PHONY: bench-batching
bench-batching: ## requests/s and latencies with and without dynamic batching
bench-batching: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo
	$(Q)$(PYTHON) tests/bench/batching.py $(BUILD)
.PHONY: bench-throughput
bench-throughput: ## requests/s over HTTP with 1 to 32 in flight beside ONNX Runtime and OpenVINO
## (sh deploy/setup.sh bench first; ARGS="mlp --device 'cpu*2 OMP_NUM_THREADS=1'")
bench-throughput: all
	$(Q)$(PYTHON) tests/bench/throughput.py $(BUILD) $(ARGS)
.PHONY: bench-targets
bench-targets: ## networks on every target, in Chromium beside onnxruntime-web: means of 100 runs,
## bytes sent (sh deploy/setup.sh targets first; ARGS="mobilenet_v2 --only wasm --strict")
bench-targets: $(BUILD)/hlo-run $(BUILD)/hlo $(BUILD)/hlo-opt
	$(Q)$(PYTHON) tests/bench/targets.py $(BUILD) $(ARGS)
