//! A trace's own files as tables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::prelude::SessionContext;
use fettle_trace::Trace;
use url::Url;

use crate::error::{Error, Result};
use crate::plan::plain;
use crate::problems::Problems;

/// Makes tables of files: `threads` of `threads.parquet`, `calls` of all in `calls`, and each kind of
/// event. A damaged file is a problem and hides no other.
pub(crate) async fn register(
    context: &SessionContext,
    trace: &Trace,
    problems: &Problems,
) -> Result<()> {
    // Which files are meant must not depend on where one asks.
    let folder = std::path::absolute(trace.path()).unwrap_or_else(|_| trace.path().to_owned());
    let mut tables: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in parquet_files(&folder) {
        tables.entry(stem(&path)).or_default().push(path);
    }
    tables.entry("calls".into()).or_default().extend(parquet_files(&folder.join("calls")));
    let (kinds, damaged) = trace.event_kinds()?;
    problems.add(damaged.iter().map(ToString::to_string));
    for path in parquet_files(&folder.join("events")) {
        let stem = stem(&path);
        let kind = stem.rsplit_once('-').map_or("", |(kind, _)| kind);
        if kinds.iter().any(|known| known.name == kind) {
            tables.entry(kind.to_owned()).or_default().push(path);
        }
    }
    for (name, files) in tables.into_iter().filter(|(_, files)| !files.is_empty()) {
        let table = TableReference::bare(name.as_str());
        if context.table_exist(table.clone())? {
            problems.add([format!("the trace's own table {name} is hidden by another")]);
            continue;
        }
        if let Some(made) = listed(context, &files, problems).await? {
            context.register_table(table, Arc::new(made))?;
        }
    }
    Ok(())
}

/// One table of several files; nothing if none can be read.
async fn listed(
    context: &SessionContext,
    files: &[PathBuf],
    problems: &Problems,
) -> Result<Option<ListingTable>> {
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()));
    let state = context.state();
    let mut schema = None;
    let mut urls = Vec::new();
    for path in files {
        // As a text, the path might mean a pattern.
        let Ok(url) = Url::from_file_path(path) else { continue };
        let url = ListingTableUrl::try_new(url, None)?;
        match options.infer_schema(&state, &url).await {
            Ok(found) if *schema.get_or_insert_with(|| found.clone()) == found => urls.push(url),
            Ok(_) => problems
                .add([format!("{} has other columns than files of its kind", path.display())]),
            Err(error) => {
                problems.add([format!("cannot read {}: {}", path.display(), Error::from(error))]);
            }
        }
    }
    let Some(schema) = schema else { return Ok(None) };
    let config = ListingTableConfig::new_with_multi_paths(urls);
    let config = config.with_listing_options(options).with_schema(plain(&schema));
    Ok(Some(ListingTable::try_new(config)?))
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .collect();
    paths.sort();
    paths
}
