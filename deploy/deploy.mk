# Targets that a user of the built programs wants: demo, install.
PREFIX ?= /usr/local
.PHONY: demo demo-audio install install-client
demo: all ## classify a photograph of a cat through the daemon
	$(Q)sh deploy/demo.sh $(BUILD)
demo-audio: all ## find the speech in a recording, frame by frame, beside ONNX Runtime
	$(Q)build/venv/bin/python tests/models/vad.py $(BUILD)
install: all install-client ## copy programs, library, headers and licence to PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/hlod
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -m 644 README.md LICENSE docs/api.md proto/hlod.proto $(DESTDIR)$(PREFIX)/share/hlod
install-client: $(LIBHLOD) ## copy libhlod and its headers to PREFIX
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 644 client/hlod.h client/hlod_admin.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(BUILD)/libhlod.a $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(BUILD)/libhlod.so $(DESTDIR)$(PREFIX)/lib/libhlod.so.$(VERSION)
	ln -sf libhlod.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libhlod.so.0
	ln -sf libhlod.so.0 $(DESTDIR)$(PREFIX)/lib/libhlod.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' deploy/hlod.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/hlod.pc
