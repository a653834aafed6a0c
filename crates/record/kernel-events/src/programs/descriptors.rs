//! What descriptors are: files, pipes, sockets, with their addresses, as they are at the time of the
//! call. They cannot be closed or reused in between, as when one looks from outside.
//!
//! Slots from [`FIRST`] on are free for the callers of this module.

use super::slots::{FIRST, FOUND, INODE, MODE};
use crate::asm::{Alu, FP, Helper, If, Insn, Label, R0, R1, R2, R3, R8, R9, Size};
use crate::code::{Code, Env, slot};
use crate::programs::{arrivals, payload};
use crate::raw::{self, Kind, io, socket};
use fettle_btf::Field;

/// The bits of a mode that say what it is.
pub const KIND: i32 = 0xf000;
/// A socket.
pub const SOCKET: i32 = 0xc000;
const PIPE: i32 = 0x1000;
const REGULAR: i32 = 0x8000;
/// `O_NONBLOCK`.
const NONBLOCK: i32 = 0o4000;
/// The file system of event descriptors, timers and so on.
const ANONYMOUS_FS: i32 = 0x0904_1934;

/// `SOCK_STREAM`.
const STREAM: i32 = 1;
const AF_LOCAL: i32 = 1;
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;

/// R8 is the file of the descriptor in `fd`, and the slots [`INODE`] and [`MODE`] say what it is.
/// Goes to `none` if it is open no more.
pub fn file_of(c: &mut Code, fd: i16, none: Label) {
    let f = &c.env.fields;
    c.asm.call(Helper::CurrentTaskBtf);
    c.direct(R8, R0, f.task_files);
    c.get(R8, R8, f.files_fdt);
    c.get(R0, R8, f.fdt_max_fds);
    c.recall(R1, fd);
    c.asm.jump_if_reg(If::Ge, R1, R0, none);
    c.get(R8, R8, f.fdt_fd);
    c.recall(R1, fd);
    c.asm.alu_imm(Alu::Shl, R1, 3);
    c.asm.alu(Alu::Add, R8, R1);
    c.get(R8, R8, f.list_next);
    c.asm.jump_if(If::Eq, R8, 0, none);
    c.get(R9, R8, f.file_inode);
    c.get(R1, R9, f.inode_mode);
    c.keep(MODE, R1);
    c.get(R1, R9, f.inode_number);
    c.keep(INODE, R1);
}

/// Puts a descriptor into a slot, from a register whose upper half is not guaranteed.
pub fn keep_fd(c: &mut Code, to: i16, from: crate::asm::Reg) {
    c.asm.alu_imm(Alu::Shl, from, 32);
    c.asm.alu_imm(Alu::Shr, from, 32);
    c.keep(to, from);
}

/// Finds out whether the file in R8, whose mode is known, is one at all.
fn find_flags(c: &mut Code) {
    let f = &c.env.fields;
    let (look, known) = (c.asm.label(), c.asm.label());
    c.asm.store_imm(Size::B8, FP, FOUND, 0);
    c.recall(R1, MODE);
    c.asm.alu_imm(Alu::And, R1, KIND);
    c.asm.jump_if(If::Eq, R1, 0, look);
    c.asm.jump_if(If::Ne, R1, REGULAR, known);
    c.asm.place(look);
    c.get(R9, R8, f.file_inode);
    c.get(R9, R9, f.inode_sb);
    c.get(R1, R9, f.sb_magic);
    c.asm.jump_if(If::Ne, R1, ANONYMOUS_FS, known);
    c.asm.store_imm(Size::B8, FP, FOUND, i32::from(io::ANONYMOUS));
    c.asm.place(known);
}

/// A call on the descriptor in `fd` begins. Sockets and pipes that never wait are left out.
pub fn begins(c: &mut Code, flags: u16, fd: i16, done: Label) {
    let waits = c.asm.label();
    file_of(c, fd, done);
    c.recall(R1, MODE);
    c.asm.alu_imm(Alu::And, R1, KIND);
    let may = c.asm.label();
    c.asm.jump_if(If::Eq, R1, SOCKET, may);
    c.asm.jump_if(If::Ne, R1, PIPE, waits);
    c.asm.place(may);
    c.get(R0, R8, c.env.fields.file_flags);
    c.asm.jump_if(If::Set, R0, NONBLOCK, done);
    c.asm.place(waits);
    plain(c, flags | io::BEGIN, fd, None, done);
}

/// A call on the descriptor in `fd` has ended with what is in `result`. With `bytes`, those of a
/// message are recorded before, if they are asked for and the descriptor is a stream's.
pub fn ends(c: &mut Code, flags: u16, fd: i16, result: i16, bytes: bool, done: Label) {
    let other = c.asm.label();
    file_of(c, fd, done);
    c.recall(R1, MODE);
    c.asm.alu_imm(Alu::And, R1, KIND);
    c.asm.jump_if(If::Ne, R1, SOCKET, other);
    let what = if flags & io::WRITE == 0 { socket::RECEIVED } else { socket::SENT };
    if bytes && c.env.payload > 0 {
        let f = &c.env.fields;
        let datagrams = c.asm.label();
        c.get(R9, R8, f.file_private);
        c.get(R9, R9, f.socket_sk);
        c.asm.jump_if(If::Eq, R9, 0, datagrams);
        c.get(R1, R9, f.sk_type);
        c.asm.jump_if(If::Ne, R1, STREAM, datagrams);
        payload::message(c, what, result);
        c.asm.place(datagrams);
    }
    socket_of_file(c, what, fd, result, done);
    c.asm.jump(done);
    c.asm.place(other);
    plain(c, flags, fd, Some(result), done);
}

/// Records a call on the file in R8.
fn plain(c: &mut Code, flags: u16, fd: i16, result: Option<i16>, done: Label) {
    find_flags(c);
    c.record(Kind::Io, 0, done);
    c.recall(R1, MODE);
    c.asm.alu_imm(Alu::And, R1, KIND);
    c.recall(R2, FOUND);
    c.asm.alu(Alu::Or, R1, R2);
    c.asm.alu_imm(Alu::Or, R1, i32::from(flags));
    c.flags(R1);
    c.recall(R1, fd);
    c.number(R1);
    c.word_from(0, INODE);
    match result {
        Some(result) => c.word_from(1, result),
        None => c.asm.store_imm(Size::B8, R9, raw::word(1), 0),
    }
    c.submit();
}

/// A file is opened or closed; its text comes from the caller.
pub fn opened(c: &mut Code, kind: Kind, fd: i16, done: Label) {
    find_flags(c);
    c.record(kind, 0, done);
    c.recall(R1, FOUND);
    c.flags(R1);
    c.recall(R1, fd);
    c.number(R1);
    c.word_from(0, INODE);
    c.word_from(1, MODE);
}

/// Records what happens to the socket whose file is in R8 and whose inode is known.
pub fn socket_of_file(c: &mut Code, what: u16, fd: i16, result: i16, done: Label) {
    let f = &c.env.fields;
    c.get(R8, R8, f.file_private);
    c.get(R8, R8, f.socket_sk);
    c.asm.jump_if(If::Eq, R8, 0, done);
    record_socket(c, what, fd, result, done);
}

/// R8 is the `sock` of the descriptor in `fd`; goes to `none` if it is no socket.
pub fn sock_of(c: &mut Code, fd: i16, none: Label) {
    let f = &c.env.fields;
    file_of(c, fd, none);
    c.recall(R1, MODE);
    c.asm.alu_imm(Alu::And, R1, KIND);
    c.asm.jump_if(If::Ne, R1, SOCKET, none);
    c.get(R8, R8, f.file_private);
    c.get(R8, R8, f.socket_sk);
    c.asm.jump_if(If::Eq, R8, 0, none);
}

/// Records that a connection was asked for on the `sock` in R8.
pub fn record_connect(c: &mut Code, fd: i16, result: i16, done: Label) {
    record_socket(c, socket::CONNECT, fd, result, done);
}

/// The number of a socket's record in R9; R8 is its `sock`.
fn number(c: &mut Code, what: u16, fd: i16) {
    if what == socket::RECEIVED {
        return arrivals::number(c);
    }
    c.recall(R1, fd);
    c.number(R1);
}

/// Records what happens to the `sock` in R8.
fn record_socket(c: &mut Code, what: u16, fd: i16, result: i16, done: Label) {
    let f = &c.env.fields;
    // Another socket may come to lie there.
    if what == socket::CLOSE {
        arrivals::forget(c);
    }
    let (v4, v6, local) = (c.asm.label(), c.asm.label(), c.asm.label());
    c.get(R0, R8, f.sk_family);
    c.asm.jump_if(If::Eq, R0, AF_INET, v4);
    c.asm.jump_if(If::Eq, R0, AF_INET6, v6);
    c.asm.jump_if(If::Eq, R0, AF_LOCAL, local);

    let address_at = raw::word(3);
    for (label, kind) in [
        (None, Kind::SocketOther),
        (Some(v4), Kind::SocketV4),
        (Some(v6), Kind::SocketV6),
        (Some(local), Kind::SocketLocal),
    ] {
        if let Some(label) = label {
            c.asm.place(label);
        }
        c.record(kind, what, done);
        number(c, what, fd);
        c.word_from(0, INODE);
        c.word_from(1, result);
        let part = |c: &mut Code, field: Field, at: i16| {
            c.get(R1, R8, field);
            c.asm.store(Size::of(field.size).expect("a word"), R9, at, R1);
        };
        let at = raw::word(2);
        part(c, f.sk_family, at);
        part(c, f.sk_type, at + 2);
        part(c, f.sk_dport, at + 6);
        match kind {
            // `skc_num` would be 0 once both ends have closed, with bytes yet to be read.
            Kind::SocketV4 | Kind::SocketV6 => {
                c.get(R1, R8, f.inet_sport);
                c.asm.store(Size::B1, R9, at + 5, R1);
                c.asm.alu_imm(Alu::Shr, R1, 8);
                c.asm.store(Size::B1, R9, at + 4, R1);
            }
            _ => c.asm.store_imm(Size::B2, R9, at + 4, 0),
        }
        match kind {
            Kind::SocketV4 => {
                part(c, f.sk_saddr, address_at);
                part(c, f.sk_daddr, address_at + 4);
            }
            Kind::SocketV6 => {
                for (field, at) in [(f.sk_v6_saddr, address_at), (f.sk_v6_daddr, address_at + 16)] {
                    c.asm.mov(R1, R9);
                    c.asm.alu_imm(Alu::Add, R1, i32::from(at));
                    c.asm.imm(R2, 16);
                    c.asm.mov(R3, R8);
                    c.asm.alu_imm(Alu::Add, R3, field.offset as i32);
                    c.asm.call(Helper::ProbeReadKernel);
                }
            }
            Kind::SocketLocal => {
                c.word(3, R8);
                c.get(R1, R8, f.unix_peer);
                c.word(4, R1);
            }
            _ => {}
        }
        c.submit();
        c.asm.jump(done);
    }
}

/// `sock_close(inode, file)`: the last descriptor of a socket is gone, by `close`, or because its
/// process ended.
pub fn socket_close(env: &Env) -> Vec<Insn> {
    const FD: i16 = slot(FIRST);
    const RESULT: i16 = slot(FIRST + 1);
    let mut c = Code::new(env);
    let out = c.out;
    c.current_observed(out);
    c.argument(R1, 0);
    c.direct(R2, R1, env.fields.inode_number);
    c.keep(INODE, R2);
    // Which descriptor it was is not known here.
    c.asm.imm(R1, -1);
    c.keep(FD, R1);
    c.asm.store_imm(Size::B8, FP, RESULT, 0);
    c.argument(R8, 1);
    socket_of_file(&mut c, socket::CLOSE, FD, RESULT, out);
    c.finish()
}
