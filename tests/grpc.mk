# gRPC by real clients.
.PHONY: check-grpc
check-grpc: $(BUILD)/hlod $(BUILD)/tests/fake_worker ## gRPC by python grpcio (and grpcurl where it is installed) over the daemon
	$(Q)build/venv/bin/python tests/grpc/grpc_test.py --build $(BUILD) --worker $(BUILD)/tests/fake_worker
