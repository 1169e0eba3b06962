// Stand-in for libcute_dsl_runtime.so: the library that host code compiled by CuTe DSL calls instead of CUDA.
//
// Each function hands its arguments, as 64-bit words, to one callback (the door), which is Python; nothing is decided
// here. It is exported as emulated_<name>, and host code for the emulator is compiled to call that: libraries that host
// code is linked to are visible to the whole process, and of two that export one name the first to be loaded wins.
// Under the System V calling convention integers and pointers of every width travel in such words, so a function is
// known by its arity alone. The upper half of a 32-bit argument is undefined: the door masks it.
// The door returns a cudaError_t. A failed call never returns 0: without a door it is cudaErrorNotSupported.

#include <cstdint>
#include <cstdio>
#include <string>

namespace {

using Word = uint64_t;
using Door = int (*)(const char* symbol, const Word* words, int count);
using SetRaised = void (*)(const char* kind, const char** parts, int count);
using SetError = void (*)(const char* kind, const char* message);

constexpr int kNotSupported = 801;

Door g_door = nullptr;
thread_local std::string t_kind = "RuntimeError";
thread_local std::string t_message = "the stand-in runtime failed without a reason";

template <typename... Words>
int call(const char* symbol, Words... arguments) {
  if (!g_door) {
    std::fprintf(stderr, "%s: the stand-in runtime library is loaded, but no emulated backend is attached\n", symbol);
    return kNotSupported;
  }
  const Word words[] = {static_cast<Word>(arguments)..., 0};
  return g_door(symbol, words, static_cast<int>(sizeof...(arguments)));
}

}  // namespace

extern "C" {

void standin_attach(Door door) { g_door = door; }

// The reason of the failure that the door is about to return, for callers that want text.
void standin_set_error(const char* kind, const char* message) {
  t_kind = kind;
  t_message = message;
}

#define EXPORT(name) emulated_##name
#define CALL0(name) int EXPORT(name)() { return call(#name); }
#define CALL1(name) int EXPORT(name)(Word a) { return call(#name, a); }
#define CALL2(name) int EXPORT(name)(Word a, Word b) { return call(#name, a, b); }
#define CALL3(name) int EXPORT(name)(Word a, Word b, Word c) { return call(#name, a, b, c); }
#define CALL4(name) int EXPORT(name)(Word a, Word b, Word c, Word d) { return call(#name, a, b, c, d); }
#define CALL5(name) int EXPORT(name)(Word a, Word b, Word c, Word d, Word e) { return call(#name, a, b, c, d, e); }
#define CALL8(name)                                                                                          \
  int EXPORT(name)(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h) {                         \
    return call(#name, a, b, c, d, e, f, g, h);                                                              \
  }
#define CALL12(name)                                                                                         \
  int EXPORT(name)(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k,   \
                   Word l) {                                                                                 \
    return call(#name, a, b, c, d, e, f, g, h, i, j, k, l);                                                  \
  }

// Libraries and kernels
CALL8(_cudaLibraryLoadData) CALL8(_cuLibraryLoadData)
CALL8(_cudaLibraryLoadFromFile) CALL8(_cuLibraryLoadFromFile)
CALL1(_cudaLibraryUnload) CALL1(_cuLibraryUnload)
CALL3(_cudaLibraryGetKernel) CALL3(_cuLibraryGetKernel)
CALL2(_cudaLibraryGetKernelCount) CALL2(_cuLibraryGetKernelCount)
CALL4(_cudaLibraryGetGlobal) CALL4(_cuLibraryGetGlobal)
CALL4(_cudaLibraryGetManaged) CALL4(_cuLibraryGetManaged)
CALL3(_cudaLibraryGetUnifiedFunction) CALL3(_cuLibraryGetUnifiedFunction)
CALL2(_cuLibraryGetModule)
CALL4(_cuKernelGetAttribute) CALL4(_cudaKernelSetAttributeForDevice) CALL3(_cudaFuncSetAttribute)
CALL4(_cudaOccupancyMaxActiveBlocksPerMultiprocessor)

// Launches
CALL3(_cudaLaunchKernelEx)
int EXPORT(_cudaLaunchKernel)(Word kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              Word arguments, Word shared_bytes, Word stream) {
  return call("_cudaLaunchKernel", kernel, gx, gy, gz, bx, by, bz, arguments, shared_bytes, stream);
}
CALL12(_cuTensorMapEncodeTiled)

// Devices
CALL1(_cudaGetDevice) CALL1(_cudaGetDeviceCount) CALL1(_cudaSetDevice) CALL2(_cuDeviceGet)
CALL3(_cudaDeviceGetAttribute) CALL2(_cudaGetDeviceProperties) CALL0(_cudaDeviceSynchronize)

// Memory
CALL2(_cudaMalloc) CALL3(_cudaMallocAsync) CALL2(_cudaMallocHost) CALL3(_cudaMallocManaged)
CALL1(_cudaFree) CALL2(_cudaFreeAsync) CALL1(_cudaFreeHost)
CALL4(_cudaMemcpy) CALL5(_cudaMemcpyAsync) CALL3(_cudaMemset) CALL4(_cudaMemsetAsync)

// Streams, events, graphs
CALL1(_cudaStreamCreate) CALL1(_cudaStreamDestroy) CALL1(_cudaStreamSynchronize) CALL3(_cudaStreamWaitEvent)
CALL4(_cudaStreamAddCallback) CALL2(_cudaStreamBeginCapture) CALL2(_cudaStreamEndCapture)
CALL1(_cudaEventCreate) CALL1(_cudaEventDestroy) CALL2(_cudaEventRecord) CALL3(_cudaEventElapsedTime)
CALL5(_cudaGraphInstantiate) CALL2(_cudaGraphLaunch) CALL1(_cudaGraphDestroy) CALL1(_cudaGraphExecDestroy)
CALL0(_cudaProfilerStart) CALL0(_cudaProfilerStop)

// Entry points for C++ and JAX hosts: refused by name, so that their arguments do not matter
CALL0(CuteDSLRT_Module_Create_From_Bytes) CALL0(CuteDSLRT_Module_Destroy) CALL0(CuteDSLRT_Module_Get_Function)
CALL0(CuteDSLRT_Function_Run) CALL0(CuteDSLRT_NvJaxCutlassCallExecute)
CALL0(CuteDSLRT_NvJaxCutlassCallExecuteNoCudaGraph) CALL0(CuteDSLRT_NvJaxCutlassCallExecuteNoCudaGraph_v1)
CALL0(CuteDSLRT_NvJaxCutlassCallExecuteNoCudaGraph_v2) CALL0(CuteDSLRT_NvJaxCutlassCallExecute_v1)
CALL0(CuteDSLRT_NvJaxCutlassCallExecute_v2) CALL0(CuteDSLRT_NvJaxCutlassCallInstantiate_v2)
CALL0(CuteDSLRT_NvJaxCutlassCallPrepare) CALL0(CuteDSLRT_NvJaxCutlassCallPrepare_v1)
CALL0(CuteDSLRT_NvJaxCutlassCallPrepare_v2) CALL0(CuteDSLRT_NvJaxCutlassCallStateTypeId_v2)
CALL0(CuteDSLRT_NvJaxCutlassCallStateTypeInfo_v2)

// Errors. The TVM-FFI host code passes its own setter: what it sets becomes the exception of the call.
const char* EXPORT(CuteDSLRT_GetErrorName)(int) { return t_kind.c_str(); }
const char* EXPORT(CuteDSLRT_GetErrorString)(int) { return t_message.c_str(); }
const char* EXPORT(cuda_dialect_get_error_name)(int) { return t_kind.c_str(); }
void EXPORT(CuteDSLRT_TVMFFISetRaisedCudaError)(SetRaised set_raised, int) {
  const char* parts[] = {t_message.c_str()};
  if (set_raised) set_raised(t_kind.c_str(), parts, 1);
}
void EXPORT(CuteDSLRT_TVMFFISetRaisedCudaLaunchError)(SetRaised set_raised, int code) {
  EXPORT(CuteDSLRT_TVMFFISetRaisedCudaError)(set_raised, code);
}

// Checks of host code that has no way to return an error: the door keeps the reason, the backend raises it afterwards.
void EXPORT(cuda_dialect_assert_success)(int code) {
  if (code) call("cuda_dialect_assert_success", code);
}
void EXPORT(cuda_dialect_print_on_error)(int code) {
  if (code) std::fprintf(stderr, "%s: %s\n", t_kind.c_str(), t_message.c_str());
}

// Loads a library at its first use; `init` loads the image, `load` resolves its kernels. No lock: the door needs the
// interpreter, so a thread that held one could wait for another that waits for the lock. The first to publish wins.
int EXPORT(cuda_dialect_init_library_once)(void** library, int (*init)(void**), int (*load)(void**, int),
                                           SetError set_error) {
  if (__atomic_load_n(library, __ATOMIC_ACQUIRE)) return 0;
  void* loaded = nullptr;
  int code = init(&loaded);
  if (!code && load) code = load(&loaded, 0);
  if (code) {
    if (set_error) set_error(t_kind.c_str(), t_message.c_str());
    return -1;
  }
  void* expected = nullptr;
  __atomic_compare_exchange_n(library, &expected, loaded, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return 0;
}
void EXPORT(cuda_dialect_unload_library_once)(void** library) {
  void* loaded = __atomic_exchange_n(library, nullptr, __ATOMIC_ACQ_REL);
  if (loaded) call("_cudaLibraryUnload", reinterpret_cast<Word>(loaded));
}

}  // extern "C"
