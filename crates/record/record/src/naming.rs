//! The tables that give names to what records hold.

use fettle_trace::{Finish, Manifest, Parameter};

use crate::arguments;
use crate::modules::{self, Modules};
use crate::rows;

/// The tables that give names to what records hold.
pub(crate) fn name_tables(manifest: Manifest, modules: &Modules) -> Finish {
    let all = modules.all();
    let module = |m: &modules::Module| rows::module(m.id, &m.path, &m.image, &m.plan);
    let functions =
        |m: &modules::Module| rows::functions(m.id, m.first_function, &m.image, &m.plan);
    Finish {
        manifest,
        modules: all.iter().map(module).collect(),
        functions: all.iter().flat_map(functions).collect(),
        parameters: all.iter().flat_map(parameter_rows).collect(),
        skipped: all.iter().flat_map(|m| rows::skipped(m.id, &m.plan)).collect(),
        ..Finish::default()
    }
}

fn parameter_rows(module: &modules::Module) -> Vec<Parameter> {
    let functions = module.plan.functions.iter().enumerate();
    let known =
        functions.filter_map(|(i, f)| Some((i, module.arguments.parameters.get(&f.entry)?)));
    known
        .flat_map(|(i, parameters)| {
            arguments::rows(module.first_function.plus(i as u32), parameters)
        })
        .collect()
}
