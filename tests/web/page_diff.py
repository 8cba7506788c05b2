#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hlo-diff (HLO_DIFF names it) over the device of a page, whose socket comes from whoever listens
at HLOD_WEB_TABS: what worker_farm.py --fuzz gives fuzz_hlo.py for a program."""
import array
import os
import socket
import sys

s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["HLOD_WEB_TABS"])
_, control, _, _ = s.recvmsg(1, socket.CMSG_SPACE(4))
fd = array.array("i", control[0][2])[0]
os.set_inheritable(fd, True)
os.environ["HLOD_DIFF_DEVICE"] = "web:fd=%d" % fd
os.execv(os.environ["HLO_DIFF"], sys.argv)
