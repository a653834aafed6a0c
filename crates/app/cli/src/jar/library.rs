//! What makes a jar a library: which functions, under which names.

use anyhow::{Context, bail};
use fettle_jar::{Capacity, Interface, Options, Output, Target, is_qualified_name};

use super::arguments::Args;

/// The translation that the arguments ask for.
pub fn options(args: &Args) -> anyhow::Result<Options> {
    let target = args.target;
    let mut options = Options {
        interruptible: args.interruptible,
        target,
        coordinates: args.coordinates.clone(),
        ..Options::default()
    };
    if target == Target::Cldc && (args.interruptible || !args.export.is_empty()) {
        bail!("--target cldc makes programs only: leave out --export and --interruptible");
    }
    if target != Target::Java && args.aot_cache {
        bail!("--aot-cache is for Java: leave it out, or --target");
    }
    if target == Target::Android && args.interface.is_some() {
        bail!(
            "--target android has no records, which --interface may need: leave it out, and call \
             the functions by an interface of your own"
        );
    }
    options.exports = args.export.clone();
    if let Some(name) = &args.interface {
        check_name("--interface", name)?;
        let outputs = args.output_array.iter().map(|text| output(text));
        let outputs = outputs.collect::<anyhow::Result<Vec<_>>>()?;
        for output in &outputs {
            if let Capacity::Call(function, _) = &output.capacity
                && !options.exports.contains(function)
            {
                bail!("--out: {function} is not exported; add it to --export");
            }
        }
        if let Some((package, _)) = name.rsplit_once('.') {
            options.package = package.into();
        }
        options.interface = Some(Interface { name: name.clone(), outputs });
    }
    if let Some(package) = &args.package {
        check_name("--package", package)?;
        options.package = package.clone();
    }
    Ok(options)
}

fn check_name(option: &str, name: &str) -> anyhow::Result<()> {
    match is_qualified_name(name) {
        true => Ok(()),
        false => bail!("{option} {name}: not a name in Java, as org.acme.Name"),
    }
}

/// Reads `function(array,length)=capacity`.
fn output(text: &str) -> anyhow::Result<Output> {
    let form =
        || format!("--out {text}: write FUNCTION(ARRAY,LENGTH)=COUNT or =FUNCTION(PARAMETER,…)");
    let (call, capacity) = text.split_once('=').with_context(form)?;
    let (function, parameters) = parse_call(call).with_context(form)?;
    let parameters = <[String; 2]>::try_from(parameters).ok().with_context(form)?;
    let capacity = match capacity.trim().parse() {
        Ok(count) => Capacity::Fixed(count),
        Err(_) => {
            let (function, parameters) = parse_call(capacity).with_context(form)?;
            Capacity::Call(function, parameters)
        }
    };
    Ok(Output { function, parameters, capacity })
}

fn parse_call(text: &str) -> Option<(String, Vec<String>)> {
    let (function, rest) = text.trim().split_once('(')?;
    let names = rest.strip_suffix(')')?.split(',').map(|name| name.trim().to_owned());
    let names: Vec<String> = names.collect();
    let whole = !function.is_empty() && names.iter().all(|name| !name.is_empty());
    whole.then(|| (function.to_owned(), names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs() {
        let read =
            output("compress2(dest, destLen)=compressBound(sourceLen)").expect("well formed");
        assert_eq!(read.function, "compress2");
        assert_eq!(read.parameters, ["dest", "destLen"]);
        let bound = Capacity::Call("compressBound".into(), vec!["sourceLen".into()]);
        assert_eq!(read.capacity, bound);
        assert_eq!(output("f(a,b)=4096").expect("well formed").capacity, Capacity::Fixed(4096));
        for wrong in ["f", "f(a)=1", "f(a,b)", "f(a,b)=g", "(a,b)=1", "f(a,)=1"] {
            assert!(output(wrong).is_err(), "{wrong}");
        }
    }
}
