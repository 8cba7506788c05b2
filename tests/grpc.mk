# gRPC by real clients.
.PHONY: check-grpc check-secure
check-secure: ## tokens, TLS and client certificates by curl, hlo, grpcio and tritonclient
check-secure: $(BUILD)/hlod $(BUILD)/hlo $(BUILD)/hlod-worker $(BUILD)/tests/fake_worker
	$(Q)build/venv/bin/python tests/grpc/secure_test.py --build $(BUILD) \
	  --worker $(BUILD)/tests/fake_worker
check-grpc: ## gRPC by python grpcio, tritonclient, grpcurl and ghz over the daemon; HTTP by wrk
check-grpc: $(BUILD)/hlod $(BUILD)/hlo $(BUILD)/hlod-worker $(BUILD)/tests/fake_worker
	$(Q)build/venv/bin/python tests/grpc/grpc_test.py --build $(BUILD) \
	  --worker $(BUILD)/tests/fake_worker
	$(Q)build/venv/bin/python tests/grpc/jobs_test.py --build $(BUILD) \
	  --worker $(BUILD)/tests/fake_worker
	$(Q)build/venv/bin/python tests/grpc/buffers_test.py --build $(BUILD) --worker $(BUILD)/hlod-worker
	$(Q)build/venv/bin/python tests/grpc/triton_test.py --build $(BUILD) \
	  --worker $(BUILD)/tests/fake_worker
	$(Q)python3 tests/grpc/real_clients.py --hlod $(BUILD)/hlod --worker $(BUILD)/hlod-worker
# libgrpc is not instrumented: what its threads do among themselves is not ours to judge.
ifeq ($(SAN),thread)
export TSAN_OPTIONS ?= ignore_noninstrumented_modules=1
endif
