//! A Java interface with the functions of a library, made of their prototypes.
//!
//! | C | Java |
//! |---|---|
//! | `const char *` | `String` |
//! | `const T *values, size_t count` | `T[] values`, whose length is the count |
//! | `T *values` | `T[] values`, copied back |
//! | `struct s`, `const struct s *` | a record, if each member has a type of Java |
//! | a function pointer | an interface with one method |
//! | integers, `float`, `double`, `bool` | types of the same size |
//! | everything else | `int`, an address |
//!
//! What a method passes for each argument stands in an annotation, which the runtime reads.

mod classes;
mod shape;

use crate::classfile::Class;
use crate::debug::{CType, Parameter, Prototype, Prototypes, Sections, Struct};
use crate::emit::Program;
use crate::error::Error;
use crate::image::Image;
use crate::options::{Capacity, KEYWORDS, Options, Output};

use shape::{Functional, JType, Method, Model, Record, is_length, scalar};

/// Methods that every object has, or the interface itself: without parameters these names are taken.
const TAKEN: [&str; 9] =
    ["wait", "notify", "notifyAll", "getClass", "hashCode", "toString", "close", "open", "library"];

/// The classes of the interface that is asked for; none if none is.
pub fn classes(image: &Image, program: &Program, options: &Options) -> Result<Vec<Class>, Error> {
    let Some(interface) = &options.interface else { return Ok(Vec::new()) };
    let sections = Sections::of(image);
    let prototypes = Prototypes::new(&sections);
    let mut model = Model::default();
    for prototype in options.exports.iter().filter_map(|name| prototypes.of(name)) {
        model.find_objects(&prototype);
    }
    for name in &options.exports {
        let refuse = |why: &str| Error::NoPrototype(name.clone(), why.to_owned());
        let Some(prototype) = prototypes.of(name) else {
            return Err(refuse("the file does not say its parameters; compile it with -g"));
        };
        if prototype.variadic {
            return Err(refuse(
                "it takes any number of arguments, which no method of Java can pass",
            ));
        }
        if prototype.parameters.is_empty() && TAKEN.contains(&name.as_str()) {
            return Err(refuse("Java has a method of this name; export one that calls it"));
        }
        let output = interface.outputs.iter().find(|output| output.function == *name);
        let method = model.method(name, &prototype, output).map_err(|why| refuse(&why))?;
        model.methods.push(method);
    }
    if let Some(output) =
        interface.outputs.iter().find(|output| !options.exports.contains(&output.function))
    {
        let why = "its output is described, but it is not exported";
        return Err(Error::NoPrototype(output.function.clone(), why.into()));
    }
    Ok(classes::write(&interface.name.replace('.', "/"), &model, program))
}

/// A name that Java takes for a parameter.
fn parameter_name(name: &str, index: usize) -> String {
    let clean: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match clean.as_str() {
        "" => format!("arg{index}"),
        keyword if KEYWORDS.contains(&keyword) => format!("{clean}_"),
        _ => clean,
    }
}

fn type_name(name: &str) -> String {
    let mut clean = String::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let mut letters = part.chars();
        clean.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        clean.extend(letters);
    }
    match clean.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("C{clean}"),
        false => clean,
    }
}

impl Model {
    /// Takes down which structures a function makes, or changes in place: these are objects that C has, not values.
    fn find_objects(&mut self, prototype: &Prototype) {
        let types = prototype.parameters.iter().map(|parameter| (&parameter.ty, false));
        for (ty, is_result) in types.chain([(&prototype.result, true)]) {
            if let CType::Pointer { to, constant } = ty
                && let CType::Struct(found) = &**to
                && (is_result || !constant)
            {
                self.objects.insert(found.name.clone());
            }
        }
    }

    /// Whether a structure is passed by its address: it is an object, or leads to others.
    fn is_object(&self, found: &Struct) -> bool {
        let text = |to: &CType| matches!(to, CType::Int { character: true, .. });
        let mut members = found.members.iter().flatten();
        let leads_on = members.any(|(_, ty, _)| match ty {
            CType::Pointer { to, constant } => !(*constant && text(to)),
            _ => false,
        });
        leads_on || self.objects.contains(&found.name)
    }

    fn method(
        &mut self,
        name: &str,
        prototype: &Prototype,
        output: Option<&Output>,
    ) -> Result<Method, String> {
        let arguments = &prototype.parameters;
        let position = |wanted: &String| {
            let found = arguments.iter().position(|parameter| parameter.name == *wanted);
            found.ok_or_else(|| format!("it has no parameter named {wanted}"))
        };
        let filled = match output {
            Some(output) => {
                let [array, length] = &output.parameters;
                Some((position(array)?, position(length)?, output))
            }
            None => None,
        };
        let mut parameters: Vec<(String, JType)> = Vec::new();
        let mut plan: Vec<String> = Vec::new();
        let mut result = self.ty(&prototype.result, name, true);
        let mut index = 0;
        while let Some(argument) = arguments.get(index) {
            match filled {
                Some((array, _, output)) if array == index => {
                    let element = element(&argument.ty)
                        .ok_or_else(|| format!("{} is no array of numbers", argument.name))?;
                    let capacity = match &output.capacity {
                        Capacity::Fixed(count) => count.to_string(),
                        Capacity::Call(function, names) => {
                            let places: Result<Vec<String>, String> =
                                names.iter().map(|n| Ok(position(n)?.to_string())).collect();
                            format!("{function}({})", places?.join(","))
                        }
                    };
                    plan.push(format!("+{capacity}"));
                    if result == JType::Int {
                        plan.insert(0, "!".into());
                    }
                    result = JType::Array(element);
                }
                Some((_, length, _)) if length == index => plan.push("+#".into()),
                _ => {
                    let own = parameters.len();
                    let next = arguments.get(index + 1);
                    let next_free =
                        !matches!(filled, Some((a, l, _)) if a == index + 1 || l == index + 1);
                    let (ty, how, counted) =
                        self.parameter(argument, next.filter(|_| next_free), name);
                    parameters.push((parameter_name(&argument.name, index), ty));
                    plan.push(format!("{how}{own}"));
                    if counted {
                        plan.push(format!("#{own}"));
                        index += 1;
                    }
                }
            }
            index += 1;
        }
        Ok(Method { name: name.to_owned(), parameters, result, plan: plan.join(" ") })
    }

    /// The type of a parameter, how it is passed, and whether the next one is its length.
    fn parameter(
        &mut self,
        argument: &Parameter,
        next: Option<&Parameter>,
        function: &str,
    ) -> (JType, &'static str, bool) {
        let counted = next.is_some_and(|next| is_length(&argument.name, next));
        if let CType::Pointer { to, constant } = &argument.ty {
            let how = if *constant { "<" } else { "" };
            let bytes = |to: &CType| matches!(to, CType::Int { character: true, .. });
            match &**to {
                CType::Void if counted => return (JType::Array('B'), how, true),
                to if bytes(to) && *constant && !counted => return (JType::String, "", false),
                CType::Struct(found) if *constant && !self.is_object(found) => {
                    if let Some(name) = self.record(found) {
                        return (JType::Own(name), "<", false);
                    }
                }
                CType::Function(prototype) => {
                    let name = self.functional(&argument.name, function, prototype);
                    return (JType::Own(name), "", false);
                }
                _ => {
                    if let Some(element) = element(&argument.ty) {
                        return (JType::Array(element), how, counted);
                    }
                }
            }
        }
        let how = if is_narrow(&argument.ty) { "u" } else { "" };
        (self.ty(&argument.ty, function, false), how, false)
    }

    /// The type of a value that stands alone.
    fn ty(&mut self, ty: &CType, function: &str, is_result: bool) -> JType {
        match ty {
            CType::Void => JType::Void,
            CType::Struct(found) => match self.record(found) {
                Some(name) => JType::Own(name),
                None => JType::Int,
            },
            CType::Pointer { to, .. } => match &**to {
                CType::Int { character: true, .. } if is_result => JType::String,
                CType::Function(prototype) if !is_result => {
                    JType::Own(self.functional("callback", function, prototype))
                }
                _ => JType::Int,
            },
            other => scalar(other).unwrap_or(JType::Int),
        }
    }

    /// The record of a structure, if all of its members have types of Java and lie where those would.
    fn record(&mut self, found: &Struct) -> Option<String> {
        let name = type_name(&found.name);
        if name.is_empty() {
            return None;
        }
        if self.records.iter().any(|record| record.name == name) {
            return Some(name);
        }
        let mut components = Vec::new();
        let (mut end, mut align) = (0, 1);
        for (index, (member, ty, place)) in found.members.as_ref()?.iter().enumerate() {
            let java = match ty {
                CType::Pointer { to, constant: true }
                    if matches!(**to, CType::Int { character: true, .. }) =>
                {
                    JType::String
                }
                CType::Pointer { .. } => JType::Int,
                other => scalar(other)?,
            };
            let size = java.size()?;
            end = u64::next_multiple_of(end, size);
            if end != *place {
                return None;
            }
            end += size;
            align = align.max(size);
            components.push((parameter_name(member, index), java));
        }
        if components.is_empty() || end.next_multiple_of(align) != found.size {
            return None;
        }
        self.records.push(Record { name: name.clone(), components });
        Some(name)
    }

    /// The interface of a function pointer: named after the parameter, and the function where two differ.
    fn functional(&mut self, parameter: &str, function: &str, prototype: &Prototype) -> String {
        let mut parameters = Vec::new();
        for (index, argument) in prototype.parameters.iter().enumerate() {
            let ty = match &argument.ty {
                CType::Pointer { to, constant: true }
                    if matches!(**to, CType::Int { character: true, .. }) =>
                {
                    JType::String
                }
                other => scalar(other).unwrap_or(JType::Int),
            };
            parameters.push((parameter_name(&argument.name, index), ty));
        }
        let result = match &prototype.result {
            CType::Void => JType::Void,
            // Java's byte and short have a sign.
            other if is_narrow(other) => JType::Int,
            other => scalar(other).unwrap_or(JType::Int),
        };
        let types =
            |all: &[(String, JType)]| all.iter().map(|(_, ty)| ty.clone()).collect::<Vec<_>>();
        let plain = type_name(if parameter.is_empty() { "callback" } else { parameter });
        for name in [plain.clone(), format!("{}{plain}", type_name(function))] {
            match self.functionals.iter().find(|known| known.name == name) {
                Some(known)
                    if types(&known.parameters) != types(&parameters) || known.result != result => {
                }
                Some(_) => return name,
                None => {
                    self.functionals.push(Functional { name: name.clone(), parameters, result });
                    return name;
                }
            }
        }
        let name = format!("Callback{}", self.functionals.len());
        self.functionals.push(Functional { name: name.clone(), parameters, result });
        name
    }
}

/// Whether a type has fewer bits than a register and no sign: others of its bits have to be nought.
fn is_narrow(ty: &CType) -> bool {
    matches!(ty, CType::Int { bytes: 1 | 2, unsigned: true, .. })
}

/// The letter of the elements that a pointer leads to, if they are numbers.
fn element(ty: &CType) -> Option<char> {
    let CType::Pointer { to, .. } = ty else { return None };
    match &**to {
        CType::Void => Some('B'),
        to => scalar(to).and_then(|ty| ty.letter()).filter(|letter| *letter != 'Z'),
    }
}
