//! Names of addresses in processes that may be gone: from what lay where, and the files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fettle_demangle::demangle;
use fettle_image::{Image, LineTable, LinkAddr, SymbolKind};
use fettle_live::{LiveAddr, Mapping};
use fettle_locks::{Names, Place};
use fettle_trace::Trace;
use fettle_types::LoadBias;

use crate::locks::object;

/// A file that lies in a process, read once.
pub struct Module {
    /// Its contents.
    pub image: &'static Image,
    lines: LineTable<'static>,
    name: String,
    /// Its variables: first address, end, name.
    variables: Vec<(u64, u64, String)>,
    /// First link address that is mapped, and the end.
    span: (LinkAddr, LinkAddr),
}

impl Module {
    /// Reads the file, if it is still the one that was mapped.
    fn open(path: &Path, inode: u64) -> Option<Module> {
        let meta = std::fs::metadata(path).ok()?;
        if meta.ino() != inode {
            return None;
        }
        Module::read(path)
    }

    fn read(path: &Path) -> Option<Module> {
        let image = fettle_record::modules::open_image(path)
            .ok()
            .or_else(|| Image::parse(std::fs::read(path).ok()?).ok())?;
        let is_variable = |kind| matches!(kind, SymbolKind::Object);
        let mut variables: Vec<(u64, u64, String)> = image
            .symbols()
            .iter()
            .filter(|symbol| is_variable(symbol.kind) && symbol.size > 0)
            .map(|s| (s.addr.0, s.addr.0.saturating_add(s.size), demangle(&s.name)))
            .collect();
        variables.sort();
        let start = image.segments().iter().map(|s| s.start.0).min()?;
        let end = image.segments().iter().map(|s| s.end().0).max()?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Read once, and needed until the command ends.
        let image: &'static Image = Box::leak(Box::new(image));
        Some(Module {
            image,
            lines: image.lines(),
            name,
            variables,
            span: (LinkAddr(start & !4095), LinkAddr(end)),
        })
    }

    fn variable(&self, at: u64) -> Option<&str> {
        let after = self.variables.partition_point(|(start, ..)| *start <= at);
        let (_, end, name) = self.variables.get(after.checked_sub(1)?)?;
        (at < *end).then_some(name)
    }

    fn place(&self, at: u64) -> Place {
        let name = self.image.name_at(LinkAddr(at)).map(demangle);
        let line = self.lines.line(LinkAddr(at)).map(|line| {
            let file = line.file.rsplit('/').next().unwrap_or_default();
            format!("{file}:{}", line.line)
        });
        let function = name.unwrap_or_else(|| format!("{at:#x}"));
        Place { function, module: self.name.clone(), line }
    }
}

/// Modules of a process: where each begins and ends, and its load bias.
type Loaded = Vec<(LiveAddr, LiveAddr, LoadBias, &'static Module)>;

/// Files that lie in processes.
pub struct Files {
    loaded: HashMap<u32, Loaded>,
    places: RefCell<HashMap<(u32, u64), Place>>,
    members: RefCell<HashMap<(u32, u64), Option<String>>>,
}

impl Files {
    /// Reads what `maps` names, by process.
    pub fn new(maps: &HashMap<u32, Vec<Mapping>>) -> Files {
        let mut read: HashMap<PathBuf, Option<&'static Module>> = HashMap::new();
        let mut loaded = HashMap::new();
        for (pid, maps) in maps {
            let mut modules: Loaded = Vec::new();
            for mapping in maps.iter().filter(|m| m.offset == 0 && !m.deleted) {
                let Some(path) = mapping.path.as_ref().filter(|path| path.is_absolute()) else {
                    continue;
                };
                let open = || {
                    let module = Module::open(path, mapping.inode)?;
                    Some(&*Box::leak(Box::new(module)))
                };
                let found = *read.entry(path.clone()).or_insert_with(open);
                if let Some(found) = found {
                    let (start, end) = found.span;
                    let bias = mapping.start - start;
                    modules.push((mapping.start, end + bias, bias, found));
                }
            }
            loaded.insert(*pid, modules);
        }
        Files { loaded, places: RefCell::default(), members: RefCell::default() }
    }

    /// Reads the files of a trace's modules, as far as they are still those that were recorded.
    pub fn of_trace(trace: &Trace) -> Files {
        let open = |recorded: &fettle_trace::Module| {
            let module = Module::read(Path::new(&recorded.path))?;
            let same = fettle_record::rows::build_id(module.image) == recorded.build_id;
            same.then(|| &*Box::leak(Box::new(module)))
        };
        let modules = trace.modules().unwrap_or_default();
        let read: HashMap<_, _> = modules.iter().map(|module| (module.id, open(module))).collect();
        let mut loaded: HashMap<u32, Loaded> = HashMap::new();
        for mapping in trace.mappings().unwrap_or_default() {
            let Some(Some(module)) = read.get(&mapping.module) else { continue };
            let bias = LoadBias(mapping.base);
            let (start, end) = module.span;
            let found = (start + bias, end + bias, bias, *module);
            loaded.entry(mapping.pid).or_default().push(found);
        }
        Files { loaded, places: RefCell::default(), members: RefCell::default() }
    }

    /// The module at an address, with its bias.
    pub fn module(&self, pid: u32, at: u64) -> Option<(&'static Module, LoadBias)> {
        let (.., bias, found) = self.at(pid, at)?;
        Some((*found, *bias))
    }

    fn at(&self, pid: u32, at: u64) -> Option<&(LiveAddr, LiveAddr, LoadBias, &'static Module)> {
        let modules = self.loaded.get(&pid)?;
        modules.iter().find(|(start, end, ..)| (*start..*end).contains(&LiveAddr(at)))
    }
}

impl Names for Files {
    fn place(&self, pid: u32, address: u64) -> Place {
        if let Some(known) = self.places.borrow().get(&(pid, address)) {
            return known.clone();
        }
        // A call returns behind itself, which may be the next function's first instruction.
        let call = address.saturating_sub(1);
        let place = match self.at(pid, call) {
            Some((.., bias, found)) => found.place((LiveAddr(call) - *bias).0),
            None => Place { function: format!("{address:#x}"), ..Place::default() },
        };
        self.places.borrow_mut().insert((pid, address), place.clone());
        place
    }

    fn variable(&self, pid: u32, address: u64) -> Option<String> {
        let (.., bias, found) = self.at(pid, address)?;
        found.variable((LiveAddr(address) - *bias).0).map(str::to_owned)
    }

    fn member(&self, pid: u32, address: u64) -> Option<String> {
        if let Some(known) = self.members.borrow().get(&(pid, address)) {
            return known.clone();
        }
        let at = self.module(pid, address);
        let found =
            at.and_then(|(module, bias)| object::member(module.image, LiveAddr(address) - bias));
        self.members.borrow_mut().insert((pid, address), found.clone());
        found
    }

    fn system_call(&self, number: u32) -> String {
        let name = fettle_import::system_call_name(number.into());
        name.map_or_else(|| format!("system call {number}"), str::to_owned)
    }
}

/// What names the variables of a trace's processes.
pub fn variables(trace: &Trace) -> fettle_server::Variable {
    let files = Files::of_trace(trace);
    Box::new(move |pid, address| files.variable(pid, address))
}

/// Whether an address is in a mapping that can be executed.
pub fn is_code(maps: &[Mapping], at: u64) -> bool {
    maps.iter().any(|m| m.executable && m.contains(LiveAddr(at)))
}
