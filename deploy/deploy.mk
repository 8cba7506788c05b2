# Targets that a user of the built programs wants: demo, install.
PREFIX ?= /usr/local
.PHONY: demo install
demo: all ## classify a photograph of a cat through the daemon
	$(Q)sh deploy/demo.sh $(BUILD)
install: all ## copy programs, header and licence to PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/hlod
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	install -m 644 README.md LICENSE docs/api.md proto/hlod.proto $(DESTDIR)$(PREFIX)/share/hlod
