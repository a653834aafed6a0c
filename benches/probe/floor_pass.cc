// The floor: what probes cost when the compiler itself puts them in, after all inlining and
// optimisation, in line, into the registers that are free there. A plug-in for clang 14.
//
// FETTLE_FLOOR=count: each function's entry increments a counter of its own.
// FETTLE_FLOOR=time: the time stamp at entry stays in a register (or wherever the compiler spills
// it), and each return stores a record of sixteen bytes into a ring in the thread's memory.

#include <cstdlib>
#include <cstring>

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"

using namespace llvm;

namespace {

constexpr uint64_t RING_RECORDS = 1 << 16;

GlobalVariable *thread_local_variable(Module &module, Type *type, const char *name) {
    auto *variable = new GlobalVariable(module, type, false, GlobalValue::LinkOnceODRLinkage,
                                        Constant::getNullValue(type), name, nullptr,
                                        GlobalValue::InitialExecTLSModel);
    variable->setDSOLocal(true);
    return variable;
}

struct Floor : PassInfoMixin<Floor> {
    static bool isRequired() { return true; }

    PreservedAnalyses run(Module &module, ModuleAnalysisManager &) {
        const char *mode = std::getenv("FETTLE_FLOOR");
        if (mode == nullptr) {
            return PreservedAnalyses::all();
        }
        bool time = std::strcmp(mode, "time") == 0;
        std::vector<Function *> functions;
        for (Function &function : module) {
            if (!function.isDeclaration() && !function.hasFnAttribute(Attribute::Naked)) {
                functions.push_back(&function);
            }
        }
        LLVMContext &context = module.getContext();
        Type *word = Type::getInt64Ty(context);
        if (time) {
            auto *ring = thread_local_variable(module, ArrayType::get(word, 2 * RING_RECORDS),
                                               "fettle_floor_ring");
            auto *position = thread_local_variable(module, word, "fettle_floor_position");
            for (Function *function : functions) {
                put_time(*function, ring, position, word);
            }
        } else {
            auto *type = ArrayType::get(word, functions.size());
            auto *counters =
                new GlobalVariable(module, type, false, GlobalValue::InternalLinkage,
                                   Constant::getNullValue(type), "fettle_floor_counters");
            for (size_t n = 0; n < functions.size(); n++) {
                put_count(*functions[n], counters, n, word);
            }
        }
        return PreservedAnalyses::none();
    }

    static void put_count(Function &function, GlobalVariable *counters, size_t n, Type *word) {
        IRBuilder<> at(&*function.getEntryBlock().getFirstInsertionPt());
        Value *counter = at.CreateConstInBoundsGEP2_64(counters->getValueType(), counters, 0, n);
        at.CreateStore(at.CreateAdd(at.CreateLoad(word, counter), at.getInt64(1)), counter);
    }

    static void put_time(Function &function, GlobalVariable *ring, GlobalVariable *position,
                         Type *word) {
        IRBuilder<> at(&*function.getEntryBlock().getFirstInsertionPt());
        Value *start = at.CreateIntrinsic(Intrinsic::readcyclecounter, {}, {});
        for (BasicBlock &block : function) {
            Instruction *end = block.getTerminator();
            if (!isa<ReturnInst>(end)) {
                continue;
            }
            // Nothing may stand between a call that must be a tail call and its return.
            if (CallInst *call = block.getTerminatingMustTailCall()) {
                end = call;
            }
            at.SetInsertPoint(end);
            Value *ticks =
                at.CreateSub(at.CreateIntrinsic(Intrinsic::readcyclecounter, {}, {}), start);
            Value *number = at.CreateLoad(word, position);
            at.CreateStore(at.CreateAdd(number, at.getInt64(1)), position);
            Value *slot = at.CreateShl(at.CreateAnd(number, at.getInt64(RING_RECORDS - 1)), 1);
            Type *type = ring->getValueType();
            Value *place = at.CreateInBoundsGEP(type, ring, {at.getInt64(0), slot});
            at.CreateStore(at.CreatePtrToInt(&function, word), place);
            at.CreateStore(ticks, at.CreateConstInBoundsGEP1_64(word, place, 1));
        }
    }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "fettle-floor", "1", [](PassBuilder &builder) {
                builder.registerOptimizerLastEPCallback(
                    [](ModulePassManager &passes, OptimizationLevel) {
                        passes.addPass(Floor());
                    });
            }};
}
