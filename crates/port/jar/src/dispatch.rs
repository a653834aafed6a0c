//! Indirect calls: from an address to the method of the function there.
//!
//! Every function whose address is data has an adapter, which has the same parameters for all:
//! `call` finds it by comparing the address. Tables are divided before they are too large to be
//! compiled.

use crate::classfile::{Class, Code, Label, Pool, Type};
use crate::emit::{CALL, Method, RUNTIME};
use crate::ir::{Rep, Ty, Var};
use crate::op;
use crate::signature::{Returns, THREAD, argument_field, results_in_thread, slots, thread_field};
use crate::target::Target;

/// Cases of one table: each is about 25 bytes.
const CASES: usize = 250;
/// Adapters of one class.
const ADAPTERS: usize = 1500;

const PARAMETERS: usize = 6;

fn parameters() -> Vec<Type> {
    let mut types = vec![Type::Object(THREAD.into())];
    types.extend((0..PARAMETERS).map(|_| Type::Int));
    types
}

/// The classes that indirect calls need. `targets` are in the order of their addresses.
pub fn classes(target: Target, folder: &str, targets: &[(u32, &Method)]) -> Vec<Class> {
    let mut classes = Vec::new();
    let mut adapters = Vec::new();
    for (number, group) in targets.chunks(ADAPTERS).enumerate() {
        let name = format!("{folder}Adapters{number}");
        let mut class = Class::new(target, &name, "java/lang/Object");
        for (address, method) in group {
            let adapter = adapter_name(*address);
            let code = adapter_code(method, &mut class.pool);
            class.method(&adapter, CALL, true, code);
            adapters.push((*address, name.clone()));
        }
        classes.push(class);
    }
    let mut dispatch = Class::new(target, &format!("{folder}Dispatch"), "java/lang/Object");
    let groups: Vec<&[(u32, String)]> = adapters.chunks(CASES).collect();
    for (number, group) in groups.iter().enumerate() {
        let code = table(group, &mut dispatch.pool);
        dispatch.method(&format!("table{number}"), CALL, true, code);
    }
    let code = choose(&groups, dispatch.name().to_owned().as_str(), &mut dispatch.pool);
    dispatch.method("call", CALL, true, code);
    classes.push(dispatch);
    classes
}

fn adapter_name(address: u32) -> String {
    format!("at_{address:x}")
}

/// Pushes all parameters.
fn forward(code: &mut Code) {
    code.local(op::ALOAD, 0, 1);
    for slot in 1..=PARAMETERS as u16 {
        code.local(op::ILOAD, slot, 1);
    }
}

/// What is no function of the program may be one of its host.
fn unknown(code: &mut Code, pool: &mut Pool) {
    forward(code);
    let method = pool.method(&format!("{RUNTIME}Callbacks"), "dispatch", CALL);
    code.op_index(op::INVOKESTATIC, method, -5);
    code.op(op::LRETURN, -2);
}

fn table(group: &[(u32, String)], pool: &mut Pool) -> Code {
    let mut code = Code::new(parameters());
    let mut keys: Vec<(i32, Label)> =
        group.iter().map(|(address, _)| (*address as i32, code.label())).collect();
    keys.sort_by_key(|(key, _)| *key);
    let other = code.label();
    code.local(op::ILOAD, 1, 1);
    code.switch(&keys, other);
    let class_of: std::collections::BTreeMap<i32, &str> =
        group.iter().map(|(address, class)| (*address as i32, class.as_str())).collect();
    for (key, label) in keys {
        code.place(label, parameters(), Vec::new());
        forward(&mut code);
        let method = pool.method(class_of[&key], &adapter_name(key as u32), CALL);
        code.op_index(op::INVOKESTATIC, method, -5);
        code.op(op::LRETURN, -2);
    }
    code.place(other, parameters(), Vec::new());
    unknown(&mut code, pool);
    code
}

/// Finds the table by halves.
fn choose(groups: &[&[(u32, String)]], class: &str, pool: &mut Pool) -> Code {
    let mut code = Code::new(parameters());
    if groups.is_empty() {
        unknown(&mut code, pool);
        return code;
    }
    let mut work = vec![(0..groups.len(), None::<Label>)];
    while let Some((range, label)) = work.pop() {
        if let Some(label) = label {
            code.place(label, parameters(), Vec::new());
        }
        if range.len() == 1 {
            forward(&mut code);
            let method = pool.method(class, &format!("table{}", range.start), CALL);
            code.op_index(op::INVOKESTATIC, method, -5);
            code.op(op::LRETURN, -2);
            continue;
        }
        let middle = range.start + range.len() / 2;
        let upper = code.label();
        code.local(op::ILOAD, 1, 1);
        code.int(pool, groups[middle][0].0 as i32);
        code.branch(op::IF_ICMPGE, upper, -2);
        work.push((middle..range.end, Some(upper)));
        work.push((range.start..middle, None));
    }
    code
}

/// From the parameters that all indirect calls have to those of a method.
fn adapter_code(method: &Method, pool: &mut Pool) -> Code {
    let mut code = Code::new(parameters());
    let signature = &method.signature;
    code.local(op::ALOAD, 0, 1);
    for var in &signature.ints {
        match var {
            Var(29) => code.local(op::ILOAD, 2, 1),
            // The fifth to the eighth argument of conventions that have them in registers.
            Var(48..52) => {
                code.local(op::ALOAD, 0, 1);
                let field = pool.field(THREAD, argument_field(*var), "I");
                code.op_index(op::GETFIELD, field, 0);
            }
            Var(number @ 4..8) => code.local(op::ILOAD, u16::from(*number) - 1, 1),
            // The static chain of a nested function, whose address is that of a trampoline.
            Var(15) => {
                code.local(op::ALOAD, 0, 1);
                let field = pool.field(THREAD, "chain", "I");
                code.op_index(op::GETFIELD, field, 0);
            }
            // The address called is what position-independent code expects there.
            Var(25) => code.local(op::ILOAD, 1, 1),
            _ => code.int(pool, 0),
        }
    }
    for (fp, rep) in &signature.fps {
        match signature.convention.fp_arguments().contains(fp) {
            true => {
                code.local(op::ALOAD, 0, 1);
                let field = pool.field(THREAD, thread_field(*fp), "J");
                code.op_index(op::GETFIELD, field, 1);
            }
            false => code.long(pool, 0),
        }
        from_bits(&mut code, pool, *rep);
    }
    let result = signature.result();
    let change = result.map_or(0, slots) - 1 - signature.parameter_slots();
    let called = pool.method(&method.class, &method.name, &signature.descriptor());
    code.op_index(op::INVOKESTATIC, called, change);
    match signature.returns {
        Returns::Nothing => code.long(pool, 0),
        Returns::Int => {
            code.op(op::I2L, 1);
            code.long(pool, 0xffff_ffff);
            code.op(op::LAND, -2);
        }
        Returns::Long => {}
        Returns::Fp(rep) => {
            into_bits(&mut code, pool, rep);
            code.local(op::LSTORE, 7, -2);
            code.local(op::ALOAD, 0, 1);
            code.local(op::LLOAD, 7, 2);
            let field = pool.field(THREAD, thread_field(signature.convention.fp_results()[0]), "J");
            code.op_index(op::PUTFIELD, field, -3);
            code.long(pool, 0);
        }
    }
    // What is left in the thread is there already.
    debug_assert!(results_in_thread(signature).count() <= 2, "two registers");
    code.op(op::LRETURN, -2);
    code
}

fn from_bits(code: &mut Code, pool: &mut Pool, rep: Rep) {
    match rep {
        Rep::Long => {}
        Rep::Double => {
            let method = pool.method("java/lang/Double", "longBitsToDouble", "(J)D");
            code.op_index(op::INVOKESTATIC, method, 0);
        }
        Rep::Int => code.op(op::L2I, -1),
        Rep::Float => {
            code.op(op::L2I, -1);
            let method = pool.method("java/lang/Float", "intBitsToFloat", "(I)F");
            code.op_index(op::INVOKESTATIC, method, 0);
        }
    }
}

fn into_bits(code: &mut Code, pool: &mut Pool, rep: Rep) {
    match rep.ty() {
        Ty::J => {}
        Ty::I => code.op(op::I2L, 1),
        Ty::D => {
            let method = pool.method("java/lang/Double", "doubleToRawLongBits", "(D)J");
            code.op_index(op::INVOKESTATIC, method, 0);
        }
        Ty::F => {
            let method = pool.method("java/lang/Float", "floatToRawIntBits", "(F)I");
            code.op_index(op::INVOKESTATIC, method, 0);
            code.op(op::I2L, 1);
        }
    }
}
