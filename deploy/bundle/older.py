# SPDX-License-Identifier: Apache-2.0
"""Makes libhlod.so.0 and the libraries it loads usable from glibc 2.27 and GCC 7's libstdc++ on,
though they were linked with later ones: older.py DIR, DIR being lib/hlod of the bundle.

A reference to a symbol of a later version (pthread_create@GLIBC_2.34) loses its version in place:
the loader then takes the definition that the process's own C library has, under whichever version.
The version stays in the file's list, marked weak, so a C library without it is not refused. That is
right only if old and new definition are one: a reference is taken only if
 - the C library here has the same code under a version that is old enough (libpthread and libdl
   were merged into libc without a change), or
 - the two differ in nothing that matters to callers (ALIKE), or
 - older.c defines it.
Anything else is refused by name, and so is the bundle. Prints the oldest glibc that will do."""
import os, struct, sys

FLOOR = {"GLIBC_": (2, 27), "GLIBCXX_": (3, 4, 24), "CXXABI_": (1, 3, 11), "GCC_": (7,)}
# Where the code differs, what a caller sees does not.
ALIKE = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "pow"),
                    "since 2.29 errors set errno without SVID's matherr(), which nothing here has"),
    "pthread_kill": "since 2.34 a thread that has ended gives 0, before ESRCH",}
# Of libresolv until 2.34. What is linked here says that libc has them, and an older loader takes
# that at its word.
MOVED = {"__dn_expand", "__res_nsearch", "__res_query"}
WEAK, HIDDEN, GLOBAL = 2, 0x8000, 1
DT_NEEDED = 1


class Library:
    """What of an ELF file for x86-64 concerns versions; raw stays as it is in the file."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.raw = bytearray(f.read())
        at, = struct.unpack_from("<Q", self.raw, 40)
        size, count, names = struct.unpack_from("<HHH", self.raw, 58)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self.raw, at + k * size) for k in range(count)]
        self.section = {self.text(headers[names][4] + h[0]): (h[4], h[5], h[7]) for h in headers}
        self.strings = self.section[".dynstr"][0]

    def text(self, at):
        return self.raw[at:self.raw.index(0, at)].decode()

    def needed(self):
        at, bytes, _ = self.section[".dynamic"]
        entries = (struct.unpack_from("<QQ", self.raw, at + k) for k in range(0, bytes, 16))
        return [self.text(self.strings + value) for tag, value in entries if tag == DT_NEEDED]

    def symbols(self):
        """(name, section index, value, place of its version index), undefined ones included."""
        at, bytes, _ = self.section[".dynsym"]
        versions = self.section.get(".gnu.version", (0, 0, 0))[0]
        for k in range(1, bytes // 24):
            name, _, _, index, value, _ = struct.unpack_from("<IBBHQQ", self.raw, at + 24 * k)
            yield self.text(self.strings + name), index, value, versions and versions + 2 * k

    def asked(self):
        """Version index -> (name, place of its flags), of .gnu.version_r."""
        at, _, count = self.section.get(".gnu.version_r", (0, 0, 0))
        out = {}
        for _ in range(count):
            _, n, _, first, following = struct.unpack_from("<HHIII", self.raw, at)
            aux = at + first
            for _ in range(n):
                _, _, index, name, step = struct.unpack_from("<IHHII", self.raw, aux)
                out[index] = (self.text(self.strings + name), aux + 4)
                aux += step
            at += following
        return out

    def defined(self):
        """Symbol -> [(version, address)], of .gnu.version_d."""
        at, _, count = self.section.get(".gnu.version_d", (0, 0, 0))
        versions = {}
        for _ in range(count):
            _, _, index, _, _, aux, following = struct.unpack_from("<HHHHIII", self.raw, at)
            versions[index] = self.text(
                self.strings + struct.unpack_from("<I", self.raw, at + aux)[0])
            at += following
        out = {}
        for name, index, value, place in self.symbols():
            if index:
                version = (struct.unpack_from("<H", self.raw, place)[0] & ~HIDDEN if place
                           else GLOBAL)
                out.setdefault(name, []).append((versions.get(version, ""), value))
        return out


def later(version):
    """Whether a version is above the floor; those of other libraries, and private ones, are not."""
    for prefix, floor in FLOOR.items():
        number = version[len(prefix):]
        if version.startswith(prefix) and number.replace(".", "").isdigit():
            return tuple(map(int, number.split("."))) > floor
    return False


def closure(folder):
    found, todo = {}, ["libhlod.so.0"]
    while todo:
        name = todo.pop()
        path = os.path.join(folder, name)
        if name not in found and os.path.exists(path):
            found[name] = Library(path)
            todo += found[name].needed()
    return found


def takes(name, version, libc, own):
    """Whether an unversioned reference means the same on every C library from the floor on."""
    if name in own:
        return True
    definitions = libc.get(name, [])
    old = [address for v, address in definitions if not later(v)]
    same = {address for v, address in definitions if v == version}
    return len(old) == 1 and (set(old) == same or name in ALIKE)


def loosen(library, libc, own):
    """Takes the version off references to what is later; returns those that may not lose it."""
    asked, refused = library.asked(), []
    for name, index, _, place in library.symbols():
        number = (struct.unpack_from("<H", library.raw, place)[0] & ~HIDDEN if place and not index
                  else 0)
        version = asked.get(number, ("", 0))[0]
        if later(version) or version and name in MOVED:
            if takes(name, version, libc, own):
                struct.pack_into("<H", library.raw, place, GLOBAL)
            else:
                refused.append(f"{os.path.basename(library.path)}: {name}@{version}")
    for version, flags in asked.values():
        if later(version):
            struct.pack_into("<H", library.raw, flags,
                             struct.unpack_from("<H", library.raw, flags)[0] | WEAK)
    return refused


def main(folder):
    libraries = closure(folder)
    own = libraries["libhlod_older.so.0"].defined()
    libc = {}
    for name in os.listdir(os.path.join(folder, "c")):
        for symbol, definitions in Library(os.path.join(folder, "c", name)).defined().items():
            libc.setdefault(symbol, []).extend(definitions)
    refused = [line for x in libraries.values() for line in loosen(x, libc, own)]
    if refused:
        raise SystemExit(
            "not in older C libraries, and not in deploy/bundle/older.c:\n" + "\n".join(refused))
    for x in libraries.values():
        with open(x.path, "r+b") as f:
            f.write(x.raw)
    print(max((v for x in libraries.values() for v, _ in x.asked().values()
               if v.startswith("GLIBC_2.") and not later(v)),
              key=lambda v: list(map(int, v[6:].split("."))))[6:])


main(sys.argv[1])
