# SPDX-License-Identifier: Apache-2.0
"""The daemon over an OpenCL device: a network with its weights against ONNX Runtime, a worker that
is killed, a driver that fails.

    daemon_test.py BUILD WORKDIR
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "queue"))
import daemon_checks  # noqa: E402


def fails(c):
    """Codes of a driver's calls as statuses."""
    spec = "opencl:library=" + c.faulty(os.path.join(HERE, "faults.c"), "libOpenCL.so.1")
    c.says(spec, "OCL_FAULT=clGetPlatformIDs=-1001", "no OpenCL device is here")
    c.says(spec, "OCL_FAULT=clBuildProgram=-11",
           "clBuildProgram gave BUILD_PROGRAM_FAILURE (-11)")
    c.says(spec, "OCL_FAULT=clCreateBuffer=-4", "RESOURCE_EXHAUSTED: no device memory for")
    c.says(spec, "OCL_FAULT=clEnqueueNDRangeKernel=-5", "gave OUT_OF_RESOURCES (-5)")
    c.says(spec, "OCL_FAULT=clEnqueueNDRangeKernel=-2", "UNAVAILABLE: the OpenCL device is lost")
    c.says(spec, "OCL_FAULT=clFinish=-14", "clFinish gave EXEC_STATUS_ERROR (-14)")
    c.says("opencl:library=/nonexistent.so", "", "OpenCL is not installed here")
    c.says("opencl:device=99", "", "there is no OpenCL device of platform=0:device=99")
    c.loses(spec, OCL_FAULT="clFinish=-14@12")


checks = daemon_checks.Checks("opencl", *sys.argv[1:3])
with checks.daemon("POCL_CACHE_DIR") as server:
    checks.network(server)
    checks.explained(server)
    checks.killed(server)
    checks.cache(server, "PoCL", "pocl")
fails(checks)
