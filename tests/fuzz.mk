# make fuzz-hlo_text, fuzz-hlo_proto, fuzz-onnx, fuzz-stablehlo, fuzz-stablehlo_bytecode,
# fuzz-jax_export, fuzz-frame, fuzz-request, fuzz-safetensors, fuzz-ws: libFuzzer with
# address and undefined sanitizers for SECS seconds, from the corpus in tests/fuzz/corpus.
SECS     ?= 60
FUZZ_DIR := build/fuzz
FUZZ_SRC := $(filter base/% compiler/% proto/%,$(LIB_SRC))
FUZZ_OBJ := $(FUZZ_SRC:%.c=$(FUZZ_DIR)/%.o) $(PROTOS:%.proto=$(FUZZ_DIR)/gen/%.o) \
  $(FUZZ_DIR)/gen/compiler/web_sources.o
.SECONDARY: $(FUZZ_OBJ)
# glibc has CMPLX for gcc only
FUZZ_FLAGS := '-DCMPLX(x,y)=__builtin_complex((double)(x),(double)(y))' -std=gnu11 -g -O1 -w \
  -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined \
  -fno-sanitize=pointer-overflow -DARENA_DEBUG -DHLOD_FAULTS $(filter -D%,$(DEFS)) -I. \
  -I$(BUILD)/gen $(LLVM_CFLAGS)
$(FUZZ_DIR)/gen/%.o: $(BUILD)/gen/%.pb-c.c
	$(Q)mkdir -p $(@D) && clang-19 $(FUZZ_FLAGS) -MMD -MP -c -o $@ $<
$(FUZZ_DIR)/gen/%.o: $(BUILD)/gen/%.c
	$(Q)mkdir -p $(@D) && clang-19 $(FUZZ_FLAGS) -MMD -MP -c -o $@ $<
$(FUZZ_DIR)/%.o: %.c | $(PROTO_H)
	$(Q)mkdir -p $(@D) && clang-19 $(FUZZ_FLAGS) -MMD -MP -c -o $@ $<
fuzz-%: tests/fuzz/fuzz_%.c $(FUZZ_OBJ) ## fuzz one reader for SECS seconds
	$(Q)mkdir -p $(FUZZ_DIR)/found-$* tests/fuzz/corpus/$*
	$(Q)clang-19 $(FUZZ_FLAGS) -fsanitize=fuzzer -o $(FUZZ_DIR)/fuzz-$* $< $(FUZZ_OBJ) \
	  $(SYS_compiler) $(SYS_proto) $(SYS_base)
	$(Q)$(FUZZ_DIR)/fuzz-$* -max_total_time=$(SECS) -max_len=65536 -rss_limit_mb=4096 -timeout=20 \
	  -detect_leaks=0 -artifact_prefix=$(FUZZ_DIR)/ $(FUZZ_DIR)/found-$* tests/fuzz/corpus/$*
# Without a fuzzer: every target over its corpus, in this build (SAN=address,undefined makes it
# strict).
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/fuzz/%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c \
  $(foreach l,$(L_compiler),$(BUILD)/lib$(l).a)
	$(call say,replay $*)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< tests/fuzz/replay.c $(call link,compiler)
.PHONY: check-fuzz
check-fuzz: $(FUZZ_TARGETS:%=$(BUILD)/fuzz/%) ## replay the fuzz corpora
	$(Q)for t in $(FUZZ_TARGETS); do $(BUILD)/fuzz/$$t tests/fuzz/corpus/$$t/* >$(BUILD)/fuzz/log \
	  2>&1 && echo "PASS fuzz corpus $$t" || { tail -n 20 $(BUILD)/fuzz/log; \
	  echo "FAIL fuzz corpus $$t"; }; done
-include $(FUZZ_OBJ:.o=.d)
