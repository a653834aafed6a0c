//! What is followed, as data: so that another thread, or another machine, follows the same.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fettle_follow::Session;
use fettle_requests::{Program, Source, compile};
use fettle_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// A trace, and the schemas that say what its requests are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Definition {
    /// The trace folder; every machine that takes part has to see it under this name.
    pub trace: PathBuf,
    /// Names and texts of the schemas.
    pub schemas: Vec<(String, String)>,
    /// Texts of the schemas that they use, by name.
    pub library: BTreeMap<String, String>,
}

impl Definition {
    /// Takes in everything that schemas use.
    ///
    /// # Errors
    ///
    /// [`Error::Tables`] if a schema is wrong.
    pub fn new(
        trace: &Path,
        sources: &[Source],
        library: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Definition> {
        let used = RefCell::new(BTreeMap::new());
        let remember = |name: &str| {
            let text = library(name)?;
            used.borrow_mut().insert(name.to_owned(), text.clone());
            Some(text)
        };
        compile(sources, &remember).map_err(fettle_follow::Error::from)?;
        let schemas = sources.iter().map(|s| (s.name.clone(), s.text.clone())).collect();
        let trace = std::path::absolute(trace).unwrap_or_else(|_| trace.to_owned());
        Ok(Definition { trace, schemas, library: used.into_inner() })
    }

    fn sources(&self) -> Vec<Source> {
        self.schemas.iter().map(|(name, text)| Source::new(name.clone(), text.clone())).collect()
    }

    /// The schemas, compiled.
    pub fn program(&self) -> Result<Program> {
        let library = |name: &str| self.library.get(name).cloned();
        compile(&self.sources(), &library).map_err(|e| fettle_follow::Error::from(e).into())
    }

    /// Opens the trace and calls `with` on a session.
    pub fn with_session<T>(&self, with: impl FnOnce(&Session<'_>) -> Result<T>) -> Result<T> {
        let trace = Trace::open(&self.trace)?;
        let library = |name: &str| self.library.get(name).cloned();
        let session = Session::open(&trace, &self.sources(), &library)?;
        with(&session)
    }
}
