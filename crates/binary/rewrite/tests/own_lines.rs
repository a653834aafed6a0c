//! Straight lines of user probes: what is inlined, the checker agrees with.

mod common;

use std::sync::Mutex;

use fettle_check::Checker;
use fettle_code::{Mode, Probing};
use fettle_rewrite::PlanOptions;
use fettle_rewrite::plan_checked_by;
use iced_x86::IcedError;
use iced_x86::code_asm::*;

type Line = (&'static str, fn(&mut CodeAssembler) -> Result<(), IcedError>);

/// What compilers and people make of one or two counters.
const IN_LINE: &[Line] = &[
    ("inc", |a| a.inc(qword_ptr(rdi))),
    ("inc of each of two", |a| {
        a.inc(qword_ptr(rdi))?;
        a.inc(qword_ptr(rdi + 8))
    }),
    ("inc of a part", |a| a.inc(byte_ptr(rdi + 31))),
    ("lock inc", |a| a.lock().inc(qword_ptr(rdi))),
    ("dec", |a| a.dec(qword_ptr(rdi + 8))),
    ("neg", |a| a.neg(qword_ptr(rdi))),
    ("not", |a| a.not(dword_ptr(rdi + 4))),
    ("add", |a| a.add(qword_ptr(rdi), 1)),
    ("sub", |a| a.sub(qword_ptr(rdi), 0x1234)),
    ("a sum of two words", |a| {
        a.mov(rax, qword_ptr(rsi))?;
        a.add(qword_ptr(rdi), rax)?;
        a.adc(qword_ptr(rdi + 8), 0)?;
        a.sbb(qword_ptr(rdi + 16), rax)
    }),
    ("greatest and smallest", |a| {
        a.mov(rax, qword_ptr(rdi))?;
        a.cmp(rax, qword_ptr(rsi + 8))?;
        a.cmovb(rax, qword_ptr(rsi + 8))?;
        a.mov(qword_ptr(rdi), rax)
    }),
    ("a condition", |a| {
        a.xor(eax, eax)?;
        a.cmp(qword_ptr(rdi + 8), 0)?;
        a.sete(al)?;
        a.add(qword_ptr(rdi + 16), rax)
    }),
    ("products", |a| {
        a.mov(rax, qword_ptr(rsi))?;
        a.mov(rcx, qword_ptr(rsi + 8))?;
        a.mul(rcx)?;
        a.mov(qword_ptr(rdi), rdx)?;
        a.imul_3(rcx, rax, 7)?;
        a.mov(qword_ptr(rdi + 8), rcx)
    }),
    ("shifts", |a| {
        a.mov(rcx, qword_ptr(rsi + 24))?;
        a.shl(qword_ptr(rdi), cl)?;
        a.rcr(qword_ptr(rdi), 1)?;
        a.rol(dword_ptr(rdi + 8), 5)
    }),
    ("bits", |a| {
        a.bts(qword_ptr(rdi), 5)?;
        a.bsr(rax, qword_ptr(rsi))?;
        a.popcnt(rcx, qword_ptr(rsi + 8))?;
        a.mov(qword_ptr(rdi + 8), rcx)
    }),
    ("bits by newer instructions", |a| {
        a.mov(rax, qword_ptr(rsi))?;
        a.andn(rcx, rax, qword_ptr(rdi))?;
        a.shlx(rcx, rcx, rax)?;
        a.lzcnt(rcx, rcx)?;
        a.mov(qword_ptr(rdi), rcx)
    }),
    ("exchanges", |a| {
        a.mov(eax, 1)?;
        a.lock().xadd(qword_ptr(rdi), rax)?;
        a.xchg(qword_ptr(rdi + 8), rax)?;
        a.lock().cmpxchg(qword_ptr(rdi + 16), rax)
    }),
    ("the time", |a| {
        a.rdtsc()?;
        a.shl(rdx, 32)?;
        a.or(rax, rdx)?;
        a.mov(qword_ptr(rdi), rax)
    }),
    ("a counter read by its old pointer", |a| a.mov(rdi, qword_ptr(rdi))),
];

/// What would be noticed by the program, or cannot be checked.
const CALLED: &[Line] = &[
    ("nothing", |_| Ok(())),
    ("vector registers", |a| {
        a.cvtsi2sd(xmm0, qword_ptr(rsi))?;
        a.movsd_2(qword_ptr(rdi), xmm0)
    }),
    ("vector registers, cleared", |a| a.vzeroupper()),
    ("how vector registers round", |a| a.ldmxcsr(dword_ptr(rdi))),
    ("how floating-point registers round", |a| a.fldcw(word_ptr(rdi))),
    ("the direction of strings", |a| a.std()),
    ("a segment's base", |a| a.wrgsbase(rax)),
    ("strings", |a| a.stosq()),
    ("a bit anywhere", |a| a.bts(qword_ptr(rdi), rcx)),
    ("past the counters", |a| a.inc(qword_ptr(rdi + 25))),
    ("before the counters", |a| a.inc(qword_ptr(rdi - 1))),
    ("another segment", |a| a.inc(qword_ptr(rdi).fs())),
    ("memory of the program", |a| {
        a.mov(rax, qword_ptr(rsi))?;
        a.mov(rax, qword_ptr(rax))
    }),
    ("the stack", |a| a.push(rax)),
    ("the kernel", |a| a.syscall()),
];

fn code((name, line): &Line) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).expect("64 bits");
    line(&mut assembler).unwrap_or_else(|e| panic!("{name}: {e}"));
    assembler.ret().expect("a return");
    assembler.assemble(0).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn what_is_put_in_line_is_agreed_with() {
    let Some((image, lifted)) = common::open("/bin/true") else { return };
    for line in IN_LINE {
        let user_probe = fettle_rewrite::user_probe::compiled(code(line), Some(0), Some(0));
        let in_line = user_probe.enter.as_ref().is_some_and(|f| f.inline.is_some());
        assert!(in_line, "{} is called", line.0);
        let rejected = Mutex::new(Vec::new());
        let options = PlanOptions {
            osr_map: true,
            ..PlanOptions::new(Probing {
                user_probe: Some(&user_probe),
                ..Probing::new(Mode::User)
            })
        };
        let plan = plan_checked_by(&image, &lifted, options, || {
            let mut checker = Checker::new(&image);
            let rejected = &rejected;
            move |claim, context| {
                checker.check(claim, context).inspect_err(|error| {
                    rejected.lock().expect("no panic before").push(error.to_string());
                })
            }
        });
        let rejected = rejected.into_inner().expect("no panic before");
        assert!(rejected.is_empty(), "{}: {rejected:#?}", line.0);
        assert!(!plan.functions.is_empty(), "{}", line.0);
    }
}

#[test]
fn what_cannot_be_checked_is_called() {
    for line in CALLED {
        let user_probe = fettle_rewrite::user_probe::compiled(code(line), Some(0), Some(0));
        assert!(user_probe.enter.is_some_and(|f| f.inline.is_none()), "{} is put in line", line.0);
    }
}
