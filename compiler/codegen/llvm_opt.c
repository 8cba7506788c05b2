// SPDX-License-Identifier: Apache-2.0
// The optimiser pipelines and the target machines. The pipelines are short on purpose: kir arrives
// with loop-invariant code hoisted and values shared, so what is left is vectorising and cleaning
// up. Two things that cost much and gain nothing measurable here are off: unrolling at run time
// (the vectoriser interleaves, what would be unrolled are its remainders) and loop strength
// reduction, a third of the back end's time, by an option of LLVM that is the whole process's.
#include <llvm-c/Error.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/str.h"
#include "compiler/codegen/llvm_emit.h"

#define SHORT_PIPELINE                                                                             \
    "function(early-cse,loop-vectorize,instcombine<no-verify-fixpoint>,simplifycfg)"
static const char *const pipelines[EFFORTS] = {
    [EFFORT_LITTLE] = SHORT_PIPELINE,
    [EFFORT_LESS] = SHORT_PIPELINE,
    [EFFORT_FULL] =
        "function(early-cse,loop-mssa(loop-rotate,licm),simplifycfg,loop(indvars),loop-vectorize,"
        "instcombine<no-verify-fixpoint>,loop-unroll<O2;no-runtime>,early-cse<memssa>,loop-mssa("
        "licm),instcombine<no-verify-fixpoint>,simplifycfg)",
    [EFFORT_LOOP] =
        "function(sroa<modify-cfg>,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
        "loop-mssa(loop-rotate,licm),simplifycfg,loop(indvars),loop-vectorize,instcombine<no-"
        "verify-fixpoint>,loop-unroll<O2;no-runtime>,sroa<modify-cfg>,gvn,loop-mssa(licm),dse,"
        "instcombine<no-verify-fixpoint>,simplifycfg)"};

static void init_targets(void) {
    static const char *const options[] = {"hlod", "-disable-lsr"};
    LLVMParseCommandLineOptions(2, options, NULL);
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
    LLVMInitializeNativeAsmParser();
    LLVMInitializeWebAssemblyTargetInfo();
    LLVMInitializeWebAssemblyTarget();
    LLVMInitializeWebAssemblyTargetMC();
    LLVMInitializeWebAssemblyAsmPrinter();
}

// LLVM says which of the loops that are to be vectors cannot be. After an error it would end the
// process too.
static void no_remarks(LLVMDiagnosticInfoRef said, UNUSED void *ctx) {
    if (LLVMGetDiagInfoSeverity(said) == LLVMDSError) abort();
}
LLVMContextRef llvm_context(void) {
    LLVMContextRef c = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(c, no_remarks, NULL);
    return c;
}

// AMD's processors store the lanes of a scatter one by one, in microcode: loops over the rows of
// small matrices that LLVM makes vectors of for it take up to twice as long (measured on Zen 5;
// what is gathered by indices is no slower than lane by lane).
static bool no_scatters(const char *cpu) {
    return strncmp(cpu, "znver", 5) == 0;
}
status_t llvm_machine(const struct target *t, enum effort effort, LLVMTargetMachineRef *out) {
    LLVMCodeGenOptLevel level =
        effort == EFFORT_LITTLE ? LLVMCodeGenLevelNone : LLVMCodeGenLevelDefault;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_targets);
    bool own_triple = !t->llvm_triple || !*t->llvm_triple, host = !t->llvm_cpu || !*t->llvm_cpu;
    char *triple = own_triple ? LLVMGetDefaultTargetTriple() : NULL, *msg = NULL;
    char *cpu = host ? LLVMGetHostCPUName() : NULL,
         *feat =
             host && (!t->llvm_features || !*t->llvm_features) ? LLVMGetHostCPUFeatures() : NULL;
    struct strbuf all = {0};
    if (feat) strbuf_printf(&all, "%s%s", feat, no_scatters(cpu) ? ",+prefer-no-scatter" : "");
    LLVMTargetRef target;
    status_t st = ST_OK;

    const char *tr = triple ? triple : t->llvm_triple;
    bool moves = strncmp(tr, "wasm", 4) != 0; // where the code lies is not known before
    if (LLVMGetTargetFromTriple(tr, &target, &msg)) {
        st = st_invalid("target '%s': %s", tr, msg ? msg : "unknown");
    } else {
        *out = LLVMCreateTargetMachine(target, tr, cpu ? cpu : t->llvm_cpu,
                                       feat               ? all.p
                                       : t->llvm_features ? t->llvm_features
                                                          : "",
                                       level, moves ? LLVMRelocPIC : LLVMRelocStatic,
                                       LLVMCodeModelDefault);
        if (!*out) st = st_internal("no target machine for '%s'", tr);
    }
    LLVMDisposeMessage(msg);
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(cpu);
    LLVMDisposeMessage(feat);
    strbuf_done(&all);
    return st;
}

// The type of floats for one of halves, or vectors of them; NULL: t is another.
static LLVMTypeRef wide_type(LLVMTypeRef t) {
    bool lanes = LLVMGetTypeKind(t) == LLVMVectorTypeKind;
    LLVMTypeRef e = lanes ? LLVMGetElementType(t) : t;
    if (LLVMGetTypeKind(e) != LLVMHalfTypeKind) return NULL;
    e = LLVMFloatTypeInContext(LLVMGetTypeContext(t));
    return lanes ? LLVMVectorType(e, LLVMGetVectorSize(t)) : e;
}
// What takes the place of an operation on halves; NULL: it is none.
static LLVMValueRef widened(LLVMBuilderRef b, LLVMValueRef i) {
    LLVMOpcode op = LLVMGetInstructionOpcode(i);
    bool two = op == LLVMFCmp || op == LLVMFAdd || op == LLVMFSub || op == LLVMFMul ||
               op == LLVMFDiv || op == LLVMFRem;
    LLVMTypeRef wide = two || op == LLVMFNeg ? wide_type(LLVMTypeOf(LLVMGetOperand(i, 0))) : NULL;
    if (!wide) return NULL;
    LLVMPositionBuilderBefore(b, i);
    LLVMValueRef x = LLVMBuildFPExt(b, LLVMGetOperand(i, 0), wide, ""), y = NULL, r;
    if (two) y = LLVMBuildFPExt(b, LLVMGetOperand(i, 1), wide, "");
    if (op == LLVMFCmp) return LLVMBuildFCmp(b, LLVMGetFCmpPredicate(i), x, y, "");
    r = two ? LLVMBuildBinOp(b, op, x, y, "") : LLVMBuildFNeg(b, x, "");
    return LLVMBuildFPTrunc(b, r, LLVMTypeOf(i), "");
}
// LLVM makes operations of halves of those of floats between conversions (comparisons, sums that
// are rounded), and code for one element at a time of these where the CPU has none.
static void widen_halves(LLVMModuleRef m) {
    LLVMBuilderRef b = LLVMCreateBuilderInContext(LLVMGetModuleContext(m));
    for (LLVMValueRef f = LLVMGetFirstFunction(m); f; f = LLVMGetNextFunction(f))
        for (LLVMBasicBlockRef at = LLVMGetFirstBasicBlock(f); at; at = LLVMGetNextBasicBlock(at))
            for (LLVMValueRef next, i = LLVMGetFirstInstruction(at); i; i = next) {
                next = LLVMGetNextInstruction(i);
                LLVMValueRef r = widened(b, i);
                if (!r) continue;
                LLVMReplaceAllUsesWith(i, r);
                LLVMInstructionEraseFromParent(i);
            }
    LLVMDisposeBuilder(b);
}

status_t llvm_compile(LLVMModuleRef m, LLVMTargetMachineRef tm, enum effort effort,
                      struct strbuf *text, LLVMCodeGenFileType kind, LLVMMemoryBufferRef *out) {
    char *msg = NULL, *triple = LLVMGetTargetMachineTriple(tm);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
    LLVMSetTarget(m, triple);
    LLVMSetModuleDataLayout(m, layout);
    LLVMDisposeTargetData(layout);
    LLVMDisposeMessage(triple);

    LLVMPassBuilderOptionsRef o = LLVMCreatePassBuilderOptions();
    LLVMPassBuilderOptionsSetLoopVectorization(o, 1);
    LLVMPassBuilderOptionsSetLoopInterleaving(o, 1);
    LLVMPassBuilderOptionsSetSLPVectorization(o, 0);
    LLVMErrorRef err = LLVMRunPasses(m, pipelines[effort], tm, o);
    LLVMDisposePassBuilderOptions(o);
    if (err) {
        char *why = LLVMGetErrorMessage(err);
        status_t st = st_internal("optimiser: %s", why);
        LLVMDisposeErrorMessage(why);
        return st;
    }

    widen_halves(m);
    if (text) {
        char *ir = LLVMPrintModuleToString(m);
        strbuf_puts(text, ir);
        LLVMDisposeMessage(ir);
    }

    if (LLVMTargetMachineEmitToMemoryBuffer(tm, m, kind, &msg, out)) {
        status_t st = st_internal("object: %s", msg ? msg : "?");
        LLVMDisposeMessage(msg);
        return st;
    }
    return ST_OK;
}
