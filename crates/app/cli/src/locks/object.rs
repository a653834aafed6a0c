//! Which member of which structure a call takes the lock of: the lock's address is followed back from the call to a
//! variable that points to the structure, which debug information knows.

use fettle_image::{Holder, Image, LinkAddr};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// A function that is longer is not read.
const FUNCTION_BYTES_MAX: u64 = 1 << 18;
/// So far back from the call its argument is looked for.
const BACK_MAX: usize = 48;
/// Where a function with a frame pointer has it, seen from the canonical frame address.
const FRAME_POINTER: i64 = -16;

/// `Structure::member`, of the lock that is the first argument of the call that returns to `back`.
pub fn member(image: &Image, back: LinkAddr) -> Option<String> {
    let behind = image.fdes().partition_point(|fde| fde.start < back);
    let fde = image.fdes().get(behind.checked_sub(1)?)?;
    let length = back.0.checked_sub(fde.start.0)?;
    if back > fde.end || length > FUNCTION_BYTES_MAX {
        return None;
    }
    let code = image.read(fde.start, length as usize)?;
    let decoder = Decoder::with_ip(64, code, fde.start.0, DecoderOptions::NONE);
    let before: Vec<Instruction> = decoder.into_iter().collect();
    let (call, before) = before.split_last()?;
    if call.next_ip() != back.0 || !is_call(call) {
        return None;
    }
    let mut address = Address { register: Register::RDI, offset: 0, at: call.ip() };
    for instruction in before.iter().rev().take(BACK_MAX) {
        if let Some(found) = address.ask(image) {
            return Some(found);
        }
        if instruction.flow_control() != FlowControl::Next && !address.outlives(instruction) {
            return None;
        }
        if !writes(instruction, address.register) {
            continue;
        }
        match address.before(instruction)? {
            Before::Register(before) => address = before,
            Before::Frame(offset) => {
                let holder = Holder::Frame(offset + FRAME_POINTER);
                return named(image, LinkAddr(instruction.ip()), holder, address.offset);
            }
        }
    }
    address.ask(image)
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

fn named(image: &Image, at: LinkAddr, holder: Holder, offset: i64) -> Option<String> {
    let (owner, member) = image.lock_member(at, holder, offset)?;
    Some(format!("{owner}::{member}"))
}

fn writes(instruction: &Instruction, register: Register) -> bool {
    let reads = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    !reads
        && instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == register
}

/// An address: what is in a register before an instruction, and some bytes more.
#[derive(Clone, Copy)]
struct Address {
    register: Register,
    offset: i64,
    at: u64,
}

/// The same address before an instruction.
enum Before {
    Register(Address),
    /// What lies there, seen from the frame pointer.
    Frame(i64),
}

impl Address {
    fn ask(&self, image: &Image) -> Option<String> {
        let register = dwarf_number(self.register)?;
        named(image, LinkAddr(self.at), Holder::Register(register), self.offset)
    }

    /// Whether the register is the same behind a call; jumps come from who knows where.
    fn outlives(&self, instruction: &Instruction) -> bool {
        use Register as R;
        let kept = [R::RBX, R::RBP, R::R12, R::R13, R::R14, R::R15].contains(&self.register);
        let forward = instruction.flow_control() == FlowControl::ConditionalBranch;
        forward || is_call(instruction) && kept
    }

    fn before(&self, instruction: &Instruction) -> Option<Before> {
        let at = instruction.ip();
        let whole = instruction.op0_register().is_gpr64();
        let from = |register, more| {
            Some(Before::Register(Address { register, offset: self.offset + more, at }))
        };
        let displacement = instruction.memory_displacement64() as i64;
        match (instruction.mnemonic(), instruction.op1_kind()) {
            _ if !whole => None,
            (Mnemonic::Mov, OpKind::Register) => from(instruction.op1_register(), 0),
            (Mnemonic::Lea, _) if instruction.memory_index() == Register::None => {
                from(instruction.memory_base(), displacement)
            }
            (Mnemonic::Mov, OpKind::Memory) => {
                let by_frame = instruction.memory_base() == Register::RBP
                    && instruction.memory_index() == Register::None;
                by_frame.then_some(Before::Frame(displacement))
            }
            (Mnemonic::Add, OpKind::Register | OpKind::Memory) => None,
            (Mnemonic::Add, _) => from(self.register, instruction.immediate(1) as i64),
            (Mnemonic::Sub, OpKind::Register | OpKind::Memory) => None,
            (Mnemonic::Sub, _) => from(self.register, -(instruction.immediate(1) as i64)),
            _ => None,
        }
    }
}

/// DWARF's number of a general register.
fn dwarf_number(register: Register) -> Option<u16> {
    use Register as R;
    let order = [
        R::RAX,
        R::RDX,
        R::RCX,
        R::RBX,
        R::RSI,
        R::RDI,
        R::RBP,
        R::RSP,
        R::R8,
        R::R9,
        R::R10,
        R::R11,
        R::R12,
        R::R13,
        R::R14,
        R::R15,
    ];
    order.iter().position(|known| *known == register).map(|number| number as u16)
}
