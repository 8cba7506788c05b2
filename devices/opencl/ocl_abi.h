// SPDX-License-Identifier: Apache-2.0
// ocl_abi: the part of OpenCL 1.2's binary interface that the device uses, in our own words (facts:
// Khronos' OpenCL 1.2 specification; numbers never change between versions). Objects are opaque
// pointers. A call gives a code, 0 for success, or an object with the code through its last
// parameter; names of codes are in ocl_errors.def. Functions are looked up in the loader's library
// by name (ocl_load.h), never linked.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int32_t ocl_code;
typedef uint64_t ocl_bits;

enum { OCL_PLATFORM_NAME = 0x902, OCL_PLATFORM_NOT_FOUND = -1001 };
#define OCL_DEVICE_TYPE_CPU UINT64_C(2)
#define OCL_DEVICE_TYPE_GPU UINT64_C(4)
#define OCL_DEVICE_TYPE_ALL UINT64_C(0xffffffff)
enum ocl_device_info {
    OCL_DEVICE_TYPE = 0x1000,
    OCL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,   // uint
    OCL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004, // size_t
    OCL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005, // size_t of each dimension
    OCL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,  // ulong
    OCL_DEVICE_ADDRESS_BITS = 0x100D,        // uint
    OCL_DEVICE_MAX_PARAMETER_SIZE = 0x1017,  // size_t
    OCL_DEVICE_SINGLE_FP_CONFIG = 0x101B,    // bits
    OCL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,     // ulong
    OCL_DEVICE_NAME = 0x102B,                // text, as those below
    OCL_DEVICE_VERSION = 0x102F,
    OCL_DEVICE_EXTENSIONS = 0x1030,
};
enum { OCL_FP_FMA = 1 << 5, OCL_FP_EXACT_DIVIDE = 1 << 7 }; // of SINGLE_FP_CONFIG
enum { OCL_QUEUE_PROFILING = 1 << 1, OCL_MEM_READ_WRITE = 1 << 0 };
enum { OCL_PROGRAM_BUILD_LOG = 0x1183, OCL_KERNEL_NUM_ARGS = 0x1191 };
enum { OCL_KERNEL_WORK_GROUP_SIZE = 0x11B0, OCL_KERNEL_PREFERRED_MULTIPLE = 0x11B3 }; // size_t
enum { OCL_PROFILING_QUEUED = 0x1280, OCL_PROFILING_START = 0x1282, OCL_PROFILING_END = 0x1283 };

struct ocl_api {
#define OCL_FN(ret, name, params) ret(*name) params;
#include "devices/opencl/ocl_slots.def"
#undef OCL_FN
};
