# SPDX-License-Identifier: Apache-2.0
"""Twelve models of other people's packages by `hlo show`, `hlo compile` and `hlo run` with no
option: all answer, with sizes taken for what they leave open.

They were chosen for their kinds (pictures, lines of text, sound, tokens, tables, recurrent
networks), one of a package. tests/client/untold.py has the rules by small models made there.
Usage: untold.py BUILD [MODEL...]   (names of table.py; without the zoo's packages it says SKIP)
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Daemon, Results  # noqa: E402
import models  # noqa: E402

TWELVE = ["nudenet", "ddddocr", "rapidocr-cls", "ppocrv5-rec", "open-nsfw", "magika",
          "silero-vad-16k", "basic-pitch", "atspm-phase", "deepcut", "minilm-l3",
          "romanizer-encoder"]


def main():
    build, names = sys.argv[1], sys.argv[2:] or TWELVE
    chosen = [m for m in models.packaged() if m.name in names]
    results, d = Results(), Daemon(os.path.join(build, "hlod"), os.path.join(build, "hlod-worker"))
    env = {k: v for k, v in os.environ.items() if not k.startswith("HLOD_")}
    env.update(HLOD_ADDR="%s:%d" % d.addr, HOME=d.dir)
    try:
        for m in chosen:
            for command, said in (("show", "inputs"), ("compile", "executable"),
                                  ("run", "executable")):
                p = subprocess.run([os.path.join(build, "hlo"), command, m.path], env=env,
                                   capture_output=True, text=True, timeout=300)
                results(f"{m.name}: hlo {command}",
                        p.returncode == 0 and said in p.stdout + p.stderr,
                        p.stdout[-300:] + p.stderr[-900:])
    finally:
        d.stop()
    return results.code()


sys.exit(main())
