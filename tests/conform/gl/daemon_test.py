# SPDX-License-Identifier: Apache-2.0
"""The daemon over an OpenGL device: a network with its weights against ONNX Runtime, a worker that
is killed, a driver that fails.

    daemon_test.py BUILD WORKDIR
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "queue"))
import daemon_checks  # noqa: E402


def fails(c):
    """What a driver's calls give as statuses."""
    spec = "gl:library=" + c.faulty(os.path.join(HERE, "faults.c"), "libEGL.so.1")
    c.says(spec, "GL_FAULT=glTexStorage2D=0", "has no glTexStorage2D")
    c.says(spec, "GL_FAULT=eglGetPlatformDisplayEXT=0", "no OpenGL device is here")
    c.says(spec, "GL_FAULT=glGetError=1285@8", "RESOURCE_EXHAUSTED: no device memory")
    c.says(spec, "GL_FAULT=glGetError=1282@8", "gave OpenGL's error 0x0502")
    c.says(spec, "GL_FAULT=glGetError=1287@8", "UNAVAILABLE: the OpenGL device is lost")
    c.says(spec, "GL_FAULT=glGetGraphicsResetStatus=33364@8",
           "UNAVAILABLE: the OpenGL device is lost")
    c.says(spec, "GL_FAULT=glGetProgramiv=0", "OpenGL copies no words here")
    c.says("gl:library=/nonexistent.so", "", "EGL is not installed here")
    c.says("gl:99", "", "there is no OpenGL device 99; EGL's list: 0: ")
    c.says("gl:memory=64K", "", "a buffer of this device has at most 65536",
           (os.path.join(c.work, "net.onnx"), "--bind", "N=1"))
    c.says("gl", "HLOD_GL_SIDE=64",
           "a buffer of this device has at most 16384",
           (os.path.join(c.work, "net.onnx"), "--bind", "N=1"))
    c.loses(spec, GL_FAULT="glGetError=1287@120")


checks = daemon_checks.Checks("gl", *sys.argv[1:3])
with checks.daemon("MESA_SHADER_CACHE_DIR") as server:
    checks.network(server)
    checks.explained(server)
    checks.killed(server)
    checks.cache(server, "llvmpipe", "mesa_shader_cache")
fails(checks)
