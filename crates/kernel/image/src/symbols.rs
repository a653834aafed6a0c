//! The kernel's symbols, as `kallsyms` lists them.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxBuildHasher;

use crate::error::Error;

/// A symbol of the kernel, or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address in this boot.
    pub address: u64,
    /// `nm`'s letter for its kind.
    pub kind: u8,
    /// Its name.
    pub name: Box<str>,
}

impl Symbol {
    /// Whether it names text.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

/// The symbols by address and name.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    all: Vec<Symbol>,
    modules: BTreeMap<Box<str>, Vec<Symbol>>,
    names: HashMap<Box<str>, Vec<u32>, FxBuildHasher>,
}

impl Symbols {
    /// Parses the text of `kallsyms`. Lines of modules are kept apart, lines that are none left out.
    ///
    /// # Errors
    /// If it has no address that is not zero.
    pub fn parse(text: &str) -> Result<Symbols, Error> {
        let (mut all, mut modules) = (Vec::new(), BTreeMap::<Box<str>, Vec<Symbol>>::new());
        for (symbol, module) in text.lines().filter_map(symbol) {
            match module {
                None => all.push(symbol),
                Some(module) => modules.entry(module.into()).or_default().push(symbol),
            }
        }
        modules.values_mut().for_each(|of| of.sort_by_key(|symbol| symbol.address));
        if all.iter().all(|symbol| symbol.address == 0) {
            return Err(Error::NoAddresses);
        }
        // Stable: symbols of one address keep the kernel's order.
        all.sort_by_key(|symbol| symbol.address);
        let mut names: HashMap<Box<str>, Vec<u32>, _> = HashMap::default();
        for (i, symbol) in all.iter().enumerate() {
            names.entry(symbol.name.clone()).or_default().push(i as u32);
        }
        Ok(Symbols { all, modules, names })
    }

    /// The symbols of each module, by address.
    pub fn modules(&self) -> &BTreeMap<Box<str>, Vec<Symbol>> {
        &self.modules
    }

    /// All symbols of the kernel itself by address.
    pub fn all(&self) -> &[Symbol] {
        &self.all
    }

    /// All symbols of that name: static functions share names.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Symbol> {
        self.names.get(name).into_iter().flatten().map(|i| &self.all[*i as usize])
    }

    /// The address of the only symbol of that name; `None` if there is none or several.
    pub fn address(&self, name: &str) -> Option<u64> {
        let mut found = self.named(name);
        let first = found.next()?;
        found.next().is_none().then_some(first.address)
    }

    /// The symbols at exactly this address.
    pub fn at(&self, address: u64) -> &[Symbol] {
        let from = self.all.partition_point(|symbol| symbol.address < address);
        let count = self.all[from..].partition_point(|symbol| symbol.address == address);
        &self.all[from..from + count]
    }
}

/// A symbol, and the module that it is of.
fn symbol(line: &str) -> Option<(Symbol, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let [kind] = *words.next()?.as_bytes() else { return None };
    let name = words.next()?.into();
    let symbol = Symbol { address, kind, name };
    match words.next() {
        None => Some((symbol, None)),
        // What has no `struct module`, as the programs of `[bpf]`, is none that is read.
        Some(module) => {
            let module = module.strip_prefix('[')?.strip_suffix(']')?;
            Some((symbol, Some(module)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_kept_apart_and_rubbish_is_left_out() {
        let text = "ffffffff81000010 t one\nffffffff81000000 T _text\nffffffff81000000 T _stext\n\
                    ffffffffc0000000 t far\t[ext4]\nrubbish\nffffffff81000020 t one\n12 tt x\n";
        let symbols = Symbols::parse(text).unwrap();
        assert_eq!(symbols.all().len(), 4);
        assert_eq!(symbols.address("_text"), Some(0xffff_ffff_8100_0000));
        assert_eq!(symbols.address("one"), None);
        assert_eq!(symbols.named("one").count(), 2);
        assert_eq!(symbols.at(0xffff_ffff_8100_0000).len(), 2);
        assert_eq!(symbols.address("far"), None);
        assert_eq!(symbols.modules()["ext4"][0].address, 0xffff_ffff_c000_0000);
    }

    #[test]
    fn hidden_addresses_are_an_error() {
        let hidden = Symbols::parse("0000000000000000 T _text\n0000000000000000 T _end\n");
        assert_eq!(hidden.err(), Some(Error::NoAddresses));
    }
}
