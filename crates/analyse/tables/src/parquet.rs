//! Tables as files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fettle_follow::Session;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::BATCH_ROWS;
use crate::build::Builders;
use crate::error::{Error, Result};
use crate::schema::Table;

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 20;

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it lies.
    pub path: PathBuf,
    /// Its rows.
    pub rows: u64,
}

/// One file in the making. Until it is whole it has another name, so that no reader finds a part.
struct Output {
    table: Table,
    path: PathBuf,
    unfinished: PathBuf,
    writer: ArrowWriter<File>,
    rows: u64,
}

impl Output {
    fn create(folder: &Path, table: Table) -> Result<Output> {
        let path = folder.join(format!("{}.parquet", table.name()));
        let unfinished = path.with_extension("parquet.part");
        let level = ZstdLevel::try_new(3).map_err(|e| Error::write(&path, e))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let file = File::create(&unfinished).map_err(|e| Error::write(&unfinished, e))?;
        let writer = ArrowWriter::try_new(file, table.schema(), Some(properties));
        let writer = writer.map_err(|e| Error::write(&unfinished, e))?;
        Ok(Output { table, path, unfinished, writer, rows: 0 })
    }

    fn close(self) -> Result<Written> {
        self.writer.close().map_err(|e| Error::write(&self.unfinished, e))?;
        fs::rename(&self.unfinished, &self.path).map_err(|e| Error::write(&self.path, e))?;
        Ok(Written { path: self.path, rows: self.rows })
    }
}

/// Writes the requests of a session as `TABLE.parquet`, one file for each table, into a folder,
/// which is made if it is missing. Files of these names are replaced when the new ones are whole.
///
/// # Errors
///
/// [`Error::Write`] if a file cannot be written; [`Error::Follow`] if the trace cannot be read.
pub fn write_parquet(session: &Session<'_>, folder: &Path) -> Result<Vec<Written>> {
    fs::create_dir_all(folder).map_err(|e| Error::write(folder, e))?;
    let outputs: Result<Vec<Output>> =
        Table::ALL.iter().map(|table| Output::create(folder, *table)).collect();
    let mut outputs = outputs?;
    let mut builders = Builders::new(&Table::ALL);
    let mut failed = None;
    session.for_each_while(&mut |request, context| {
        builders.push(request, context);
        failed = drain(&mut builders, BATCH_ROWS, &mut outputs).err();
        failed.is_none()
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    drain(&mut builders, 1, &mut outputs)?;
    outputs.into_iter().map(Output::close).collect()
}

fn drain(builders: &mut Builders, rows: usize, outputs: &mut [Output]) -> Result<()> {
    for (table, batch) in builders.take(rows)? {
        for output in outputs.iter_mut().filter(|output| output.table == table) {
            output.writer.write(&batch).map_err(|e| Error::write(&output.unfinished, e))?;
            output.rows += batch.num_rows() as u64;
        }
    }
    Ok(())
}
