//! The classes by which Java comes to a program: what the runtime calls functions through, and what
//! `java -jar` or a small device starts.

use crate::classfile::{Class, Code, Type};
use crate::emit::{CALL, Program, RUNTIME};
use crate::op;
use crate::signature::THREAD;

/// The class through which the runtime calls functions.
pub fn code(program: &Program, exported: &[(String, u32)]) -> Class {
    let name = program.class("Program");
    let parent = format!("{RUNTIME}GuestCode");
    let mut class = Class::new(program.target, &name, &parent);
    let this = Type::Object(name.into());
    class.constructor();

    let mut types = vec![this.clone(), Type::Object(THREAD.into())];
    types.extend((0..6).map(|_| Type::Int));
    let mut code = Code::new(types);
    code.local(op::ALOAD, 1, 1);
    for slot in 2..8 {
        code.local(op::ILOAD, slot, 1);
    }
    let method = class.pool.method(&program.class("Dispatch"), "call", CALL);
    code.op_index(op::INVOKESTATIC, method, -5);
    code.op(op::LRETURN, -2);
    class.method("call", CALL, false, code);

    let mut code = Code::new(vec![this.clone()]);
    let names: Vec<String> = exported.iter().map(|(name, at)| format!("{name}={at:x}")).collect();
    let names = class.pool.string(&names.join(" "));
    code.constant(names);
    code.op(op::ARETURN, -1);
    class.method("exports", "()Ljava/lang/String;", false, code);

    let mut code = Code::new(vec![this]);
    code.int(&mut class.pool, i32::from(program.big_endian));
    code.op(op::IRETURN, -1);
    class.method("bigEndian", "()Z", false, code);
    if program.memory_top != 0 {
        let mut code = Code::new(vec![Type::Object(program.class("Program").into())]);
        code.int(&mut class.pool, program.memory_top as i32);
        code.op(op::IRETURN, -1);
        class.method("memoryTop", "()I", false, code);
    }
    class
}

/// The class that a small device starts.
pub fn midlet(program: &Program) -> Class {
    let parent = format!("{RUNTIME}Midlet");
    let name = program.class("Midlet");
    let mut class = Class::new(program.target, &name, &parent);
    let this = Type::Object(name.into());
    class.constructor();
    let mut code = Code::new(vec![this]);
    code.create(&mut class.pool, &program.class("Program"));
    code.op(op::ARETURN, -1);
    class.method("code", &format!("()L{RUNTIME}GuestCode;"), false, code);
    class
}

/// The class that `java -jar` starts.
pub fn main(program: &Program) -> Class {
    let name = &program.class("Main");
    let mut class = Class::new(program.target, name, "java/lang/Object");
    let mut code = Code::new(vec![Type::Object("[Ljava/lang/String;".into())]);
    code.create(&mut class.pool, &program.class("Program"));
    code.op(op::DUP, 1);
    // A class as a constant is more than a small device knows.
    let class_of = class.pool.method("java/lang/Object", "getClass", "()Ljava/lang/Class;");
    code.op_index(op::INVOKEVIRTUAL, class_of, 0);
    let resource = class.pool.string("image.elf");
    code.constant(resource);
    let descriptor = "(Ljava/lang/String;)Ljava/io/InputStream;";
    let open = class.pool.method("java/lang/Class", "getResourceAsStream", descriptor);
    code.op_index(op::INVOKEVIRTUAL, open, -1);
    code.local(op::ALOAD, 0, 1);
    let descriptor = format!("(L{RUNTIME}GuestCode;Ljava/io/InputStream;[Ljava/lang/String;)V");
    let run = class.pool.method(&format!("{RUNTIME}Launcher"), "run", &descriptor);
    code.op_index(op::INVOKESTATIC, run, -3);
    code.op(op::RETURN, 0);
    class.method("main", "([Ljava/lang/String;)V", true, code);
    class
}
