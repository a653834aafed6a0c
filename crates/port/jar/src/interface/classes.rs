//! Class files of an interface, its records and its functional interfaces.

use super::shape::{Functional, JType, Method, Model, Record};
use crate::classfile::{Class, Code, Type};
use crate::emit::{Program, RUNTIME};
use crate::op;
use crate::target::Target;

const ACC_PUBLIC: u16 = 0x1;
const ACC_STATIC: u16 = 0x8;
const ACC_FINAL: u16 = 0x10;
const ACC_INTERFACE: u16 = 0x200;
const ACC_ABSTRACT: u16 = 0x400;

/// The classes; `interface` is the name with slashes.
pub fn write(interface: &str, model: &Model, program: &Program) -> Vec<Class> {
    let mut inner: Vec<(String, u16)> = Vec::new();
    let record = ACC_PUBLIC | ACC_STATIC | ACC_FINAL;
    inner.extend(model.records.iter().map(|each| (each.name.clone(), record)));
    let functional = ACC_PUBLIC | ACC_STATIC | ACC_INTERFACE | ACC_ABSTRACT;
    inner.extend(model.functionals.iter().map(|each| (each.name.clone(), functional)));
    let mut all = vec![outer(interface, model, program)];
    all.extend(model.records.iter().map(|each| record_class(interface, each)));
    all.extend(model.functionals.iter().map(|each| functional_class(interface, each)));
    for class in &mut all {
        nest(class, interface, &inner);
    }
    all
}

/// Says which classes are members of the interface.
fn nest(class: &mut Class, interface: &str, inner: &[(String, u16)]) {
    if inner.is_empty() {
        return;
    }
    let host = class.pool.class(interface);
    let mut members = (inner.len() as u16).to_be_bytes().to_vec();
    let mut table = members.clone();
    for (name, access) in inner {
        let full = class.pool.class(&format!("{interface}${name}"));
        let simple = class.pool.utf8(name);
        members.extend(full.to_be_bytes());
        for half in [full, host, simple, *access] {
            table.extend(half.to_be_bytes());
        }
    }
    class.attribute("InnerClasses", table);
    match class.name() == interface {
        true => class.attribute("NestMembers", members),
        false => class.attribute("NestHost", host.to_be_bytes().to_vec()),
    }
}

fn descriptor(interface: &str, parameters: &[(String, JType)], result: &JType) -> String {
    let types: String = parameters.iter().map(|(_, ty)| ty.descriptor(interface)).collect();
    format!("({types}){}", result.descriptor(interface))
}

/// The names of parameters, which editors show.
fn parameter_names(class: &mut Class, parameters: &[(String, JType)]) -> Vec<u8> {
    // More than 255 no method has.
    let mut content = vec![parameters.len() as u8];
    for (name, _) in parameters {
        content.extend(class.pool.utf8(name).to_be_bytes());
        content.extend([0, 0]);
    }
    content
}

/// An annotation with one text.
fn annotation(class: &mut Class, name: &str, value: &str) -> Vec<u8> {
    let mut content = 1_u16.to_be_bytes().to_vec();
    let halves = [class.pool.utf8(&format!("L{RUNTIME}{name};")), 1, class.pool.utf8("value")];
    halves.iter().for_each(|half| content.extend(half.to_be_bytes()));
    content.push(b's');
    content.extend(class.pool.utf8(value).to_be_bytes());
    content
}

fn outer(interface: &str, model: &Model, program: &Program) -> Class {
    let mut class = Class::interface(interface, &["java/lang/AutoCloseable"]);
    let options = format!("{RUNTIME}Options");
    let (as_parameter, own) = (format!("L{options};"), format!("L{interface};"));
    for given in [false, true] {
        let parameters =
            if given { vec![Type::Object(options.clone().into())] } else { Vec::new() };
        let mut code = Code::new(parameters);
        code.create(&mut class.pool, &program.class("Program"));
        match given {
            true => code.local(op::ALOAD, 0, 1),
            false => {
                let none = class.pool.method(&options, "none", &format!("(){as_parameter}"));
                code.op_index(op::INVOKESTATIC, none, 1);
            }
        }
        let this = class.pool.class(interface);
        code.constant(this);
        let library = format!("{RUNTIME}Library");
        let open =
            format!("(L{RUNTIME}GuestCode;{as_parameter}Ljava/lang/Class;)Ljava/lang/Object;");
        let open = class.pool.method(&library, "openAs", &open);
        code.op_index(op::INVOKESTATIC, open, -2);
        code.op_index(op::CHECKCAST, this, 0);
        code.op(op::ARETURN, -1);
        let takes = if given { as_parameter.as_str() } else { "" };
        class.method("open", &format!("({takes}){own}"), true, code);
    }
    class.abstract_method("close", "()V", &[]);
    class.abstract_method("library", &format!("()L{RUNTIME}Library;"), &[]);
    for Method { name, parameters, result, plan } in &model.methods {
        let names = parameter_names(&mut class, parameters);
        let plan = annotation(&mut class, "Prototype", plan);
        let attributes = [("MethodParameters", names), ("RuntimeVisibleAnnotations", plan)];
        class.abstract_method(name, &descriptor(interface, parameters, result), &attributes);
    }
    class
}

fn functional_class(interface: &str, functional: &Functional) -> Class {
    let mut class = Class::interface(&format!("{interface}${}", functional.name), &[]);
    let names = parameter_names(&mut class, &functional.parameters);
    let descriptor = descriptor(interface, &functional.parameters, &functional.result);
    class.abstract_method("call", &descriptor, &[("MethodParameters", names)]);
    class
}

fn verification(ty: &JType) -> Type {
    match ty {
        JType::Long => Type::Long,
        JType::Float => Type::Float,
        JType::Double => Type::Double,
        JType::String => Type::Object("java/lang/String".into()),
        _ => Type::Int,
    }
}

/// How a type is loaded, and how it is returned.
fn opcodes(ty: &JType) -> (u8, u8) {
    match ty {
        JType::Long => (op::LLOAD, op::LRETURN),
        JType::Float => (op::FLOAD, op::FRETURN),
        JType::Double => (op::DLOAD, op::DRETURN),
        JType::String => (op::ALOAD, op::ARETURN),
        _ => (op::ILOAD, op::IRETURN),
    }
}

/// A record as Java's compiler makes it; what compares and prints is in the runtime.
fn record_class(interface: &str, record: &Record) -> Class {
    let name = format!("{interface}${}", record.name);
    let mut class = Class::new(Target::Java, &name, "java/lang/Record");
    let this = Type::Object(name.clone().into());
    let mut types = vec![this.clone()];
    types.extend(record.components.iter().map(|(_, ty)| verification(ty)));
    let mut code = Code::new(types);
    code.local(op::ALOAD, 0, 1);
    let constructor = class.pool.method("java/lang/Record", "<init>", "()V");
    code.op_index(op::INVOKESPECIAL, constructor, -1);
    let mut slot = 1;
    let mut table = (record.components.len() as u16).to_be_bytes().to_vec();
    for (component, ty) in &record.components {
        let descriptor = ty.descriptor(interface);
        let size = verification(ty).slots();
        class.final_field(component, &descriptor);
        let field = class.pool.field(&name, component, &descriptor);
        let (load, back) = opcodes(ty);
        code.local(op::ALOAD, 0, 1);
        code.local(load, slot, i32::from(size));
        code.op_index(op::PUTFIELD, field, -1 - i32::from(size));
        slot += size;
        let mut accessor = Code::new(vec![this.clone()]);
        accessor.local(op::ALOAD, 0, 1);
        accessor.op_index(op::GETFIELD, field, i32::from(size) - 1);
        accessor.op(back, -i32::from(size));
        class.method(component, &format!("(){descriptor}"), false, accessor);
        for half in [class.pool.utf8(component), class.pool.utf8(&descriptor), 0] {
            table.extend(half.to_be_bytes());
        }
    }
    code.op(op::RETURN, 0);
    let constructor = descriptor(interface, &record.components, &JType::Void);
    class.method("<init>", &constructor, false, code);
    class.attribute("Record", table);
    for (method, takes, returns, back) in [
        ("toString", "", "Ljava/lang/String;", op::ARETURN),
        ("hashCode", "", "I", op::IRETURN),
        ("equals", "Ljava/lang/Object;", "Z", op::IRETURN),
    ] {
        let mut types = vec![this.clone()];
        let given = !takes.is_empty();
        types.extend(given.then(|| Type::Object("java/lang/Object".into())));
        let mut code = Code::new(types);
        code.local(op::ALOAD, 0, 1);
        if given {
            code.local(op::ALOAD, 1, 1);
        }
        let descriptor = format!("(Ljava/lang/Record;{takes}){returns}");
        let helper = class.pool.method(&format!("{RUNTIME}Records"), method, &descriptor);
        code.op_index(op::INVOKESTATIC, helper, -i32::from(given));
        code.op(back, -1);
        class.method(method, &format!("({takes}){returns}"), false, code);
    }
    class
}
