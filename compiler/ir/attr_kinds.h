// SPDX-License-Identifier: Apache-2.0
// attr_kinds: the name tables of enumerated attribute values (enums.def), NULL-terminated, for the
// printer and the parser.
#pragma once
#define ENUMS(kind, values) extern const char *const hlo_enum_##kind[];
#include "compiler/ir/enums.def"
#undef ENUMS
