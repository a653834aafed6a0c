//! Which arguments are recorded: what the user asked for, and what a module's functions take.

use std::collections::HashMap;

use fettle_code::arguments::{Arguments, Class};
use fettle_image::{ArgType, Image, LinkAddr, Param, Signature};
use fettle_lift::Function;
use fettle_trace::{Parameter, ParameterType};
use fettle_types::FunctionIndex;

use crate::prototype::{self, PrototypeError};
use crate::select::{Names, Pattern, PatternError};

/// Functions whose arguments and results are recorded.
#[derive(Clone, Debug)]
pub struct ArgumentRequest {
    /// Which functions.
    pattern: Pattern,
    /// What they take, where the user says it.
    signature: Option<Signature>,
}

impl ArgumentRequest {
    /// Reads a pattern for functions whose debug information says what they take, or a prototype
    /// as in C, such as `int open(const char *path, int flags)`.
    ///
    /// # Errors
    ///
    /// What is wrong with a prototype, and where.
    pub fn parse(text: &str) -> Result<ArgumentRequest, PrototypeError> {
        let (name, signature) = match text.contains('(') {
            true => prototype::parse(text).map(|(name, signature)| (name, Some(signature)))?,
            false => (text.trim().to_owned(), None),
        };
        let pattern = name.parse().map_err(|error: PatternError| PrototypeError {
            text: text.to_owned(),
            column: 1 + text.find(&name).unwrap_or(0),
            problem: error.to_string(),
        })?;
        Ok(ArgumentRequest { pattern, signature })
    }
}

/// What is recorded in one module.
#[derive(Debug, Default)]
pub struct Recorded {
    /// For the probes.
    pub classes: HashMap<LinkAddr, Arguments>,
    /// For readers of the trace, by the function's entry: index, name and type.
    pub parameters: HashMap<LinkAddr, Vec<(i32, String, ParameterType)>>,
    /// Functions that were asked for, but of which no debug information or prototype says what they
    /// take.
    pub unknown: Vec<String>,
}

/// What of `functions` is recorded. A request that comes later wins.
pub fn recorded(image: &Image, functions: &[Function], requests: &[ArgumentRequest]) -> Recorded {
    let mut all = Recorded::default();
    if requests.is_empty() {
        return all;
    }
    for function in functions {
        let names = Names::of(image, function.entry, function.name.as_deref());
        let Some(request) = requests.iter().rev().find(|r| names.match_pattern(&r.pattern)) else {
            continue;
        };
        let signature = request.signature.clone().or_else(|| image.signature(function.entry));
        let Some(signature) = signature else {
            all.unknown.push(function.name.clone().unwrap_or_else(|| function.entry.to_string()));
            continue;
        };
        let (classes, parameters) = places(&signature);
        if !classes.is_none() {
            all.classes.insert(function.entry, classes);
            all.parameters.insert(function.entry, parameters);
        }
    }
    all
}

/// Rows of the trace for a function with this number.
pub fn rows(
    function: FunctionIndex,
    parameters: &[(i32, String, ParameterType)],
) -> Vec<Parameter> {
    let row = |(index, name, kind): &(i32, String, ParameterType)| Parameter {
        function,
        index: *index,
        name: name.clone(),
        kind: *kind,
    };
    parameters.iter().map(row).collect()
}

/// Where the values of a signature are, as far as that is certain: a structure by value may take
/// any number of registers, so nothing after it is recorded.
fn places(signature: &Signature) -> (Arguments, Vec<(i32, String, ParameterType)>) {
    let hidden = signature
        .ret_in_memory
        .then(|| Param { name: "(result)".to_owned(), ty: ArgType::Pointer });
    let all = hidden.iter().chain(&signature.params);
    let known: Vec<(&str, Class, ParameterType)> = all
        .map_while(|p| class(p.ty).map(|(class, kind)| (p.name.as_str(), class, kind)))
        .take(Arguments::MOST)
        .collect();
    let result = if signature.ret_in_memory { None } else { class(signature.ret) };
    let mut parameters: Vec<_> = known
        .iter()
        .enumerate()
        .map(|(i, (name, _, kind))| (i as i32, (*name).to_owned(), *kind))
        .collect();
    parameters.extend(result.map(|(_, kind)| (-1, String::new(), kind)));
    (Arguments::new(known.iter().map(|k| k.1), result.map(|r| r.0)), parameters)
}

fn class(ty: ArgType) -> Option<(Class, ParameterType)> {
    use ParameterType as P;
    Some(match ty {
        ArgType::Int { bytes, signed } => {
            let kind = match (bytes, signed) {
                (1, true) => P::I8,
                (2, true) => P::I16,
                (4, true) => P::I32,
                (1, false) => P::U8,
                (2, false) => P::U16,
                (4, false) => P::U32,
                (_, true) => P::I64,
                (_, false) => P::U64,
            };
            (Class::Integer, kind)
        }
        ArgType::Pointer => (Class::Integer, P::Pointer),
        ArgType::CString => (Class::Text, P::Text),
        ArgType::Float { bytes: 4 } => (Class::Float, P::F32),
        ArgType::Float { bytes: 8 } => (Class::Float, P::F64),
        _ => return None,
    })
}
