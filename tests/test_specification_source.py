#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The source of a specification is a user's as it stands: what it includes, the options that it needs, templates, namespaces.
Under the fake driver, which runs these kernels' arithmetic on the CPU; NVRTC is the real one."""
import ctypes
import json
import os
import re

import tap
from place import BUILD, L4, SOURCE, Place, is_sanitized

SLOW = os.environ.get("FA_TEST_SLOW") == "1"
SPECIFICATION = {
    "kernel": "axpy",
    "arguments": [{"name": "y", "type": "f32", "shape": ["n"], "is": "inout"}, {"name": "x", "type": "f32", "shape": ["n"]},
                  {"name": "a", "type": "f32", "value": 2.5}, {"name": "n"}],
    "sizes": {"n": 1000}, "tune": {"THREADS": [64]}, "block": "THREADS", "grid": "ceil_div(n, THREADS)"}
BODY = "(float *y, const float *x, float a, int n)\n{ int i = blockIdx.x * THREADS + threadIdx.x; if (i < n) y[i] += %s; }\n"
KERNEL = "__global__ void axpy" + BODY
NAIVE = "__global__ void axpy_naive" + BODY.replace("THREADS", "blockDim.x") % "a * x[i]"


def write(place, name, text):
    path = os.path.join(place.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tap.write(path, text)
    return path


def specified(place, source, **changes):
    document = {name: value for name, value in {**SPECIFICATION, **changes}.items() if value is not None}
    return write(place, "work/axpy.cu", "/* fa-tune %s */\n%s" % (json.dumps(document), source))


def a_place(script=""):
    return Place(space=None, script=L4 + script)


def tuned(place, path):
    told = place.json(path)
    tap.equal((told["answer"]["from_store"], told["funnel"]["failed"]), (False, 0))  # what is covered makes a kernel that the store has not
    return told["funnel"]["measured"]


def files_beside_it_and_of_its_folders_are_included():
    with a_place() as place:
        write(place, "work/parts/scale.h", "#pragma once\n#include \"../deep.h\"\n#define SCALE(a, x) deep(a, x)\n")
        write(place, "work/deep.h", "#pragma once\n#include <shared/times.h>\n"
                                    "__device__ inline float deep(float a, float x) { return times(a, x); }\n")
        write(place, "library/shared/times.h", "#include \"other/times.h\"\n")
        write(place, "library/shared/other/times.h", "__device__ inline float times(float a, float x) { return a * x; }\n")
        path = specified(place, "#include \"parts/scale.h\"\n#include \"./parts/../deep.h\"\n" + KERNEL % "SCALE(a, x[i])",
                         include=["../library"])
        tap.equal(tuned(place, path), 1)
        tap.has(place.run(path).stdout, "found in")
        # a file that is included by one that is included
        write(place, "library/shared/other/times.h", "__device__ inline float times(float a, float x) { return x * a; }\n")
        tap.equal(tuned(place, path), 1)
        # the current folder has no part in it
        specified(place, "#include \"scale.h\"\n" + KERNEL % "SCALE(a, x[i])")
        write(place, "scale.h", "#define SCALE(a, x) ((a) * (x))\n")
        tap.has(place.run(path, status=1).stderr, "scale.h")


def two_files_of_one_name_are_two():
    with a_place() as place:
        write(place, "work/a/part.h", "#define A(x) (2.0f * (x))\n#include \"part2.h\"\n")
        write(place, "work/b/part.h", "#define B(x) (0.5f * (x))\n#include \"part2.h\"\n")
        write(place, "work/a/part2.h", "#define A2 1\n")
        write(place, "work/b/part2.h", "#define B2 1\n")
        path = specified(place, "#include <part.h>\n#include \"b/part.h\"\n" + KERNEL % "A(A2 * B(B2 * a)) * x[i]", include=["a"])
        tap.equal(tuned(place, path), 1)


def a_file_may_have_the_name_of_one_of_the_vocabulary():
    with a_place() as place:
        write(place, "work/fa_numeric.cuh", "#define SCALE(a, x) ((a) * (x))\n")
        tap.equal(tuned(place, specified(place, "#include \"fa_numeric.cuh\"\n" + KERNEL % "SCALE(a, x[i])")), 1)


def a_kernel_may_stand_in_a_file_that_is_included():
    with a_place() as place:
        write(place, "work/kernel.cuh", KERNEL % "a * x[i]")
        tap.equal(tuned(place, specified(place, "#include \"kernel.cuh\"\n" + NAIVE, answer="axpy_naive")), 1)


def cudas_own_headers_are_found_and_covered():
    with a_place() as place:
        place.env["CUDA_HOME"] = os.path.join(place.folder, "cuda")
        write(place, "cuda/include/cuda_fp16.h", "#include \"detail/half.h\"\n")
        write(place, "cuda/include/detail/half.h", "#include <nv/target>\n#define HALVED(x) ((x) * HALF_OF)\n")
        write(place, "cuda/include/cccl/nv/target", "#define HALF_OF 0.5f\n")
        write(place, "cuda/include/thrust/system/cuda/tag.h", "#define TAG 1\n")
        write(place, "cuda/include/thrust/swap.h", "#define __THRUST_DEVICE_SYSTEM_ROOT thrust/system/cuda\n"
                                                  "#define TAG_HEADER <__THRUST_DEVICE_SYSTEM_ROOT/tag.h>\n#include TAG_HEADER\n")
        path = specified(place, "#include <cuda_fp16.h>\n#include <thrust/swap.h>\n#include <stdint.h>\n#include <math.h>\n" +
                         KERNEL % "TAG * 2 * HALVED(a) * x[(int64_t)i]")
        tap.equal(tuned(place, path), 1)
        write(place, "cuda/include/cccl/nv/target", "#define HALF_OF 0.50f\n")
        tap.equal(tuned(place, path), 1)


AS_IT_LIES = r"""#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <time.h>
#include <vector>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>
#include <cublas_v2.h>
#include "helper_cuda.h"
#include "shared.h"
using namespace std;
using std::vector;
namespace chrono_ = std::chrono;
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { fprintf(stderr, "%s'\n", host(e)); exit(1); } } while (0)
#define DEVICE_FUNCTION __device__ __forceinline__
#define HALF 0.5f
#define FACTOR (kTwo * HALF)
std::vector<float> pool(10);
float *x, *y, table[2][2] = {{1, 2}, {3, 4}};
static int verbose = 0, (*compare)(const void *, const void *) = nullptr;
static cublasHandle_t handle;
const char quote = '"', brace = '{';
constexpr float kTwo = 2.0f;
typedef struct _pair { std::vector<int> sizes; FILE *file; } Pair;
typedef float real; typedef real (*operation_t)(real);
enum class Mode : int { kFast, kSlow };
enum { THREADS_MAX = 1024 };
extern "C" bool isPow2(unsigned int x);
void host(float *data, int n = 3);
const char *host(cudaError_t error) { return R"(})" "} { \" \" // "; } // it's {
class Timer { public: Timer() { cudaEventCreate(&begin); } ~Timer() {} private: cudaEvent_t begin; };
struct Scaled {
    float a;
    Scaled(float a_) : a{a_}, none(0) { std::cout << a; }
    std::string words() const;
    bool operator==(const Scaled &other) const { return words() == other.words(); }
    Scaled() = default;
    __device__ float times(real x) const { return a * x; }
    int none;
};
template <typename T, typename = typename std::enable_if<(sizeof(T) > 2)>::type> constexpr T twice(T x) { return x + x; }
#ifdef ELSEWHERE
void host(int n) {
#else
void host(long n) {
#endif
    if (n) { printf("}"); }
}
#if 0
it isn't { code
#endif
namespace { template <class T> DEVICE_FUNCTION T added(T x, T y) { return x + y; } float added_on_host(float x) { return x; } }
__global__ void other(cudaTextureObject_t texture) { other<<<1, 1>>>(nothing); }
namespace mine {
__global__ void axpy(float *y, const float *x, float a, int n)
{
    uint i = blockIdx.x * THREADS + threadIdx.x;
    Scaled scaled;
    scaled.a = a * (std::is_same<real, float>::value ? 1 : 0) * (M_PI > 3 && INFINITY > a);
    Mode mode = Mode::kFast;
    if (i < n && i < std::numeric_limits<int>::max()) y[i] = added(y[i], scaled.times(x[i]) * FACTOR * twice(0.5f)) + (mode == Mode::kSlow) + (THREADS_MAX == 0);
}
}
template <typename T> void launch(T *y, int n) { mine::axpy<<<n, 64>>>(y, y, 1.0f, n); }
template void launch<float>(float *y, int n);
PYBIND11_MODULE(extension, m) { m.def("axpy", &launch<float>, "a*x + y"); }
int main(int argc, char **argv)
{
    auto kernel = [=] __device__ (int i) { return i; };
    for (auto &one : pool) { CHECK(cudaMalloc(&one, sizeof(Pair))); }
    return EXIT_SUCCESS;
}
"""


def a_file_is_taken_as_it_lies_on_the_disk():
    """Host code, its headers, and what nvcc includes by itself; the compiler's lines are the file's."""
    with a_place() as place:
        write(place, "work/shared.h", "#pragma once\n#include <iostream>\ninline int main_of(int argc, char **argv) { std::cout << argv; }\n")
        path = specified(place, AS_IT_LIES)
        said = place.run("check", path, "--gpu", "L4").stdout
        tap.has(said, "left out for NVRTC: pool in line 20")
        tap.equal(place.json("check", path, "--gpu", "L4")["left_out"][-3:], ['<vector> in line 6', '<cublas_v2.h> in line 10', '"helper_cuda.h" in line 11'])
        tap.equal(tuned(place, path), 1)
        for name, text in (("shared.h", "\ufeff#pragma once\ninline int main_of() { return 0; }\n"), ("axpy.cu", "\ufeff" + open(path, encoding="utf-8").read())):
            write(place, "work/" + name, text)
        tap.equal(tuned(place, path), 1)  # a byte-order mark is none of the text
        broken = AS_IT_LIES.replace("FACTOR *", "FACTOR_ *")
        line = 2 + broken[:broken.index("FACTOR_ *")].count("\n")
        tap.has(place.run("check", specified(place, broken), "--gpu", "L4", status=1).stdout, 'axpy.cu(%d): error: identifier "FACTOR_"' % line)
        tap.has(place.run("check", os.path.join(SOURCE, "examples", "with_main.cu"), "--gpu", "L4").stdout, "right")
        # functions of the host become the device's by an option; main and what launches do not
        specified(place, "float scaled(float a) { return a; }\n" + KERNEL % "scaled(a) * x[i]" + "int main() { axpy<<<1, 1>>>(0, 0, 0, 0); cudaMalloc(0, 0); }\n",
                  options=["-default-device"])
        tap.equal(tuned(place, path), 1)


def headers_of_the_host_and_types_of_the_system_are_no_hindrance():
    headers = ("cuda.h cuda_runtime.h cuda_runtime_api.h device_launch_parameters.h time.h unistd.h sys/time.h sys/types.h inttypes.h ctype.h stdio.h "
               "algorithm type_traits limits atomic utility tuple array chrono map cstdint omp.h cub/cub.cuh cub/device/device_reduce.cuh "
               "thrust/device_vector.h cublas_v2.h curand.h nvToolsExt.h torch/extension.h").split()
    types = "uint ushort ulong uchar u_int32_t ssize_t int8_t uint64_t".split()
    with a_place() as place:
        text = "".join("#include <%s>\n" % name for name in headers) + "using namespace cub;\nusing namespace std;\nusing namespace thrust;\n"
        path = specified(place, text + KERNEL % ("a * x[i] * (0 %s == 0)" % "".join("+ sizeof(%s)" % name for name in types)))
        tap.equal(tuned(place, path), 1)
        # H100's functions of programmatic dependent launches, which NVRTC declares nowhere
        waits = KERNEL.replace("{", "{ cudaGridDependencySynchronize(); ", 1).replace("}", "cudaTriggerProgrammaticLaunchCompletion(); }", 1) % "a * x[i]"
        for header in "", "#include <cuda_device_runtime_api.h>\n", "#include <cub/cub.cuh>\n":
            specified(place, header + waits)
            tap.equal(place.json(path, "--gpu", "H100")["answer"]["origin"], "unranked")
        # of the author's own definitions none is in the way
        specified(place, "typedef unsigned int uint;\nusing uchar = unsigned char;\n#define ulong unsigned long\n#define M_PI 3\n#define ENTRY extern \"C\" __global__\n" +
                  KERNEL.replace("__global__", "ENTRY") % "a * x[i] * (sizeof(uint) + sizeof(uchar) + sizeof(ulong) + M_PI == 16)")
        tap.equal(tuned(place, path), 1)
        place.env["CUDA_HOME"] = os.path.join(place.folder, "cuda")
        write(place, "cuda/include/cuda_fp16.h", "")
        write(place, "cuda/include/cuda/std/utility", "namespace cuda { namespace std { template <class T> __device__ T twice(T x) { return x + x; } } }\n")
        write(place, "cuda/include/cuda/std/functional", "namespace cuda { namespace std { __device__ float largest(float x, float y) { return x > y ? x : y; } } }\n")
        write(place, "cuda/include/cub/block/block_double.cuh", "namespace cub { template <class T> struct BlockDouble { __device__ T of(T x) { return x + x; } }; }\n")
        specified(place, "#include <utility>\n#include <algorithm>\n#include <cub/cub.cuh>\n" +
                  KERNEL % "0.25f * std::twice(cub::BlockDouble<float>().of(std::largest(a, a))) * x[i]")
        tap.equal(tuned(place, path), 1)


def what_was_left_out_and_is_missed_is_named():
    with Place(space=None) as place:
        for source, said in (
                ("float scaled(float a) { return a; }\n" + KERNEL % "scaled(a) * x[i]", "is undefined: left out of the source is scaled in line 2"),
                ("float factor = 2;\n" + KERNEL % "factor * x[i]", "left out of the source is factor in line 2"),
                ("#include \"scale.h\"\n#include <vector>\nint main() {}\n" + KERNEL % "SCALE(a, x[i])", ", <vector> in line 3"),
                (KERNEL % "a * x[i]" + "int main() { cudaFree(0); }}\n", "no bracket matches that of line 4: put host code between #ifndef __CUDACC_RTC__ and #endif")):
            tap.has(place.run("check", specified(place, source), "--gpu", "L4", status=1).stdout, said)
        tap.has(place.run("check", specified(place, "int main() {\n" + KERNEL % "a * x[i]"), status=2).stderr,
                "no __global__ function in it; of it is left out nothing, for no bracket matches that of line 2: put host code between")


def options_go_to_the_compiler_and_are_covered():
    with a_place() as place:
        source = "static_assert(__cplusplus >= 202002L, \"C++20\");\n" + KERNEL % "SCALE * a * x[i]"
        path = specified(place, source, options=["-std=c++20", "-DSCALE=1"])
        tap.equal(tuned(place, path), 1)
        specified(place, source, options=["--std=c++20", "-DSCALE=1", "-use_fast_math", "-maxrregcount=32"])
        tap.equal(tuned(place, path), 1)
        for wrong in ("-I/tmp", "--include-path=x", "-include=/etc/passwd", "--pre-include=x", "-Xptxas=-o=x", "-o", "-DA\n#error",
                      "-std=c++2", "--gpu-architecture=sm_80", "D", "---DA", "-maxrregcount=", "-D1", "-pch", "--dopt=on"):
            specified(place, source, options=[wrong])
            tap.has(place.run(path, status=2).stderr, "may not be set")
        specified(place, source, options=["-std=c++20", "-DSCALE=1", "-DTHREADS_MAX=1"])
        tap.equal(tuned(place, path), 1)
        specified(place, source, options="-DSCALE=1")
        tap.has(place.run(path, status=2).stderr, "\"options\" must be an array")


def a_template_is_named_with_its_arguments():
    with a_place("fault THREADS=128; wrong\n") as place:
        source = ("namespace mine { template <int N, typename T>\n__global__ void __launch_bounds__(N) axpy(T *y, const T *x, T a, int n)\n"
                  "{ int i = blockIdx.x * N + threadIdx.x; if (i < n) { if constexpr (sizeof(T) == 4) y[i] += a * x[i]; else y[i] = T::none; } } }\n"
                  "namespace other { __global__ void axpy_copy(float *y) { *y = 0; } }\n")
        path = specified(place, source, tune={"THREADS": [64, 128]}, kernel="mine::axpy<THREADS, float>")
        funnel = place.json(path)["funnel"]
        tap.equal((funnel["measured"], funnel["failed"]), (1, 1))
        # the answer is another instance of the same template
        path = specified(place, source, tune={"THREADS": [64, 128]}, kernel="mine::axpy<THREADS, float>", answer={
            "kernel": "mine::axpy<32, float>", "block": 32, "grid": "ceil_div(n, 32)"})
        tap.equal(place.json(path)["answer"]["proved"], True)


def a_name_is_made_of_any_files_name():
    with a_place() as place:
        for file, name in (("2d-stencil.cu", "k_2d_stencil"), ("3.cu", "k_3"), ("_.cu", "k__"), ("Größe.cu", "gr____e"), ("ünder.cu", "k___nder"),
                           ("A b.c.cu", "a_b"), ("3" + "x" * 60 + ".cu", "k_3" + "x" * 20)):
            path = write(place, "work/" + file, "/* fa-tune %s */\n%s" % (json.dumps(SPECIFICATION), KERNEL % "a * x[i]"))
            tap.has(place.run("check", path, "--gpu", "L4").stdout, name + " · n 1000 · on ")


def what_is_wrong_with_a_kernels_name_is_said():
    template = "template <int N> __global__ void axpy(float *y) { *y = N; }\n__global__ void plain(float *y) { *y = 1; }\n"
    wrong = [("axpy", "axpy is a template: name its arguments too"),
             ("plain<1>", "plain is no template: name it without arguments"),
             ("axpy<1>; int x", "is no kernel: write its name"),
             ("axpy<1> //", "is no kernel: write its name"),
             ("a" * 80, "is no kernel: write its name"),
             ("axpi<1>", "there is no kernel axpi in it, but axpy, plain")]
    with a_place() as place:
        for kernel, sentence in wrong:
            tap.has(place.run(specified(place, template, kernel=kernel), status=2).stderr, sentence)
        path = specified(place, template + "template __global__ void axpy<2>(float *);\n", kernel="axpy<1>",
                         arguments=[SPECIFICATION["arguments"][0]])
        tap.has(place.run(path, "--gpu", "L4", status=1).stderr, "several kernels axpy")


GUARDED = "#ifndef THREADS\n#define THREADS 32\n#endif\n"


def a_macro_of_the_specification_has_its_value_in_the_whole_source():
    said = "the source defines THREADS, a tunable: put #ifndef THREADS around it"
    with a_place() as place:
        kernel = KERNEL % "a * x[i]"
        refused = [("#define THREADS 64\n" + kernel, "axpy.cu:2: " + said),  # the default's value, too
                   (NAIVE + " # define THREADS (WARPS * 32) \\\n + 0\n" + kernel, "axpy.cu:4: " + said),
                   ("#define \\\n THREADS 64\n" + kernel, "axpy.cu:2: " + said),
                   ("#ifdef WARPS\n#define THREADS 64\n#endif\n" + kernel, "axpy.cu:3: " + said),
                   ("#undef THREADS\n" + GUARDED + kernel, "axpy.cu:2: the source undefines THREADS, a tunable"),
                   ("#define ROWS 3\n" + kernel.replace("{ int", "{ int rows = ROWS, "), "axpy.cu:2: the source defines ROWS, a name of \"defines\""),
                   ("#include \"part.h\"\n" + kernel, "part.h:1: " + said)]
        write(place, "work/part.h", "#define THREADS 64\n")
        words = {"tune": {"THREADS": [64, 128], "WARPS": [2]}, "defines": {"ROWS": "THREADS"}, "restrictions": ["WARPS > 0", "ROWS > 0"]}
        for source, sentence in refused:
            path = specified(place, source, **words)
            for verb in ("check", "tune"):
                tap.has(place.run(verb, path, "--gpu", "L4", status=2).stderr, sentence)
        right = ["#if 0\n#define THREADS 64\n#endif\n" + kernel, "// #define THREADS 64\n/*\n#define THREADS 64\n*/\n" + kernel,
                 kernel + "#undef THREADS // behind its last use\n", GUARDED + kernel,
                 "#if !defined(THREADS)\n#define THREADS 32\n#endif\n#define THREADS_X THREADS\n" + kernel]
        for source in right:
            place.run("check", specified(place, source, **words), "--gpu", "L4")


def a_macro_that_nothing_reads_is_refused():
    with a_place() as place:
        kernel, said = KERNEL % "a * x[i]", "the source never uses the tunable TILE"
        tune = {"THREADS": [64, 128], "TILE": [1, 2]}
        for source, words, sentence in (
                (GUARDED.replace("THREADS", "TILE") + kernel + "// TILE\n", {}, said),
                (kernel, {"grid": "ceil_div(n, THREADS * TILE)"}, said),
                (kernel, {"defines": {"ROWS": "TILE * 2"}}, said),
                (kernel, {"tune": {"THREADS": [64]}, "defines": {"ROWS": "THREADS * 2"}}, "the source never uses the define ROWS")):
            path = specified(place, source, **{"tune": tune, **words})
            tap.has(place.run("check", path, "--gpu", "L4", status=1).stdout, sentence)
            tap.has(place.run(path, status=2).stderr, "fa-tune: axpy.cu:1: ")
            tap.has(place.run(path, status=2).stderr, sentence)
        for source, words in (
                (KERNEL % "a * x[i] + 0 * TILE", {}), ("#if TILE > 1\n#endif\n" + kernel, {}),
                (kernel, {"restrictions": ["TILE < THREADS"]}), (kernel, {"block": ["THREADS", "TILE / TILE"]}),
                (KERNEL % "a * x[i] + 0 * gridDim.y", {"grid": ["ceil_div(n, THREADS)", "TILE"]}),
                (KERNEL % "a * x[i] + 0 * ROWS", {"defines": {"HALF": "TILE", "ROWS": "HALF * 2"}}),
                ("#define JOIN(a, b) a##b\n" + KERNEL % "a * x[i] + 0 * JOIN(TI, LE)", {})):
            place.run("check", specified(place, source, **{"tune": tune, **words}), "--gpu", "L4")


GROUPS = """namespace cooperative_groups {
struct grid_group {
    __device__ bool is_valid() const { unsigned at; asm("mov.u32 %0, %%envreg2;" : "=r"(at)); return at != 0; }
    __device__ void sync() const { if (!is_valid()) { __trap(); } __syncthreads(); }
};
inline __device__ grid_group this_grid() { return grid_group(); }
}
"""


def a_cooperative_kernel_is_launched_so_and_its_grid_must_be_resident():
    with a_place() as place:
        tap.write(os.path.join(place.folder, "script"), "log %s/log\n" % place.folder, "a")
        place.env["CUDA_HOME"] = os.path.join(place.folder, "cuda")
        write(place, "cuda/include/cuda_fp16.h", "")
        write(place, "cuda/include/cooperative_groups.h", GROUPS)
        source = "#include <cooperative_groups.h>\n" + KERNEL.replace("\n{ int i", "\n{ cooperative_groups::this_grid().sync(); int i") % "a * x[i]"
        path = specified(place, source, cooperative=True)
        tap.has(place.run("check", path, "--gpu", "L4").stdout, "right")
        tap.equal(tuned(place, path), 1)
        tap.has(tap.read(os.path.join(place.folder, "log")), "cooperative, 16 blocks")
        for gpu in ([], ["--gpu", "H100"]):
            tap.has(place.run(path, "--n", "1000000", *gpu, status=1).stderr, "a cooperative grid of 15625 blocks, and ")
        tap.has(place.run("check", specified(place, source, cooperative=1), "--gpu", "L4", status=2).stderr, "\"cooperative\" must be true or false")


def what_only_a_host_can_make_is_refused_by_name():
    with a_place() as place:
        arguments = [dict(one) for one in SPECIFICATION["arguments"]]
        arguments[1]["type"] = "u64"
        for taken, value in (("float *const *x", "a * x[i][0]"), ("void **x", "a")):
            path = specified(place, (KERNEL % value).replace("const float *x", "const " + taken), arguments=arguments)
            tap.has(place.run("check", path, "--gpu", "L4", status=2).stderr, "argument 2 of axpy, x, is a pointer to pointers: addresses cannot be drawn")
        path = specified(place, "struct S { cudaTextureObject_t texture; };\n" + KERNEL % "a * x[i] + 0 * sizeof(S)")
        tap.has(place.run("check", path, "--gpu", "L4", status=1).stdout, "the source takes cudaTextureObject_t, a handle that the host makes")
        tap.has(place.run(path, status=2).stderr, "cudaTextureObject_t")
        place.run("check", specified(place, "// cudaTextureObject_t\n" + KERNEL % "a * x[i]"), "--gpu", "L4")


def folders_that_are_not_there_are_refused():
    with a_place() as place:
        for wrong in (["absent"], [7], "x", ["axpy.cu"], [""]):
            tap.has(place.run(specified(place, KERNEL % "a * x[i]", include=wrong), status=2).stderr, "\"include\"")


def a_file_without_a_specification_is_told_how_one_begins():
    with Place(space=None) as place:
        tap.has(place.run("check", write(place, "work/axpy.cu", KERNEL % "a * x[i]"), status=2).stderr,
                "axpy.cu: there is no specification: let the file begin with a comment, /* fa-tune {\"kernel\": ")


def neither_sizes_nor_tunables_are_needed():
    with a_place() as place:
        source, arguments = (KERNEL % "a * x[i]").replace("THREADS", "64"), [dict(one) for one in SPECIFICATION["arguments"]]
        path = specified(place, source, tune=None, block=64, grid="ceil_div(n, 64)")
        tap.equal([place.json(path)["answer"]["funnel"][name] for name in ("space", "measured")], [1, 1])
        for one in arguments[:2]:
            one["shape"] = [1000]
        arguments[3].update(type="i32", value="1000")
        for sizes in (None, {}):
            path = specified(place, source + "//%s\n" % sizes, tune={}, sizes=sizes, arguments=arguments, block=64, grid=16)
            tap.equal(tuned(place, path), 1)


def a_tunable_may_be_a_fraction_or_a_text():
    """It is a macro, may stand in restrictions, and everything that tells of a config tells it."""
    tune = {"THREADS": [128], "TYPE": ["float", "double"], "PART": [0.5, 1, -2.25], "FAST": [False, True]}
    source = ("static_assert(PART * 4 / 4 == PART && 1 / (2 * PART) != 0, \"it is a floating-point number\");\n"
              + KERNEL % "(TYPE)a * x[i] * (TYPE)PART + FAST * n")
    with a_place("fault TYPE=double;PART=0.5; wrong\ntime THREADS=128;TYPE=float;PART=-2.25; 5\n") as place:
        path = specified(place, source, tune=tune, default={"THREADS": 128, "TYPE": "float", "PART": 0.5, "FAST": False}, restrictions=[
            "FAST or TYPE == 'float'", "PART <= 0.5 or TYPE != \"double\"", "PART * 2 == 1 or PART in (1, -2.25)"])
        told = place.json(path)
        tap.equal([told["funnel"][name] for name in ("space", "in_budget", "measured", "failed")], [12, 8, 7, 1])
        winner = {"THREADS": 128, "TYPE": "float", "PART": -2.25, "FAST": 0}
        tap.equal(told["answer"]["config"]["tunables"], winner)
        tap.equal(place.json(path)["answer"]["config"]["tunables"], winner)  # from the store
        tap.has(place.run("explain", path).stdout, "  1  axpy        128   float  -2.25     0 ")
        tap.equal(place.json("report", path)["problems"][0]["winner"]["config"]["tunables"], winner)
        for key, wrong, sentence in (("restrictions", ["TYPE > 1"], "a text is used as a number"), ("grid", "TYPE", "is a text"),
                                     ("block", "64 * PART", "is a fraction"), ("tune", {"THREADS": [64, "x"]}, "or all be texts"),
                                     ("name", 7, "axpy.cu:1: \"name\" must be a text, or left out"),
                                     ("tune", {"THREADS": [64], "TYPE": None}, "tune TYPE has no value: leave it out"),
                                     ("tune", [1, 2], "\"tune\" must be an object"), ("defines", ["2"], "\"defines\" must be an object"),
                                     ("tune", {"THREADS": ["a;b"]}, "is no value"), ("default", {"TYPE": "half"}, "is half, which is not")):
            specified(place, source, **{"tune": tune, key: wrong})
            tap.has(place.run(path, status=2).stderr, sentence)


HEAD = """// SPDX-License-Identifier: Apache-2.0
/* fa-tune
{
  "kernel": "axpy",
  "arguments": [
    {"name": "y", "type": "f32", "shape": ["n"], "is": "inout"},
    {"name": "x", "type": "f32",
     "shape": ["n"]},
    {"name": "a", "type": "f32", "value": 2.5}, {"name": "n"}
  ],
  "sizes": {
    "n": 1000
  },
  "tune": {
    "THREADS": [64, 128],
    "PART": [1]
  },
  "defines": {"TWICE": "2 * PART"},
  "restrictions": [
    "THREADS > 1",
    "PART > 0"
  ],
  "block": "THREADS", "grid": ["ceil_div(n, THREADS)",
           "1"]
} */
"""


def a_fault_names_its_line():
    wrong = [('"is": "inout"', '"is": "io"', 6, "arguments[0] y: "), ('"n"]},\n    {"name": "a"', '"m"]},\n    {"name": "a"', 7, "unknown name m"),
             ('"n": 1000', '"n": "x"', 12, 'sizes n must'), ("[64, 128]", "[64, 64]", 15, "appears twice"), ("[1]", "[]", 16, "PART must be"),
             ('"2 * PART"', '"2 * PARTS"', 18, "unknown name PARTS"), ("PART > 0", "PART >", 19, "restrictions[1]"),
             ('"kernel": "axpy"', '"kernel": "axpi"', 4, "kernel: there is no kernel axpi"), ('"x", "type"', '"x", "align": 3, "type"', 7, "arguments[1] x: \"align\""),
             ('} */', '} } */', 25, "text after the JSON value"), ('"kernel"', '"source": "a.cu", "kernel"', 4, "leave it out"),
             ('"1"]', '"1", "ONE"]', 23, "grid[2]"), ('"block": "THREADS",', '"blok": "THREADS",', 23, 'did you mean "block"?'),
             ('"PART": [1]', '"PART": [1],', 17, "not valid JSON"), ('"1"]', '"1 + Q"]', 23, "unknown name Q"), ('"1"]', '"n[1]"]', 23, 'has "[1]" where an operator')]
    with a_place() as place:
        for old, new, line, sentence in wrong:
            assert HEAD.count(old) == 1, old
            path = write(place, "work/axpy.cu", HEAD.replace(old, new) + KERNEL % "a * x[i]")
            told = place.run(path, status=2).stderr
            tap.has(told, "fa-tune: axpy.cu:%d: " % line)
            tap.has(told, sentence)


def a_check_compiles_and_compares_without_a_gpu():
    with Place(space=None) as place:
        path = write(place, "work/axpy.cu", HEAD.replace('"sizes"', '"answer": "axpy_naive", "sizes"') + NAIVE + KERNEL % "a * x[i] + 0 * TWICE")
        run = place.run("check", path)
        tap.has(run.stdout, "A100")
        tap.has(run.stdout, "  axpy_naive ")
        told = place.json("check", path, "--gpu", "L4", "--n", "64")
        tap.equal([(kernel["entry"], kernel["answer"], kernel["parameter_bytes"], kernel["fault"]) for kernel in told["kernels"]],
                  [("axpy_naive", True, 24, ""), ("axpy", False, 24, "")])
        tap.equal((told["faults"], told["gpu"]["name"]), (0, "L4"))
        assert not os.path.exists(place.store)
        # what a kernel takes
        write(place, "work/axpy.cu", HEAD.replace('"f32", "value": 2.5', '"f64", "value": 2.5') + KERNEL % "a * x[i]")
        tap.has(place.run("check", path, status=1).stdout, "argument 3 of axpy, a, has 4 bytes, and fp64 has 8")
        # the types: each row an argument's type, the kernel's parameters, and what is wrong; of kinds in turn, of all with ./dev test --slow
        kinds = [("", "", "axpy"), ("namespace my { struct S {}; ", "}", None), ('extern "C" {', "}", "axpy"), ("typedef float real; template <class T> ", "", "axpy<real>")]
        for row, (index, type_, taken, word) in enumerate((
                (0, "f64", "float *", "argument 1 of axpy, y, is not fp64 * in the kernel"), (1, "i8", "const float *", "argument 2 of axpy, x, is not int8 * in the kernel"),
                (1, "f64", "const int *", "argument 2 of axpy, x, is not fp64 * in the kernel"), (1, "i64", "const int *", "x, is not int64 * in the kernel"),
                (2, "i32", "float", "argument 3 of axpy, a, is not int32 in the kernel"), (2, "f64", "float *", "argument 3 of axpy, a, is not fp64 in the kernel"),
                (1, "f32", "const __half *", "x, is not fp32 * in the kernel"), (0, "f32", "float *", ""), (1, "u32", "const int *__restrict__", ""), (1, "u8", "const volatile unsigned char *", ""),
                (1, "i8", "const int *", ""), (1, "f16", "const unsigned short *", ""), (1, "f32", "const int *", ""), (1, "c64", "const float *", ""), (1, "f32", "const float4 *", ""))):
            parameters = ["float *y", "const float *x", "float a", "int n"]
            parameters[index] = taken + " p"
            arguments = [dict(one) for one in SPECIFICATION["arguments"]]
            arguments[index].update(type=type_, **({"value": 2} if index == 2 else {}))
            for begin, end, kernel in kinds if SLOW else [kinds[row % 4]]:
                source = "struct __half;\n%s__global__ void axpy(%s) {}%s\n" % (begin, ", ".join(parameters), end)
                run = place.run("check", specified(place, source, arguments=arguments, kernel=kernel), status=2 if word else 0)
                tap.has(run.stderr if word else run.stdout, word or "right")
        # a struct by value has no words here; an enum is the integer that it is passed as
        for index, type_, head, taken, word in (
                (2, "f64", "struct P { double a; }; ", "P", "argument 3 of axpy, a, is a struct: say its \"fields\", each an argument as others are"),
                (2, "i64", "class P { long long a; }; ", "P", "a, is a struct"), (2, "f32", "union P { float a; int b; }; ", "P", "a, is a struct"),
                (0, "f32", "struct P { float *y; const float *x; float a; int n; }; ", "P", "y, is a struct"), (2, "i32", "enum P { NONE }; __device__ int axpy(P p) { return p; } ", "P", ""),
                (2, "f64", "namespace ns { struct P { double a; }; } ", "const ns::P", "a, is a struct"), (2, "i32", "namespace ns { enum P { NONE }; } ", "ns::P", ""),
                (2, "f64", "template <class T> struct P { T a; }; ", "P<double>", "a, is a struct")):
            parameters, arguments = ["float *y", "const float *x", "float a", "int n"], [dict(one) for one in SPECIFICATION["arguments"]]
            parameters[index] = taken + " p"
            arguments[index].update(type=type_, **({"value": 2} if index == 2 else {}))
            run = place.run("check", specified(place, "%s__global__ void axpy(%s) { }\n" % (head, ", ".join(parameters)), arguments=arguments), status=2 if word else 0)
            tap.has(run.stderr if word else run.stdout, word or "right")
        # every error of the compiler, with the lines of the file
        write(place, "work/axpy.cu", HEAD + KERNEL % "b * x[i]" + "static_assert(what, \"\");\n")
        run = place.run("check", path, status=1)
        tap.has(run.stdout, 'axpy.cu(27): error: identifier "b" is undefined')
        tap.has(run.stdout, "axpy.cu(28): error")
        # lines of the file beside JSON
        document = json.dumps({**SPECIFICATION, "source": "kernels.cu"})
        write(place, "work/kernels.cu", "\n" + KERNEL % "b * x[i]")
        tap.has(place.run("check", write(place, "work/axpy.json", document), status=1).stdout, "kernels.cu(3): error")
        for arguments in ((), ("--seq", "512")):
            tap.has(place.run("check", *arguments, status=2).stderr, "FILE.cu is missing")
    with a_place() as place:
        tap.has(place.run(specified(place, KERNEL.replace("float *y", "double *y") % "x[i]"), status=2).stderr, "fa-tune: axpy.cu:3: argument 1 of axpy, y, is not fp32 * in the kernel")


def several_kernels_run_one_behind_the_other():
    source = "template <int N> __global__ void axpy_first" + BODY % "0" + KERNEL % "a * x[i]" + NAIVE
    launches = [{"kernel": "axpy_first<THREADS>", "block": "THREADS", "grid": "ceil_div(n, THREADS)"},
                {"kernel": "axpy", "block": "THREADS", "grid": "ceil_div(n, THREADS)", "shared_memory": {"part": "THREADS * 4"}}]
    twice = {"kernel": None, "block": None, "grid": None, "launches": launches}
    with a_place() as place:  # whose axpy_first adds, too
        path = specified(place, source, **twice)
        told = place.json(path)
        tap.equal((told["funnel"]["measured"], told["funnel"]["failed"]), (1, 0))
        with_answer = specified(place, source, **twice, answer="axpy_naive")
        tap.has(place.run(with_answer, status=1).stderr, "the reference says")
        tap.equal([kernel["entry"] for kernel in place.json("check", with_answer)["kernels"]], ["axpy_naive", "axpy_first", "axpy"])
        for changes, sentence in (({"block": 64}, "\"block\" is given beside \"launches\""), ({"launches": []}, "1 to 5 launches"),
                                  ({"launches": [{"block": 1, "grid": 1}]}, "launches[0] must be an object with a \"kernel\""),
                                  ({"launches": [{**launches[0], "grid": "Q"}]}, "launches[0]: grid[0]"),
                                  ({"launches": [{**launches[0], "entry": "x"}]}, "\"entry\"")):
            tap.has(place.run(specified(place, source, **{**twice, **changes}), status=2).stderr, sentence)


def a_number_has_the_type_of_its_parameter():
    arguments = [*SPECIFICATION["arguments"][:2], {"name": "a", "value": 1.5}, {"name": "n"}]

    def source(a, n="int n"):
        return KERNEL.replace("float a", a).replace("int n)", n + ")") % "(float)a * x[i]"
    with a_place() as place:
        for a, n, value in (("double a", "int n", 1.5), ("const double  a", "long long n", 1.5), ("__half a", "size_t n", 2.5), ("unsigned char a", "unsigned n", 200),
                            ("bool", "short n", 1), ("float long_a", "uint64_t half", 1.5), ("long int a", "const unsigned long long int n", -3)):
            path = specified(place, "#include <cuda_fp16.h>\n" + source(a, n).replace("(float)a", "2.0f").replace("i < n", "i < 5"), arguments=[*arguments[:2], {"name": "a", "value": value}, arguments[3]])
            tap.equal([one["fault"] for one in place.json("check", path)["kernels"]], [""])
        tap.equal(tuned(place, specified(place, source("float a"), arguments=arguments)), 1)
        assert b"fa_number" not in tap.read(place.store, "rb")  # what the compiler compares types by is in no cubin
        template = "template <typename T, int K>\n__global__ void axpy(float *y, const float *x, T a, int n) { if (n > K) y[threadIdx.x] = (float)a * x[THREADS]; }\n"
        tap.equal(place.json("check", specified(place, template, arguments=arguments, kernel="axpy<float, 3>"))["faults"], 0)  # fp32 where words say nothing
        twice = [{"kernel": "axpy", "block": "THREADS", "grid": 1, "arguments": ["y", "x", "a", "n"]}, {"kernel": "axpy_first", "block": "THREADS", "grid": 1, "arguments": ["b", "y"]}]
        path = specified(place, source("double a") + "__global__ void axpy_first(unsigned short b, float *y) { y[b] = 0; }\n", launches=twice, kernel=None, block=None, grid=None,
                         arguments=[*arguments, {"name": "b", "value": 7}])
        tap.equal([one["fault"] for one in place.json("check", path)["kernels"]], ["", ""])
        for wrong, sentence in (("int a", "arguments[2] a: its value 1.5 does not fit in int32"), ("unsigned a", "does not fit in uint32")):
            tap.has(place.run(specified(place, source(wrong), arguments=arguments), status=2).stderr, sentence)
        tap.has(place.run("check", specified(place, source("double a"), arguments=[*arguments[:2], {**arguments[2], "type": "f32"}, arguments[3]]), status=1).stdout,
                "argument 3 of axpy, a, has 8 bytes, and fp32 has 4")


def a_struct_by_value_has_fields():
    head, _, code = tap.read(os.path.join(SOURCE, "examples", "struct.cu")).partition("*/")
    document = json.loads(head[head.index("{"):])
    y, x, n, scale = fields = document["arguments"][0]["fields"]
    with a_place("fault THREADS=64; wrong\n") as place:
        def written(arguments, **words):
            return write(place, "struct.cu", "/* fa-tune %s */\n%s" % (json.dumps({**document, **words, "arguments": arguments}), code))
        told = place.json(written([{"name": "p", "fields": fields}]), "--n", "777")
        tap.equal((told["funnel"]["measured"], told["funnel"]["failed"]), (2, 1))
        kernels = place.json("check", written([{"name": "p", "fields": [y, x, scale, {**n, "name": "n"}]}]))["kernels"]
        tap.equal([one["fault"] for one in kernels], [""] * 2)  # of the same size: nothing says more
        for changed, sentence in (([y, x, n], "argument 1 of packed, p, has 32 bytes, and its 3 fields have 24"),
                                  ([y, x, n, {**scale, "type": "f32"}], "argument 1 of packed, p, has 32 bytes, and its 4 fields have 24")):
            tap.has(place.run("check", written([{"name": "p", "fields": changed}]), status=1).stdout, sentence)
        for changed, sentence in (({"fields": []}, "\"fields\" must be an array of arguments"), ({"fields": fields, "type": "f32"}, "beside a \"name\" alone"),
                                  ({"fields": [*fields, y]}, "arguments[0] y appears twice"), ({"fields": [{**y, "fields": [x]}]}, "\"fields\""),
                                  ({"fields": [y, {**x, "is": "scratch"}, n, scale]}, "x: a field has no \"symbol\" and is no scratch")):
            tap.has(place.run("check", written([{"name": "p", **changed}]), status=2).stderr, sentence)
        tap.has(place.run("check", written(fields), status=2).stderr, "is a struct: say its \"fields\"")


def an_answer_is_launched_as_the_default_config_says():
    source = KERNEL % "STEP * a * x[i]" + NAIVE
    answer = {"kernel": "axpy_naive", "block": "THREADS", "grid": "ceil_div(n, THREADS * STEP)", "shared_memory": {"part": "THREADS * 4"}}
    words = {"answer": answer, "tune": {"THREADS": [64, 128], "LATE": [1]}, "defines": {"STEP": "LATE"}}
    for changes, size, seen in (({}, 1000, "16x1x1, 64 threads, 256 B"), ({"default": {"THREADS": 128, "LATE": 1}}, 1000, "8x1x1, 128 threads, 512 B"),
                                ({"restrictions": ["THREADS <= 64 or n < 1000"], "default": {"THREADS": 128, "LATE": 1}}, 1200, "19x1x1, 64 threads, 256 B"),
                                ({"answer": {"kernel": "axpy_naive", "block": [32, "THREADS // 32"], "grid": 7}}, 1000, "7x1x1, 64 threads, 0 B")):
        with a_place() as place:
            log = os.path.join(place.folder, "log")
            write(place, "script", L4 + "log %s\n" % log)
            path = specified(place, source, **{**words, **changes})
            tap.equal(place.json(path, "--n", str(size))["answer"]["proved"], True)
            tap.has(tap.read(log).partition("launch axpy_naive ")[2].partition("\n")[0], " of %s" % seen)
    with a_place() as place:
        for wrong, sentence in (({"block": 2048}, "the answer: 2,048 threads: a block has at most 1,024"), ({"grid": "n - THREADS * 16"}, "grid x is -24")):
            tap.has(place.run(specified(place, source, **{**words, "answer": {**answer, **wrong}}), status=2).stderr, sentence)


def a_cluster_is_the_kernels_own():
    kernel = "__global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS) axpy" + BODY % "a * x[i]"
    with a_place() as place:
        path = specified(place, kernel, tune={"THREADS": [64], "CLUSTER": [2]}, grid="ceil_div(n, THREADS * CLUSTER) * CLUSTER")
        tap.equal(place.json("check", path, "--gpu", "H100")["kernels"][0]["fault"], "")
        tap.has(place.run("check", path, "--gpu", "A100", status=1).stdout, "cluster")


def c_keys(file, function):
    """The list of keys that a function of the reader knows."""
    body = tap.read(os.path.join(SOURCE, "tuner", file)).split(" %s(" % function, 1)[1]
    listed = re.search(r"(?:keys|of_\w+)\[\] = \{([^}]*?)\bNULL\}", body, re.DOTALL).group(1)
    return sorted(re.findall(r'"(\w+)"', listed))


def the_json_schema_is_what_is_read():
    schema = json.loads(tap.read(os.path.join(SOURCE, "docs", "specification.schema.json")))
    for place, file, function in ((schema, "spec.c", "read_identity"), (schema["$defs"]["launch"], "manifest.c", "fa_spec_check_launches"),
                                  (schema["$defs"]["size"], "../src/base/operation.c", "read_later"),
                                  (schema["$defs"]["argument"], "../src/base/operation.c", "check_keys"),
                                  (schema["$defs"]["answer"], "spec_reading.c", "add_answer"),
                                  (schema["$defs"]["restriction"], "manifest.c", "read_rule")):
        tap.equal((sorted(place["properties"]), place["additionalProperties"]), (c_keys(file, function), False))
    try:
        import jsonschema
    except ImportError:
        return
    validator = jsonschema.Draft202012Validator(schema)
    good = [SPECIFICATION, {**SPECIFICATION, "tune": {"A": [0.5, 1], "B": ["x"], "C": [True]}, "include": ["x"], "options": ["-w"]}]
    for name in ("conv2d.cu", "gather.cu", "axpy.json"):
        text = tap.read(os.path.join(SOURCE, "tests", "specifications", name))
        good.append(json.loads(text if name.endswith("json") else text[text.index("{"):text.index("*/")]))
    for document in good:
        tap.equal([error.message for error in validator.iter_errors(document)], [])
    for change in ({"tuna": {}}, {"tune": {}}, {"sizes": {}}, {"grid": []}, {"arguments": [{"type": "f32"}]}, {"launches": []},
                   {"tune": {"A": []}}, {"options": "-w"}, {"answer": {"block": 1}}):
        assert not validator.is_valid({**SPECIFICATION, **change}), change


def read_text(library, where, document, source):
    class Diag(ctypes.Structure):
        _fields_ = [("text", ctypes.c_char * 1024)]
    diag, operation = Diag(), ctypes.c_void_p()
    rc = library.fa_spec_read(where.encode(), json.dumps(document).encode(), source.encode(),
                              ctypes.byref(operation), ctypes.byref(diag))
    return rc, diag.text.decode()


def a_text_names_no_file():
    """It may come from outside. With the path of a file it is that file's."""
    if is_sanitized():
        raise tap.Skip("Python's own process has no sanitizer")
    with a_place() as place:
        write(place, "work/scale.h", "#define SCALE(a, x) ((a) * (x))\n")
        library = ctypes.CDLL(os.path.join(BUILD, "libfa_tune.so"))
        source = "#include \"%s\"\n#include \"/etc/passwd\"\n#include <../cuda.h>\n" + KERNEL % "SCALE(a, x[i])"
        beside = os.path.join(place.folder, "work", "axpy.cu")
        tap.equal(read_text(library, "axpy", {**SPECIFICATION, "include": ["."]}, source)[1],
                  "axpy: \"include\" names folders, which a text may not")
        tap.has(read_text(library, "axpy", {**SPECIFICATION, "answer": {"kernel": "axpy", "source": "other.cu"}}, source)[1],
                "a text names no file")
        rc, sentence = read_text(library, "axpy", SPECIFICATION, source % beside.replace("axpy.cu", "scale.h"))
        tap.equal((rc, sentence), (0, ""))  # and its compile finds nothing, as the service's tests show
        tap.equal(read_text(library, beside, {**SPECIFICATION, "include": ["."]}, source % "scale.h")[0], 0)


def a_source_is_read_in_linear_time():
    """In quadratic time each of these takes minutes."""
    if is_sanitized():
        raise tap.Skip("Python's own process has no sanitizer")
    library, plain = ctypes.CDLL(os.path.join(BUILD, "libfa_tune.so")), KERNEL % "a * x[i]"
    document = {name: value for name, value in SPECIFICATION.items() if name != "kernel"}
    for unit in ("__global__ ", "template __global__ ", "__global__ <", "__global__ __launch_bounds__(", "template <", "/*", '"', "R\"(",
                 "(", "{", "#", "'", "#undef THREADS\n", "#define THREADS 64\n", "#ifdef THREADS\n", "THREADS "):
        tap.equal(read_text(library, "axpy", document, plain + unit * (760000 // len(unit))), (0, ""))
    for unit in ("__global__ void f( ", "__global__ <__global__ void f("):
        tap.equal(read_text(library, "axpy", document, plain + unit * (760000 // len(unit))),
                  (-11, 'axpy: "kernel" must say which one is meant: axpy, f'))
    for unit in ("__global__ __launch_bounds__(__global__ void f(", "a<", "operator ", "#define A B\n", "#if 0\n", "#if 1\n#else\n", "class A { A() {} ", "A(", "A() ", "enum { A } ", "struct{",
                 "A::A() : b{", "a = {", "BlockReduce ", "Block", "using namespace a; ", "#include <a.h>\n", "a;", "##", "\\\n", "[", "-> "):
        tap.equal(read_text(library, "axpy", document, plain + unit * (760000 // len(unit))), (0, ""))


tap.main()
