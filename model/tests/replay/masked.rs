//! Hides AVX-512 from one thread and the threads that it starts: Linux can raise a signal for every
//! `cpuid` instead of executing it (`arch_prctl(2)`, `ARCH_SET_CPUID`), and the handler answers
//! with the features of the processor without AVX-512. All libraries that choose their kernels at
//! run time use `cpuid`, and only once: a library that did so earlier still sees AVX-512.

#![expect(unsafe_code, reason = "a signal handler that replaces an instruction")]

use std::arch::x86_64::__cpuid_count;
use std::{mem, ptr};

use libc::{REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RIP, SA_SIGINFO, SIGSEGV, c_int, c_void};

/// The first argument of `arch_prctl` that allows or forbids `cpuid`.
const ARCH_SET_CPUID: c_int = 0x1012;

/// AVX-512 in EBX of leaf 7: F, DQ, IFMA, PF, ER, CD, BW, VL.
const EBX: u32 = 1 << 16 | 1 << 17 | 1 << 21 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 30 | 1 << 31;
/// AVX-512 in ECX of leaf 7: VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ.
const ECX: u32 = 1 << 1 | 1 << 6 | 1 << 11 | 1 << 12 | 1 << 14;

/// Hides AVX-512 from this thread and the threads that it starts; returns `false` if the processor
/// cannot (many AMD processors and some virtual ones).
pub(crate) fn hide_avx_512() -> bool {
    // SAFETY: the handler has the signature of SA_SIGINFO and does only what a handler may do.
    let installed = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = answer as *const () as usize;
        action.sa_flags = SA_SIGINFO;
        libc::sigaction(SIGSEGV, &action, ptr::null_mut()) == 0
    };
    installed && allow_cpuid(false)
}

fn allow_cpuid(allow: bool) -> bool {
    // SAFETY: the call only changes the effect of `cpuid`.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, u64::from(allow)) == 0 }
}

/// Executes the forbidden `cpuid`, hides AVX-512 in its result and continues after it.
extern "C" fn answer(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes the registers of the thread at the instruction.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let instruction = registers[REG_RIP as usize] as *const [u8; 2];
    // SAFETY: the instruction was about to be executed.
    if unsafe { instruction.read_unaligned() } != [0x0f, 0xa2] {
        // SAFETY: it never returns; the signal was a real memory fault.
        unsafe { libc::abort() }
    }
    let (leaf, part) = (registers[REG_RAX as usize] as u32, registers[REG_RCX as usize] as u32);
    allow_cpuid(true);
    let mut features = __cpuid_count(leaf, part);
    allow_cpuid(false);
    if (leaf, part) == (7, 0) {
        features.ebx &= !EBX;
        features.ecx &= !ECX;
    }
    let features = [
        (REG_RAX, features.eax),
        (REG_RBX, features.ebx),
        (REG_RCX, features.ecx),
        (REG_RDX, features.edx),
    ];
    for (name, value) in features {
        registers[name as usize] = i64::from(value);
    }
    registers[REG_RIP as usize] += 2;
}
