# hlod: one non-recursive Makefile. `make help` lists the targets. Variants: CONFIG=release|debug,
# SAN=address,undefined | SAN=thread.
CONFIG ?= release
SAN    ?=
CC     ?= cc
PROTOC_C ?= protoc-c
comma  := ,
BUILD  := build/$(CONFIG)$(if $(SAN),-$(subst $(comma),-,$(SAN)))
Q      := $(if $(V),,@)
say     = $(if $(V),,@echo "  $(1)")
VENV   := build/venv
PYTHON := $(VENV)/bin/python

FOLDERS  := base proto compiler devices scheduler server client
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wwrite-strings \
  -Wcast-align -Wpointer-arith -Wswitch $(if $(WERROR),-Werror)
OPT      := $(if $(filter debug,$(CONFIG)),-O0 -g3,-O2 -g)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer \
  -DARENA_DEBUG,)
VERSION  := 0.1.0
DEFS     := -D_GNU_SOURCE -DHLOD_VERSION=\"$(VERSION)\" \
  $(if $(FAULTS)$(SAN)$(filter debug,$(CONFIG)),-DHLOD_FAULTS)
LLVM_CONFIG ?= llvm-config-19
LLVM_CFLAGS := -I$(shell $(LLVM_CONFIG) --includedir 2>/dev/null)
CFLAGS    = -std=gnu11 $(OPT) $(WARN) $(SANFLAGS) $(DEFS) -fvisibility=hidden -fPIC -I. \
  -I$(BUILD)/gen -MMD -MP $(EXTRA_CFLAGS)
LDFLAGS   = $(SANFLAGS) -Wl,-z,relro,-z,now -Wl,--as-needed $(EXTRA_LDFLAGS)

# A file named main_*.c is a program; everything else of a folder goes to its archive. New files are
# found, in folders of any depth.
ALL_SRC  := $(filter-out client/examples/%,$(shell find $(FOLDERS) -name '*.c' | LC_ALL=C sort))
MAIN_SRC := $(foreach f,$(ALL_SRC),$(if $(filter main_%,$(notdir $f)),$f))
LIB_SRC  := $(filter-out $(MAIN_SRC),$(ALL_SRC))
PROTOS   := $(wildcard proto/*.proto proto/formats/*.proto)
PROTO_C  := $(PROTOS:%.proto=$(BUILD)/gen/%.pb-c.c)
PROTO_H  := $(PROTO_C:.c=.h)
obj       = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIBS     := $(foreach d,$(FOLDERS),$(BUILD)/lib$(d).a)


PROGRAMS := $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/hlo-opt $(BUILD)/hlo-run

SYS_base      := -lcrypto -lm -lpthread
SYS_proto     := -lprotobuf-c -ljansson
# LLVM_STATIC=1 links of LLVM what is used: 40 MB instead of 190 MB with all that the shared library
# pulls in. For the container image.
LLVM_LIBS_1   := -Wl,--gc-sections -Wl,--start-group $(shell $(LLVM_CONFIG) --link-static --libs \
  native webassembly orcjit passes 2>/dev/null) -Wl,--end-group -lstdc++ -lzstd -lz
LLVM_LIBS_    := -lLLVM-19
SYS_compiler  := -L$(shell $(LLVM_CONFIG) --libdir 2>/dev/null) $(LLVM_LIBS_$(LLVM_STATIC))
SYS_devices   := -ldnnl -luv -lseccomp -lgomp
SYS_scheduler := -luv -lsqlite3 -lcurl -lnats -lssl
SYS_server    := -lmicrohttpd -lgnutls -lgrpc -lgpr -ljansson -lz
SYS_client    := -lgrpc -lgpr -lcurl -ljansson -lyaml -lpng -ljpeg -lssl -lz

L_base      := base
L_proto     := proto base
L_compiler  := compiler proto base
L_devices   := devices compiler proto base
L_scheduler := scheduler proto base
L_server    := server scheduler proto base
L_client    := client proto base
link = $(foreach l,$(L_$(1)),$(BUILD)/lib$(l).a) $(foreach l,$(L_$(1)),$(SYS_$(l)))

.PHONY: all debug release check check-quick help clean
all: $(PROGRAMS) ## build everything

define folder_rules
$(BUILD)/lib$(1).a: $(call obj,$(filter $(1)/%,$(LIB_SRC))) \
  $(if $(filter proto,$(1)),$(PROTO_C:.c=.o)) \
  $(if $(filter compiler,$(1)),$(BUILD)/gen/compiler/web_sources.o) \
  $(if $(filter server,$(1)),$(BUILD)/gen/server/api_descriptors.o $(BUILD)/gen/server/dashboard.o \
    $(BUILD)/gen/server/worker_page.o)
	$$(call say,ar $$(@F))
	$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach d,$(FOLDERS),$(eval $(call folder_rules,$(d))))

# What OpenBLAS, which the CPU device loads, is to take from the program (cpu_lapack_memory.c).
EXPORT_devices := $(foreach f,blas_memory_alloc blas_memory_free,-Wl,--export-dynamic-symbol=$(f))
define program_rule # name main-source layer
$(BUILD)/$(1): $(call obj,$(2)) $(foreach l,$(L_$(3)),$(BUILD)/lib$(l).a)
	$$(call say,link $(1))
	$(Q)$(CC) $(LDFLAGS) $$(EXPORT_$(3)) -o $$@ $(call obj,$(2)) $$(call link,$(3))
endef
$(eval $(call program_rule,hlod,server/main_hlod.c,server))
$(eval $(call program_rule,hlod-worker,devices/main_worker.c,devices))
$(eval $(call program_rule,hlo-run,devices/main_run.c,devices))
$(eval $(call program_rule,hlo-opt,compiler/main_opt.c,compiler))
$(eval $(call program_rule,hlo,client/main_hlo.c,client))

# libhlod: the client's public half with what it needs of proto and base, as one object that exports
# hlod_* and nothing else.
LIBHLOD      := $(BUILD)/libhlod.a $(BUILD)/libhlod.so
LIBHLOD_OBJ  := $(call obj,$(wildcard client/lib/hlod*.c) client/lib/wire.c client/lib/http.c \
  client/lib/grpc_client.c client/lib/grpc_channel.c client/lib/onnx_external.c)
LIBHLOD_LIBS := -lgrpc -lgpr -lcurl -lprotobuf-c -ljansson -lcrypto -lm -lpthread
all: $(LIBHLOD)
$(BUILD)/libhlod.o: $(LIBHLOD_OBJ) $(BUILD)/libproto.a $(BUILD)/libbase.a
	$(Q)ld -r -o $@ $^ && objcopy --localize-hidden $@
$(BUILD)/libhlod.a: $(BUILD)/libhlod.o
	$(call say,ar libhlod.a)
	$(Q)rm -f $@ && ar rcs $@ $<
$(BUILD)/libhlod.so: $(BUILD)/libhlod.o
	$(call say,link libhlod.so)
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,libhlod.so.0 $(if $(SAN),,-Wl,-z,defs) \
	  -o $@ $< $(LIBHLOD_LIBS)

# What gRPC reflection tells: protoc's description of the services, as a C array of libserver.
API_PROTOS := proto/hlod.proto $(filter-out proto/formats/descriptor.proto,$(wildcard \
  proto/formats/inference.proto proto/formats/health.proto proto/formats/reflection_*.proto))
API_DESC   := $(BUILD)/gen/server/api_descriptors
$(API_DESC).c: $(API_PROTOS) Makefile
	$(call say,protoc api descriptors)
	$(Q)mkdir -p $(@D) && protoc -I. --include_imports --descriptor_set_out=$(@:.c=.bin) $(API_PROTOS)
	$(Q)(echo 'extern const unsigned char api_descriptors[];'; \
	  echo 'extern const unsigned api_descriptors_bytes;'; \
	  echo 'const unsigned char api_descriptors[] = {'; od -An -v -tu1 $(@:.c=.bin) | \
	  sed 's/  */,/g; s/^,//; s/$$/,/'; \
	  echo '}; const unsigned api_descriptors_bytes = sizeof api_descriptors;') > $@

# What an exported model runs with (compiler/web): its files as C arrays of libcompiler.
WEB_RUNTIME := $(filter-out %.json,$(wildcard compiler/web/runtime/*))
$(BUILD)/gen/compiler/web_sources.c: $(WEB_RUNTIME) compiler/web/embed.sh
	$(call say,embed web runtime)
	$(Q)mkdir -p $(@D) && sh compiler/web/embed.sh $(WEB_RUNTIME) > $@.tmp && mv $@.tmp $@

# The page at /, with the runtime of exported models: files as C arrays of libserver.
DASHBOARD := $(addprefix server/dashboard/,index.html dashboard.css graph.js here.js try.js \
  dashboard.js) $(filter-out %/page.js,$(filter %.js,$(WEB_RUNTIME)))
$(BUILD)/gen/server/dashboard.c: $(DASHBOARD) server/dashboard/embed.sh
	$(call say,embed dashboard)
	$(Q)mkdir -p $(@D) && sh server/dashboard/embed.sh $(DASHBOARD) > $@.tmp && mv $@.tmp $@

# The page at /worker; it has that runtime too.
WORKER_PAGE := $(addprefix server/workers/,worker.html worker.css page.js link.js inside.js \
  tab.js)
$(BUILD)/gen/server/worker_page.c: $(WORKER_PAGE) server/workers/embed.sh
	$(call say,embed worker page)
	$(Q)mkdir -p $(@D) && sh server/workers/embed.sh $(WORKER_PAGE) > $@.tmp && mv $@.tmp $@

# headers found by wildcard rules must not be removed as intermediates
.SECONDARY: $(PROTO_C) $(PROTO_H)
$(BUILD)/gen/%.pb-c.c $(BUILD)/gen/%.pb-c.h: %.proto
	$(call say,protoc-c $<)
	$(Q)mkdir -p $(@D) && $(PROTOC_C) --c_out=$(BUILD)/gen -I. $<

$(BUILD)/compiler/codegen/%.o: EXTRA_CFLAGS += $(LLVM_CFLAGS)
# Loops of a few instructions take up to twice as long where they cross a line of 64 bytes, and some
# a fifth longer where they begin in its second half.
$(BUILD)/devices/cpu/%.o: EXTRA_CFLAGS += -falign-loops=64
$(BUILD)/%.o: %.c | $(PROTO_H)
	$(call say,cc $<)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -c -o $@ $<
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c | $(PROTO_H)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) -w -c -o $@ $<

# Unit tests: tests/unit/<folder>/.../<module>_test.c links with that folder's layer and cmocka.
UNIT_SRC := $(shell find tests/unit -name '*_test.c' | LC_ALL=C sort)
UNIT     := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/unit/%)
define unit_rule
$(BUILD)/unit/$(1)/%: tests/unit/$(1)/%.c $(foreach l,$(L_$(1)),$(BUILD)/lib$(l).a)
	$$(call say,test $$*)
	$(Q)mkdir -p $$(@D) && $(CC) $(CFLAGS) $(LDFLAGS) -o $$@ $$< $$(call link,$(1)) -lcmocka
endef
$(foreach d,$(FOLDERS),$(eval $(call unit_rule,$(d))))
.PHONY: units
units: $(UNIT) ## build the unit tests

# Tests want more than a build: fetched the first time that a goal of theirs is named, and again
# when deploy/setup.sh changed. SETUP=no leaves that to you.
ifneq ($(filter check% units conform% fuzz% bench% soak% attack% lint layers docs% \
  demo-audio,$(MAKECMDGOALS)),)
ifneq ($(SETUP),no)
ifneq ($(file <build/.setup-check),$(shell cksum <deploy/setup.sh))
$(shell sh deploy/setup.sh check >&2)
export SETUP := no
endif
endif
endif

# Each folder may bring its own targets (tests/*.mk: check pieces, fuzz, bench, demo).
include $(wildcard tests/*.mk deploy/*.mk)

clean: ## remove build outputs of this configuration
	rm -rf $(BUILD)
help: ## this list
	@awk '/^## / && text {text = text substr($$0, 3); next} text {print text; text = ""} \
	  /^[a-z%-]+:.*##/ {text = $$0; sub(/:.*##/, "\t", text)} END {if (text) print text}' \
	  $(MAKEFILE_LIST) | expand -t 20

-include $(patsubst %.o,%.d,$(call obj,$(ALL_SRC)))
