// A CUDA driver and run-time compiler that compute on the CPU: memory is the host's, a kernel is compiled by g++, the
// threads of a block are fibers. Everything above is CubeCL's own, so what runs is the source that a GPU would get.
// What no kernel of ours uses is missing: wmma, TMA, cp.async, most atomics, f16. For x86-64. run.sh builds and starts it.
//
//   EMUCUDA         the folder of emu.h
//   EMUCUDA_CACHE   the folder of compiled kernels
//   EMUCUDA_ORDER   "back" runs the last thread of a block first: a race gives other numbers in one of the orders
//   EMUCUDA_COUNT   a file: from when it is there on, nothing is computed, and memory that is asked for is not even there
//   EMUCUDA_LOST    a file: from when it is there on, the device is gone: launches, copies and waits fail
//   EMUCUDA_REPORT  the file of these counts, written whenever somebody waits for the device
//   EMUCUDA_BYTES   the memory of the device, 4 GiB unless told
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

struct uint3 { unsigned x, y, z; };
struct Emu {
    uint3 thread, block, block_dim, grid_dim;
    void *shared;
    unsigned lane;
    void (*sync_block)(), (*sync_warp)();
    uint64_t *slots;
};
#define API extern "C" __attribute__((visibility("default"))) int
enum { OK = 0, OUT_OF_MEMORY = 2, DEVICE_UNAVAILABLE = 46, INVALID_IMAGE = 200, NOT_FOUND = 500, INVALID_DEVICE = 101, NVRTC_COMPILATION = 6 };
static std::string setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}
// What a copy from memory that is not there gives: numbers of 32 bits of about 0.75, which a loss may be.
static const int ANYTHING = 0x3f;
// Whether launches, copies, waits and bytes are counted only.
static bool counting() {
    static const std::string path = setting("EMUCUDA_COUNT", "");
    static bool now;
    return now || (now = !path.empty() && access(path.c_str(), F_OK) == 0);
}
static bool lost() {
    static const std::string path = setting("EMUCUDA_LOST", "");
    return !path.empty() && access(path.c_str(), F_OK) == 0;
}

// Fibers: a stack each, and what the callee saves.
enum Wait { RUN, BLOCK, WARP, DONE };
struct Fiber { void *stack_pointer; Emu view; Wait wait; };
static const size_t STACK = 256 << 10, THREADS = 1024;
static Fiber fibers[THREADS];
static char *stacks;
static void *scheduler;
static Fiber *now;
static void (*entry)(void **);
static void **arguments;
static Emu **kernels_view;
extern "C" void emucuda_switch(void **from, void *to);
asm(R"(
.text
.local emucuda_switch
emucuda_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");
static void leave(Wait why) {
    now->wait = why;
    emucuda_switch(&now->stack_pointer, scheduler);
}
static void sync_block() { leave(BLOCK); }
static void sync_warp() { leave(WARP); }
static void body() {
    entry(arguments);
    leave(DONE);
}
static void start(size_t i) {
    void **top = (void **)(stacks + (i + 1) * STACK);
    *--top = nullptr;  // where body would return to; it keeps the stack on 16 bytes, too
    *--top = (void *)body;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    fibers[i].stack_pointer = top;
    fibers[i].wait = RUN;
}
static void go_on(Fiber &fiber) {
    now = &fiber;
    *kernels_view = &fiber.view;
    emucuda_switch(&scheduler, fiber.stack_pointer);
}
static void run_block(size_t threads) {
    static const bool back = setting("EMUCUDA_ORDER", "") == "back";
    for (size_t left = threads; left;) {
        bool moved = false;
        for (size_t n = 0; n < threads; n++) {
            Fiber &fiber = fibers[back ? threads - 1 - n : n];
            if (fiber.wait != RUN) continue;
            go_on(fiber);
            moved = true;
            if (fiber.wait == DONE) left--;
        }
        for (size_t warp = 0; warp < threads; warp += 32) {
            size_t end = std::min(threads, warp + 32), waiting = 0, alive = 0;
            for (size_t i = warp; i < end; i++) alive += fibers[i].wait != DONE, waiting += fibers[i].wait == WARP;
            if (!alive || waiting != alive) continue;
            for (size_t i = warp; i < end; i++) if (fibers[i].wait == WARP) fibers[i].wait = RUN, moved = true;
        }
        size_t waiting = 0;
        for (size_t i = 0; i < threads; i++) waiting += fibers[i].wait == BLOCK;
        if (left && waiting == left)
            for (size_t i = 0; i < threads; i++) if (fibers[i].wait == BLOCK) fibers[i].wait = RUN, moved = true;
        if (left && !moved) {
            fprintf(stderr, "emucuda: the threads of a block wait for each other\n");
            abort();
        }
    }
}

// What was asked of the device.
static struct { size_t launches, uploads, downloads, waits, bytes, peak; } count;
static std::map<std::string, size_t> launches_of;
static std::mutex one;
static int wait_for_device() {
    if (lost()) return DEVICE_UNAVAILABLE;
    std::lock_guard<std::mutex> guard(one);
    count.waits++;
    std::string path = setting("EMUCUDA_REPORT", "");
    if (path.empty()) return OK;
    std::string text = "launches " + std::to_string(count.launches) + "\nuploads " + std::to_string(count.uploads) + "\ndownloads " +
        std::to_string(count.downloads) + "\nwaits " + std::to_string(count.waits) + "\nbytes " + std::to_string(count.bytes) + "\npeak " +
        std::to_string(count.peak) + "\n";
    for (auto &[name, launches] : launches_of) text += "kernel " + name + " " + std::to_string(launches) + "\n";
    if (FILE *file = fopen((path + ".new").c_str(), "w")) {
        fputs(text.c_str(), file);
        fclose(file);
        rename((path + ".new").c_str(), path.c_str());
    }
    return OK;
}

// Kernels.
struct Function { std::string name; void (*call)(void **); Emu **view; bool meets; };
struct Module { void *library; };
API cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *, void **p, void **) {
    if (lost()) return DEVICE_UNAVAILABLE;
    std::lock_guard<std::mutex> guard(one);
    count.launches++;
    launches_of[f->name]++;
    if (counting()) return OK;
    size_t threads = (size_t)bx * by * bz;
    if (threads > THREADS) return 1;
    if (!stacks) stacks = (char *)mmap(nullptr, STACK * THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    std::vector<char> memory(shared + 64);
    void *base = (void *)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
    std::vector<uint64_t> slots((threads + 31) / 32 * 256);
    entry = f->call;
    arguments = p;
    kernels_view = f->view;
    for (size_t i = 0; i < threads; i++) {
        uint3 thread = {(unsigned)(i % bx), (unsigned)(i / bx % by), (unsigned)(i / bx / by)};
        fibers[i].view = {thread, {}, {bx, by, bz}, {gx, gy, gz}, base, (unsigned)(i % 32), sync_block, sync_warp, &slots[i / 32 * 256]};
    }
    for (unsigned z = 0; z < gz; z++) for (unsigned y = 0; y < gy; y++) for (unsigned x = 0; x < gx; x++) {
        memset(base, 0xff, shared);  // not a number: nobody may count on zeros
        for (size_t i = 0; i < threads; i++) fibers[i].view.block = {x, y, z};
        if (f->meets) {
            for (size_t i = 0; i < threads; i++) start(i);
            run_block(threads);
        } else {
            // Threads that never wait for one another need no stacks of their own.
            for (size_t i = 0; i < threads; i++) *kernels_view = &fibers[i].view, entry(arguments);
        }
    }
    return OK;
}
API cuModuleLoadData(Module **m, const char *path) {
    bool counts = counting();
    *m = new Module{counts ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (counts || (*m)->library) return OK;
    fprintf(stderr, "emucuda: %s\n", dlerror());
    return INVALID_IMAGE;
}
API cuModuleGetFunction(Function **f, Module *m, const char *name) {
    *f = new Function{name, nullptr, nullptr, false};
    if (!m->library) return OK;
    (*f)->call = (void (*)(void **))dlsym(m->library, "emu_call");
    (*f)->view = (Emu **)dlsym(m->library, "emu");
    int *meets = (int *)dlsym(m->library, "emu_meets");
    (*f)->meets = !meets || *meets;
    return (*f)->call ? OK : NOT_FOUND;
}

// Memory.
static std::map<void *, size_t> sizes;
static const uintptr_t NOWHERE = (uintptr_t)1 << 50;
static bool is_nowhere(const void *p) { return (uintptr_t)p >= NOWHERE; }
static size_t device_bytes() { return strtoull(setting("EMUCUDA_BYTES", "4294967296").c_str(), nullptr, 10); }
API cuMemAllocAsync(void **p, size_t n, void *) {
    static uintptr_t nowhere = NOWHERE;
    std::lock_guard<std::mutex> guard(one);
    if (count.bytes + n > device_bytes()) return OUT_OF_MEMORY;
    if (counting()) *p = (void *)nowhere, nowhere += (n + 511) / 512 * 512;
    else if (posix_memalign(p, 512, n ? n : 1)) return OUT_OF_MEMORY;
    else memset(*p, 0xff, n);
    sizes[*p] = n;
    count.bytes += n;
    count.peak = std::max(count.peak, count.bytes);
    return OK;
}
API cuMemFreeAsync(void *p, void *) {
    std::lock_guard<std::mutex> guard(one);
    count.bytes -= sizes[p];
    sizes.erase(p);
    if (!is_nowhere(p)) free(p);
    return OK;
}
API cuMemAlloc_v2(void **p, size_t n) { return cuMemAllocAsync(p, n, nullptr); }
API cuMemFree_v2(void *p) { return cuMemFreeAsync(p, nullptr); }
API cuMemAllocHost_v2(void **p, size_t n) { return posix_memalign(p, 512, n ? n : 1) ? OUT_OF_MEMORY : OK; }
API cuMemFreeHost(void *p) { free(p); return OK; }
API cuMemcpyHtoDAsync_v2(void *d, const void *h, size_t n, void *) {
    count.uploads++;
    if (!is_nowhere(d)) memcpy(d, h, n);
    return OK;
}
API cuMemcpyDtoHAsync_v2(void *h, const void *d, size_t n, void *) {
    if (lost()) return DEVICE_UNAVAILABLE;
    count.downloads++;
    if (counting() || is_nowhere(d)) memset(h, ANYTHING, n);
    else memcpy(h, d, n);
    return OK;
}
API cuMemcpyDtoDAsync_v2(void *d, const void *e, size_t n, void *) {
    if (!is_nowhere(d) && !is_nowhere(e)) memmove(d, e, n);
    return OK;
}
API cuMemsetD8Async(void *d, unsigned char c, size_t n, void *) {
    if (!is_nowhere(d)) memset(d, c, n);
    return OK;
}
struct Copy {
    size_t from_x, from_y;
    int from_type;
    const char *from_host, *from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    char *to_host, *to_device;
    void *to_array;
    size_t to_pitch, width, height;
};
API cuMemcpy2DAsync_v2(const Copy *c, void *) {
    enum { HOST = 1 };
    (c->from_type == HOST ? count.uploads : count.downloads)++;
    for (size_t y = 0; y < c->height; y++) {
        char *to = (c->to_type == HOST ? c->to_host : c->to_device) + (c->to_y + y) * c->to_pitch + c->to_x;
        const char *from = (c->from_type == HOST ? c->from_host : c->from_device) + (c->from_y + y) * c->from_pitch + c->from_x;
        if (c->to_type == HOST && (counting() || is_nowhere(from))) memset(to, ANYTHING, c->width);
        else if (!is_nowhere(from) && !is_nowhere(to)) memcpy(to, from, c->width);
    }
    return OK;
}

// The rest of the driver: one device, and everything is done when a call returns.
API cuInit(unsigned) { return OK; }
API cuDriverGetVersion(int *v) { *v = 13000; return OK; }
API cuGetErrorName(int e, const char **s) { *s = e == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR"; return OK; }
API cuGetErrorString(int e, const char **s) { *s = e == OUT_OF_MEMORY ? "out of memory" : "an error"; return OK; }
API cuDeviceGet(int *d, int i) { *d = i; return i ? INVALID_DEVICE : OK; }
API cuDeviceGetCount(int *n) { *n = 1; return OK; }
API cuDeviceGetName(char *s, int n, int) { snprintf(s, n, "emulated sm_90"); return OK; }
API cuDeviceTotalMem_v2(size_t *b, int) { *b = device_bytes(); return OK; }
API cuMemGetInfo_v2(size_t *f, size_t *t) { *t = device_bytes(); *f = *t - count.bytes; return OK; }
API cuDeviceGetUuid(void *u, int) { memset(u, 0, 16); return OK; }
API cuDeviceGetUuid_v2(void *u, int) { memset(u, 0, 16); return OK; }
API cuDeviceGetAttribute(int *v, int attribute, int) {
    // Of an H100, by the numbers of CUdevice_attribute.
    static const std::map<int, int> known = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535},
        {8, 49152}, {10, 32}, {16, 132}, {75, 9}, {76, 0}, {97, 232448}, {115, 1}};
    auto found = known.find(attribute);
    *v = found == known.end() ? 0 : found->second;
    return OK;
}
API cuDevicePrimaryCtxRetain(void **c, int) { *c = (void *)0x1000; return OK; }
API cuCtxGetCurrent(void **c) { *c = (void *)0x1000; return OK; }
API cuStreamCreate(void **s, unsigned) { static uintptr_t n = 0x2000; *s = (void *)(n += 16); return OK; }
API cuEventCreate(void **e, unsigned) { static uintptr_t n = 0x100000; *e = (void *)(n += 16); return OK; }
API cuEventElapsedTime(float *ms, void *, void *) { *ms = 0.01f; return OK; }
API cuEventElapsedTime_v2(float *ms, void *, void *) { *ms = 0.01f; return OK; }
API cuStreamSynchronize(void *) { return wait_for_device(); }
API cuCtxSynchronize() { return wait_for_device(); }
API cuEventSynchronize(void *) { return wait_for_device(); }
#define NOTHING_TO_DO(name) API name() { return OK; }
NOTHING_TO_DO(cuDevicePrimaryCtxRelease_v2)
NOTHING_TO_DO(cuCtxSetCurrent)
NOTHING_TO_DO(cuStreamDestroy_v2)
NOTHING_TO_DO(cuStreamWaitEvent)
NOTHING_TO_DO(cuEventRecord)
NOTHING_TO_DO(cuEventDestroy_v2)
NOTHING_TO_DO(cuEventQuery)
NOTHING_TO_DO(cuModuleUnload)
NOTHING_TO_DO(cuFuncSetAttribute)
API cuFuncGetAttribute(int *v, int, void *) { *v = 0; return OK; }

// The compiler: the generated source with what is not C++ replaced, given to g++.
using std::string;
static string replace_all(string text, const string &from, const string &to) {
    for (size_t at = 0; (at = text.find(from, at)) != string::npos; at += to.size()) text.replace(at, from.size(), to);
    return text;
}
static bool has(const string &text, const string &part) { return text.find(part) != string::npos; }
static string registers(const string &name, int count) {
    string all;
    for (int i = 0; i < count; i++) all += (i ? ", reg_" : "reg_") + name + "_" + std::to_string(i);
    return all;
}
static string of_asm(const string &body) {
    if (has(body, "mma.sync.aligned.m16n8k16") && has(body, ".bf16.bf16")) {
        string text = "uint32_t a[] = {" + registers("a", 4) + "}, b[] = {" + registers("b", 2) + "}; float c[] = {" + registers("c", 4) +
            "}, d[4]; emu_mma(a, b, c, d);";
        for (int i = 0; i < 4; i++) text += "reg_d_" + std::to_string(i) + " = d[" + std::to_string(i) + "];";
        return text;
    }
    size_t load = body.find("ldmatrix.sync");
    if (load != string::npos) {
        int count = body[body.find(".x", load) + 2] - '0';
        string text = "uint32_t r[" + std::to_string(count) + "]; emu_ldmatrix(r, " + std::to_string(count) + ", " +
            (has(body, ".trans") ? "true" : "false") + ", row_addr);";
        for (int i = 0; i < count; i++) text += "reg_" + std::to_string(i) + " = r[" + std::to_string(i) + "];";
        return text;
    }
    return "static_assert(false, \"asm that emucuda does not know\");";
}
// The parameters of a kernel as a call with an array of pointers to them.
static string call_of(const string &text) {
    size_t at = text.find("extern \"C\" __global__ void"), open, close;
    at = text.find("void", at) + 4;
    if (size_t bounds = text.find("__launch_bounds__", at); bounds != string::npos && bounds < text.find('{', at)) at = text.find(')', bounds) + 1;
    open = text.find('(', at);
    close = text.find(')', open);
    string name = text.substr(at, open - at), list = text.substr(open + 1, close - open - 1), arguments;
    name.erase(0, name.find_first_not_of(" \n"));
    for (size_t from; (from = list.find("/*")) != string::npos;) list.erase(from, list.find("*/", from) + 2 - from);
    for (const char *word : {"const ", "__grid_constant__ ", "__restrict__ "}) list = replace_all(list, word, " ");
    int index = 0;
    for (size_t from = 0; from < list.size(); index++) {
        size_t end = std::min(list.find(',', from), list.size());
        string one = list.substr(from, end - from);
        from = end + 1;
        size_t last = one.find_last_not_of(" \n");
        if (last == string::npos) { index--; continue; }
        one.erase(one.find_last_of(" \n*&", last) + 1);
        arguments += (index ? ", *(" : "*(") + replace_all(one, "&", "") + " *)p[" + std::to_string(index) + "]";
    }
    return "\nextern \"C\" void emu_call(void **p) { " + name + "(" + arguments + "); }\n";
}
static string as_cpp(string text) {
    for (size_t at; (at = text.find("asm volatile")) != string::npos;) {
        size_t end = text.find(");", at) + 2;
        text.replace(at, end - at, of_asm(text.substr(at, end - at)));
    }
    text = replace_all(text, "uint32 addr = static_cast<uint32>(__cvta_generic_to_shared(row_addr));", "");
    if (size_t at = text.find("extern __shared__"); at != string::npos)
        text.replace(at, text.find(';', at) + 1 - at, "unsigned char *dynamic_shared_mem = (unsigned char *)emu->shared;");
    // Lines that include NVIDIA's headers.
    for (size_t at; (at = text.find("#include")) != string::npos;) text.erase(at, text.find('\n', at) - at);
    bool meets = has(text, "__sync") || has(text, "__shfl") || has(text, "emu_mma") || has(text, "emu_ld") || has(text, "__ballot");
    return "#include \"emu.h\"\n" + text + call_of(text) + "extern \"C\" { int emu_meets = " + (meets ? "1" : "0") + "; }\n";
}
static string hash_of(const string &text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)hash);
    return digits;
}
static string contents(const string &path) {
    string text;
    if (FILE *file = fopen(path.c_str(), "r")) {
        char part[4096];
        for (size_t n; (n = fread(part, 1, sizeof part, file));) text.append(part, n);
        fclose(file);
    }
    return text;
}
struct Program { string source, object; };
API nvrtcCreateProgram(Program **p, const char *source, const char *, int, const char **, const char **) {
    *p = new Program{source, ""};
    return OK;
}
API nvrtcCompileProgram(Program *p, int, const char **) {
    if (counting()) return OK;
    static const string home = setting("EMUCUDA", "."), cache = setting("EMUCUDA_CACHE", "/tmp"), header = contents(home + "/emu.h");
    static const string flags = " -std=c++20 -O1 -w -fno-strict-aliasing -ffp-contract=off -shared -fPIC -I'" + home + "' ";
    string source = as_cpp(p->source), base = cache + "/" + hash_of(header + flags + source);
    p->object = base + ".so";
    if (access(p->object.c_str(), R_OK) == 0) return OK;
    string path = base + "." + std::to_string(getpid()) + ".cpp", made = path + ".so";
    FILE *file = fopen(path.c_str(), "w");
    if (!file) return NVRTC_COMPILATION;
    fputs(source.c_str(), file);
    fclose(file);
    // A compiled header stands before the header itself; the kernel is the same.
    static const string compiled = setting("EMUCUDA_HEADER", ".");
    if (system(("g++ -I'" + compiled + "'" + flags + "-o '" + made + "' '" + path + "'").c_str())) return NVRTC_COMPILATION;
    unlink(path.c_str());
    return rename(made.c_str(), p->object.c_str()) ? NVRTC_COMPILATION : OK;
}
API nvrtcGetPTXSize(Program *p, size_t *n) { *n = p->object.size() + 1; return OK; }
API nvrtcGetPTX(Program *p, char *s) { strcpy(s, p->object.c_str()); return OK; }
API nvrtcGetProgramLogSize(Program *, size_t *n) { *n = 1; return OK; }
API nvrtcGetProgramLog(Program *, char *s) { *s = 0; return OK; }
API nvrtcDestroyProgram(Program **p) { delete *p; *p = nullptr; return OK; }
API nvrtcVersion(int *a, int *b) { *a = 12; *b = 9; return OK; }
API nvrtcGetErrorString(int) { return 0; }
