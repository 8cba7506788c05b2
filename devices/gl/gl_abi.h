// SPDX-License-Identifier: Apache-2.0
// gl_abi: the part of EGL 1.5 and of OpenGL ES 3.0 that the device uses, in our own words (facts:
// Khronos' specifications and registry; numbers never change between versions). Functions are asked
// for by name (gl_load.h), never linked. EGL's objects are opaque pointers, OpenGL's are numbers, 0
// is none; its calls leave an error behind, which GetError gives and takes away.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum egl_constant {
    EGL_NONE = 0x3038, // ends a list of pairs
    EGL_EXTENSIONS = 0x3055,
    EGL_SURFACE_TYPE = 0x3033, // of a configuration
    EGL_RENDERABLE_TYPE = 0x3040,
    EGL_OPENGL_ES3_BIT = 0x40,
    EGL_CONTEXT_MAJOR_VERSION = 0x3098,
    EGL_CONTEXT_OPENGL_RESET_NOTIFICATION_STRATEGY_EXT = 0x3138,
    EGL_LOSE_CONTEXT_ON_RESET_EXT = 0x31BF,
    EGL_OPENGL_ES_API = 0x30A0,
    EGL_PLATFORM_DEVICE_EXT = 0x313F, // a device of eglQueryDevicesEXT
    EGL_PLATFORM_SURFACELESS_MESA = 0x31DD,
    EGL_DRM_DEVICE_FILE_EXT = 0x3233,
};
enum gl_constant {
    GL_OUT_OF_MEMORY = 0x0505, // errors
    GL_CONTEXT_LOST = 0x0507,
    GL_TRIANGLES = 4,
    GL_MAX_TEXTURE_SIZE = 0x0D33,
    GL_MAX_VIEWPORT_DIMS = 0x0D3A,
    GL_TEXTURE_2D = 0x0DE1,
    GL_TEXTURE_2D_ARRAY = 0x8C1A,
    GL_TEXTURE0 = 0x84C0, // a unit
    GL_RGBA32UI = 0x8D70,
    GL_UNSIGNED_INT = 0x1405,
    GL_RENDERER = 0x1F01,
    GL_VERSION = 0x1F02,
    GL_EXTENSIONS = 0x1F03,
    GL_NEAREST = 0x2600,
    GL_TEXTURE_MAG_FILTER = 0x2800,
    GL_TEXTURE_MIN_FILTER = 0x2801,
    GL_R32UI = 0x8236,
    GL_FRAGMENT_SHADER = 0x8B30,
    GL_VERTEX_SHADER = 0x8B31,
    GL_LINK_STATUS = 0x8B82,
    GL_IMPLEMENTATION_COLOR_READ_TYPE = 0x8B9A,
    GL_IMPLEMENTATION_COLOR_READ_FORMAT = 0x8B9B,
    GL_FRAMEBUFFER_COMPLETE = 0x8CD5,
    GL_COLOR_ATTACHMENT0 = 0x8CE0,
    GL_FRAMEBUFFER = 0x8D40,
    GL_RED_INTEGER = 0x8D94,
    GL_RGBA_INTEGER = 0x8D99,
    GL_GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX = 0x9048, // KiB
    GL_SYNC_GPU_COMMANDS_COMPLETE = 0x9117,
    GL_SYNC_FLUSH_COMMANDS_BIT = 1,
    GL_TIMEOUT_EXPIRED = 0x911B,
    GL_WAIT_FAILED = 0x911D,
};

struct gl_api {
#define GL_FN(ret, prefix, name, params) ret(*name) params;
#include "devices/gl/gl_slots.def"
#undef GL_FN
    uint32_t (*ResetStatus)(void); // or NULL
    // Of lists of devices; or NULL.
    uint32_t (*QueryDevices)(int32_t most, void **out, int32_t *n);
    const char *(*QueryDeviceString)(void *device, int32_t what);
};
