// SPDX-License-Identifier: Apache-2.0
// ocl_load: OpenCL's loader library, opened at run time. Thread: one at a time.
#pragma once
#include "base/status.h"
#include "devices/opencl/ocl_abi.h"

// file: "" = libOpenCL.so.1. Stays open for ever: drivers have threads. FAILED_PRECONDITION where
// there is none, or it lacks a function of ocl_slots.def.
status_t ocl_load(const char *file, const struct ocl_api **out) MUST_CHECK;
enum ocl_kind { OCL_NONE, OCL_FULL, OCL_LOST };
enum ocl_kind ocl_kind_of(ocl_code code);
const char *ocl_name_of(ocl_code code); // "OUT_OF_RESOURCES"; "an unknown error"
