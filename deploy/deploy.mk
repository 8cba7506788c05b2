# Targets that a user of the built programs wants: demo, install, packages.
PREFIX ?= /usr/local
SHARE   = $(DESTDIR)$(PREFIX)/share
.PHONY: demo demo-audio install install-client
demo: ## build what is needed, on all processors, and classify a photograph of a cat through the
## daemon
	$(Q)begin=$$(date +%s) && $(MAKE) $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) \
	  $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo && built=$$(date +%s) && \
	  sh deploy/demo.sh $(BUILD) && echo && \
	  echo "demo: $$(($$(date +%s) - begin)) s, of which building $$((built - begin)) s"
demo-train: ## train a network on handwritten digits through the daemon, then serve it
demo-train: $(BUILD)/hlod $(BUILD)/hlod-worker $(BUILD)/hlo $(BUILD)/hlo-opt
	$(Q)sh deploy/demo_train.sh $(BUILD)
demo-audio: all ## find the speech in a recording, frame by frame, beside ONNX Runtime
	$(Q)build/venv/bin/python tests/models/vad.py $(BUILD)
INSTALLED_DOCS := api buffers ci client config errors jobs oip operations security tpu
# The programs print their own manual pages, completions and sample file: from the tables of options
# and commands.
install: ## copy programs, library, manual pages, completion, unit and documents to PREFIX (DESTDIR
## in front)
install: all install-client
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/systemd/system \
	  $(addprefix $(SHARE)/,hlod doc/hlod man/man1 man/man5 man/man8) \
	  $(addprefix $(SHARE)/,bash-completion/completions zsh/site-functions)
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -m 644 proto/hlod.proto $(SHARE)/hlod
	install -m 644 README.md LICENSE CHANGELOG.md $(INSTALLED_DOCS:%=docs/%.md) $(SHARE)/doc/hlod
	$(BUILD)/hlod --print-docs=sample > $(SHARE)/hlod/hlod.toml
	$(BUILD)/hlod --print-docs=man8 > $(SHARE)/man/man8/hlod.8
	$(BUILD)/hlod --print-docs=man5 > $(SHARE)/man/man5/hlod.toml.5
	$(BUILD)/hlo --print-docs=man > $(SHARE)/man/man1/hlo.1
	for p in hlod hlo; do $(BUILD)/$$p --print-docs=bash > $(SHARE)/bash-completion/completions/$$p \
	  && $(BUILD)/$$p --print-docs=zsh > $(SHARE)/zsh/site-functions/_$$p; done
	sed -e 's|@PREFIX@|$(PREFIX)|' deploy/hlod.service.in \
	  > $(DESTDIR)$(PREFIX)/lib/systemd/system/hlod.service
	chmod 644 $(SHARE)/hlod/hlod.toml $(SHARE)/man/man*/hlo* \
	  $(SHARE)/bash-completion/completions/hlo* $(SHARE)/zsh/site-functions/_hlo* \
	  $(DESTDIR)$(PREFIX)/lib/systemd/system/hlod.service
install-client: $(LIBHLOD) ## copy libhlod and its headers to PREFIX
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 644 client/hlod.h client/hlod_admin.h client/hlod_async.h client/hlod_buffers.h \
	  client/hlod_events.h client/hlod_jobs.h client/hlod_train.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(BUILD)/libhlod.a $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(BUILD)/libhlod.so $(DESTDIR)$(PREFIX)/lib/libhlod.so.$(VERSION)
	ln -sf libhlod.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libhlod.so.0
	ln -sf libhlod.so.0 $(DESTDIR)$(PREFIX)/lib/libhlod.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' deploy/hlod.pc.in \
	  > $(DESTDIR)$(PREFIX)/lib/pkgconfig/hlod.pc
# Installed, documented, told of by its unit: quick, in `make check`.
.PHONY: check-deploy
check-deploy: ## the installed tree: programs, manual pages, completion, sample file, unit, service
## notification
check-deploy: all
	$(Q)python3 tests/deploy/deploy.py $(BUILD) $(VERSION) "$(MAKE) CONFIG=$(CONFIG) SAN=$(SAN)"
	$(Q)build/venv/bin/python tests/deploy/monitoring.py $(BUILD)
# The container image, by whatever builds images here; make check-image builds it on a base from
# debootstrap, since no registry of images may be in reach.
IMAGE_BASE ?= debian:bookworm-slim
.PHONY: image check-image
image: ## build the container image (IMAGE_BASE=, any Debian 12)
	buildah bud --build-arg BASE=$(IMAGE_BASE) -t hlod:$(VERSION) .
check-image: ## build the image on a debootstrap base with chroot isolation, run a model in it, hold
## it to 250 MB (sh deploy/setup.sh package first)
	$(Q)sh tests/deploy/image.sh $(VERSION)
# Debian packages: hlod, libhlod0, libhlod-dev.
.PHONY: deb check-deb
deb: all ## Debian packages in build/deb (sh deploy/setup.sh package first)
	$(Q)sh deploy/deb.sh $(VERSION) build/deb
check-deb: deb ## the packages by lintian, unpacked, and the daemon out of them
	$(Q)sh tests/deploy/deb.sh $(VERSION) build/deb
# Programs with all the libraries that they need, the C library among them, for any x86-64 Linux:
# the tree of `make dist` and `make wheel`. LLVM statically; see deploy/bundle/start.c.
BUNDLE    := $(BUILD)/bundle
BUNDLE_LD := -Wl,-e,hlod_start,--disable-new-dtags \
  -Wl,-rpath,'$$ORIGIN/../lib/hlod/c:$$ORIGIN/../lib/hlod'
$(BUNDLE)/start.o: deploy/bundle/start.c
	$(Q)mkdir -p $(@D) && $(CC) -std=gnu11 -O1 $(WARN) -fPIE -ffreestanding -fno-stack-protector \
	  -fno-tree-loop-distribute-patterns -c -o $@ $<
define bundle_rule # name main-source layer
$(BUNDLE)/linked/$(1): $(BUILD)/$(1) $(BUNDLE)/start.o
	$$(call say,link $(1) for any Linux)
	$(Q)mkdir -p $$(@D) && $(CC) -pie $(LDFLAGS) $$(EXPORT_$(3)) $$(BUNDLE_LD) -o $$@ \
	  $(BUNDLE)/start.o \
	  $(call obj,$(2)) $$(subst -lLLVM-19,$$(LLVM_LIBS_1),$$(call link,$(3)))
endef
$(eval $(call bundle_rule,hlod,server/main_hlod.c,server))
$(eval $(call bundle_rule,hlod-worker,devices/main_worker.c,devices))
$(eval $(call bundle_rule,hlo,client/main_hlo.c,client))
# Up to glibc 2.33 threads, dlopen and the resolver are libraries of their own: whatever is loaded
# with libhlod_older.so.0 has them.
$(BUNDLE)/libhlod_older.so.0: deploy/bundle/older.c
	$(Q)mkdir -p $(@D) && $(CC) -std=gnu11 -O2 $(WARN) $(DEFS) -fvisibility=hidden -fPIC \
	  -shared $(LDFLAGS) -Wl,-soname,$(@F),--disable-new-dtags,-rpath,'$$ORIGIN',-z,defs -o $@ $< \
	  $(shell $(CC) -print-file-name=libstdc++.so) -Wl,--no-as-needed \
	  $(addprefix -l:,libpthread.so.0 libdl.so.2 libresolv.so.2)
# $$ORIGIN/hlod: loaded by the link in the tarball's lib.
$(BUNDLE)/libhlod.so: $(BUILD)/libhlod.o $(BUNDLE)/libhlod_older.so.0
	$(Q)$(CC) -shared $(LDFLAGS) \
	  -Wl,-soname,libhlod.so.0,--disable-new-dtags,-rpath,'$$ORIGIN:$$ORIGIN/hlod',-z,defs \
	  -o $@ $< $(LIBHLOD_LIBS) -Wl,--no-as-needed $(word 2,$^)
$(BUNDLE)/.done: $(addprefix $(BUNDLE)/linked/,hlod hlod-worker hlo) $(BUNDLE)/libhlod.so \
  $(addprefix deploy/bundle/,bundle.sh nointerp.sh older.py)
	$(Q)rm -rf $(BUNDLE)/tree && mkdir -p $(BUNDLE)/tree && cp -r $(BUNDLE)/linked $(BUNDLE)/tree/bin \
	  && sh deploy/bundle/bundle.sh $(BUNDLE)/tree $(BUNDLE)/libhlod.so && touch $@
.PHONY: bundle
bundle: ## programs and their libraries in build/release/bundle/tree, to run on any x86-64 Linux
bundle: $(BUNDLE)/.done
# What others install: the tree with documents, manual pages and headers as a tarball; wheels of
# client/python, one of them with the tree. In build/dist.
DIST  := build/dist/hlod-$(VERSION)-linux-x86_64.tar.gz
WHEEL := build/dist/hlod-$(VERSION)-py3-none-manylinux_2_28_x86_64.whl
.PHONY: dist wheel check-dist check-wheel check-bundle
dist: ## a tarball that runs on any x86-64 Linux: build/dist/hlod-VERSION-linux-x86_64.tar.gz
dist: $(BUNDLE)/.done all
	$(Q)sh deploy/bundle/dist.sh $(BUNDLE) $(VERSION) $(DIST) "$(MAKE) -s CONFIG=$(CONFIG)"
wheel: ## Python wheels: build/dist/hlod-VERSION-*.whl, with the programs for any x86-64 Linux, and
## of the client alone
wheel: $(BUNDLE)/.done
	$(Q)python3 deploy/wheel.py --version $(VERSION) --out build/dist --tree $(BUNDLE)/tree
check-bundle: ## the programs of dist and wheel in a root that has nothing else; quick
check-bundle: $(BUNDLE)/.done
	$(Q)python3 tests/deploy/ways.py --empty $(BUNDLE)/tree
check-dist: ## the tarball in fresh Debians and Ubuntus and in a root without a C library (root; sh
## deploy/setup.sh package first)
check-dist: dist
	$(Q)python3 tests/deploy/ways.py --empty $(BUNDLE)/tree --dist $(DIST)
check-wheel: ## the wheel in fresh Debians and Ubuntus without build tools: pip install, the
## README's five minutes (root; sh deploy/setup.sh package first)
check-wheel: wheel
	$(Q)python3 tests/deploy/ways.py --wheel $(WHEEL)
