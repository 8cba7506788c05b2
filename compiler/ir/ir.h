// SPDX-License-Identifier: Apache-2.0
// ir: the headers that every pass and frontend needs (the only umbrella header of the tree).
#pragma once
#include "compiler/ir/attrs.h"
#include "compiler/ir/build.h"
#include "compiler/ir/literal.h"
#include "compiler/ir/module.h"
#include "compiler/ir/op.h"
#include "compiler/ir/shape.h"
