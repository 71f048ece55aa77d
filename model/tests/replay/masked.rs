//! A processor without AVX-512, for one thread and those that it starts: Linux lets a process be
//! told of every `cpuid` instead of executing it (`arch_prctl(2)`, `ARCH_SET_CPUID`), and a handler
//! answers with what the processor says, less AVX-512. All libraries that choose their kernels at
//! run time ask `cpuid`, and ask it once: whoever has asked before is not fooled.

#![expect(unsafe_code, reason = "a signal handler that takes the place of an instruction")]

use std::arch::x86_64::__cpuid_count;
use std::{mem, ptr};

use libc::{REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RIP, SA_SIGINFO, SIGSEGV, c_int, c_void};

/// The first argument of `arch_prctl` that allows or forbids `cpuid`.
const ARCH_SET_CPUID: c_int = 0x1012;

/// AVX-512 in EBX of leaf 7: F, DQ, IFMA, PF, ER, CD, BW, VL.
const EBX: u32 = 1 << 16 | 1 << 17 | 1 << 21 | 1 << 26 | 1 << 27 | 1 << 28 | 1 << 30 | 1 << 31;
/// And in ECX: VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ.
const ECX: u32 = 1 << 1 | 1 << 6 | 1 << 11 | 1 << 12 | 1 << 14;

/// From now on this thread, and those that it starts, see no AVX-512; `false` if the processor
/// cannot do that (many of AMD's, and some virtual ones).
pub(crate) fn hide_avx_512() -> bool {
    // SAFETY: the handler has the signature of SA_SIGINFO, and does nothing that a handler may not.
    let installed = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = answer as *const () as usize;
        action.sa_flags = SA_SIGINFO;
        libc::sigaction(SIGSEGV, &action, ptr::null_mut()) == 0
    };
    installed && allow_cpuid(false)
}

fn allow_cpuid(allow: bool) -> bool {
    // SAFETY: the call changes nothing but what `cpuid` does.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, u64::from(allow)) == 0 }
}

/// Executes the `cpuid` that was forbidden, and goes on behind it.
extern "C" fn answer(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives the registers of the thread at the instruction.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let instruction = registers[REG_RIP as usize] as *const [u8; 2];
    // SAFETY: the instruction was about to be executed.
    if unsafe { instruction.read_unaligned() } != [0x0f, 0xa2] {
        // SAFETY: never returns; any other fault is one.
        unsafe { libc::abort() }
    }
    let (leaf, part) = (registers[REG_RAX as usize] as u32, registers[REG_RCX as usize] as u32);
    allow_cpuid(true);
    let mut said = __cpuid_count(leaf, part);
    allow_cpuid(false);
    if (leaf, part) == (7, 0) {
        said.ebx &= !EBX;
        said.ecx &= !ECX;
    }
    let said = [(REG_RAX, said.eax), (REG_RBX, said.ebx), (REG_RCX, said.ecx), (REG_RDX, said.edx)];
    said.into_iter().for_each(|(name, value)| registers[name as usize] = i64::from(value));
    registers[REG_RIP as usize] += 2;
}
