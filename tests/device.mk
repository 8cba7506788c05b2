# A kit for a machine with an accelerator and no network (tests/device/README.md): programs with
# LLVM linked statically, their libraries, the tests. hlo-run, hlod-worker and device_test are one
# file.
KIT      := $(BUILD)/kit
KIT_MAIN := run:devices/main_run worker:devices/main_worker opt:compiler/main_opt \
  contract:tests/conform/device_test
define kit_main # name source
$(KIT)/$(1).o: $(2).c
	$(Q)mkdir -p $$(@D) && $(CC) $(CFLAGS) -Wno-missing-prototypes -Dmain=$(1)_main -c -o $$@ $$<
endef
$(foreach m,$(KIT_MAIN),$(eval $(call kit_main,$(firstword $(subst :, ,$m)),$(lastword \
  $(subst :, ,$m)))))
KIT_LD := $(LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib'
$(KIT)/tree/bin/hlod-worker: $(KIT)/run.o $(KIT)/worker.o $(KIT)/opt.o $(KIT)/contract.o \
  tests/device/kit.c \
  $(wildcard tests/conform/device_buffers.c tests/conform/device_pjrt.c) \
  $(foreach l,$(L_devices),$(BUILD)/lib$(l).a)
	$(call say,link the kit's programs)
	$(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(KIT_LD) $(EXPORT_devices) -o $@ \
	  $(filter %.o %.c,$^) $(subst -lLLVM-19,$(LLVM_LIBS_1),$(call link,devices)) -lcmocka
$(KIT)/tree/bin/hlod: $(BUILD)/hlod
	$(Q)mkdir -p $(@D) && $(CC) $(KIT_LD) -o $@ $(call obj,server/main_hlod.c) $(call link,server)
$(KIT)/tree/bin/hlo: $(BUILD)/hlo
	$(Q)mkdir -p $(@D) && $(CC) $(KIT_LD) -o $@ $(call obj,client/main_hlo.c) $(call link,client)
.PHONY: gpu-kit
gpu-kit: ## build/gpu-kit.tar.xz, at most 64 MiB: tests and benches for a machine with a GPU and no
## network (tests/device/README.md)
gpu-kit: $(addprefix $(KIT)/tree/bin/,hlod-worker hlod hlo)
	$(Q)sh tests/device/gpu.sh pack $(KIT)/tree build/gpu-kit.tar.xz
