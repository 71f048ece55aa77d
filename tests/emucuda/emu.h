// What a kernel of CubeCL's CUDA dialect needs to run as C++ on the CPU. It comes before the generated source.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__
#define __CUDA_ARCH__ 900

template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
// A number is more than what is none.
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (uint64_t)a * b >> 32; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
// Threads take turns only where they wait for one another, so nothing comes between the two halves.
template <class T> T atomicAdd(T *to, T more) {
    T was = *to;
    *to = was + more;
    return was;
}
#define EMU_VECTORS(name, type) \
    struct name##2 { type x, y; }; \
    struct alignas(sizeof(type) * 4) name##4 { type x, y, z, w; };
EMU_VECTORS(float, float)
EMU_VECTORS(int, int)
EMU_VECTORS(uint, unsigned)

// What the thread that runs sees. emucuda.cpp has the same.
struct Emu {
    uint3 thread, block, block_dim, grid_dim;
    void *shared;
    unsigned lane;
    void (*sync_block)(), (*sync_warp)();
    uint64_t *slots;  // of its warp, 8 a lane
};
extern "C" { Emu *emu; }
#define threadIdx (emu->thread)
#define blockIdx (emu->block)
#define blockDim (emu->block_dim)
#define gridDim (emu->grid_dim)
#define warpSize 32u

inline void __syncthreads() { emu->sync_block(); }
inline void __syncwarp(unsigned = 0) { emu->sync_warp(); }

// Shuffles: each lane writes what it has, and reads that of another.
template <class T> T emu_shuffle(T value, unsigned from) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    emu->slots[emu->lane * 8] = bits;
    emu->sync_warp();
    memcpy(&value, &emu->slots[(from & 31) * 8], sizeof value);
    emu->sync_warp();
    return value;
}
template <class T> T __shfl_sync(unsigned, T v, unsigned from, int = 32) { return emu_shuffle(v, from); }
template <class T> T __shfl_xor_sync(unsigned, T v, unsigned mask, int = 32) { return emu_shuffle(v, emu->lane ^ mask); }
template <class T> T __shfl_down_sync(unsigned, T v, unsigned by, int = 32) {
    return emu_shuffle(v, emu->lane + by < 32 ? emu->lane + by : emu->lane);
}
template <class T> T __shfl_up_sync(unsigned, T v, unsigned by, int = 32) {
    return emu_shuffle(v, emu->lane >= by ? emu->lane - by : emu->lane);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
    unsigned all = 0;
    for (unsigned lane = 0; lane < 32; lane++) emu->slots[emu->lane * 8] = vote;
    emu->sync_warp();
    for (unsigned lane = 0; lane < 32; lane++) all |= (unsigned)(emu->slots[lane * 8] & 1) << lane;
    emu->sync_warp();
    return all;
}

struct __nv_bfloat16 {
    uint16_t x;
    __nv_bfloat16() = default;
    __nv_bfloat16(float f) {
        uint32_t b;
        memcpy(&b, &f, 4);
        x = f != f ? 0x7fff : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    }
    operator float() const {
        uint32_t b = (uint32_t)x << 16;
        float f;
        memcpy(&f, &b, 4);
        return f;
    }
};
struct __nv_bfloat162 { __nv_bfloat16 x, y; };
inline __nv_bfloat16 __float2bfloat16(float f) { return f; }
inline float __bfloat162float(__nv_bfloat16 b) { return b; }
inline float emu_half(uint32_t pair, unsigned which) {
    __nv_bfloat16 b;
    b.x = pair >> (16 * which);
    return b;
}

// mma.m16n8k16 of bf16: registers as the PTX ISA lays them out.
inline void emu_mma(const uint32_t *a, const uint32_t *b, const float *c, float *d) {
    uint64_t *mine = &emu->slots[emu->lane * 8];
    for (int i = 0; i < 4; i++) mine[i] = a[i];
    for (int i = 0; i < 2; i++) mine[4 + i] = b[i];
    emu->sync_warp();
    for (int e = 0; e < 4; e++) {
        unsigned row = emu->lane / 4 + 8 * (e / 2), column = emu->lane % 4 * 2 + e % 2;
        float sum = c[e];
        for (unsigned k = 0; k < 16; k++) {
            uint32_t x = emu->slots[(row % 8 * 4 + k % 8 / 2) * 8 + row / 8 + 2 * (k / 8)];
            uint32_t y = emu->slots[(column * 4 + k % 8 / 2) * 8 + 4 + k / 8];
            sum += emu_half(x, k % 2) * emu_half(y, k % 2);
        }
        d[e] = sum;
    }
    emu->sync_warp();
}

// ldmatrix.xN: lane 8m + i has the address of row i of matrix m.
inline void emu_ldmatrix(uint32_t *regs, int count, bool transposed, const void *row) {
    emu->slots[emu->lane * 8] = (uint64_t)row;
    emu->sync_warp();
    unsigned r = emu->lane / 4, c = emu->lane % 4 * 2;
    for (int m = 0; m < count; m++) {
        auto at = [&](unsigned row, unsigned column) {
            return ((const uint16_t *)emu->slots[(8 * m + row) * 8])[column];
        };
        regs[m] = transposed ? at(c, r) | (uint32_t)at(c + 1, r) << 16 : at(r, c) | (uint32_t)at(r, c + 1) << 16;
    }
    emu->sync_warp();
}
