//! Frames between Fettle and its driver in Python; `driver.py` tells their form.

use std::io::{self, Read, Write};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;

use super::returned::Returned;
use crate::error::{Error, Result};

/// Most bytes of a name, and of a table that comes back: the analysis is the user's own program, but
/// one that wrote into the socket should not take all memory.
const NAME_MAX: u32 = 1 << 16;
const TABLE_MAX: u64 = 1 << 32;

/// The names of an analysis's handlers, which is the first that it sends.
pub(super) fn handlers(from: &mut impl Read) -> Result<Vec<String>> {
    let frame = receive(from).map_err(Error::PythonEnded)?;
    let (name, payload) = frame.unwrap_or_default();
    let handlers = serde_json::from_slice(&payload).ok().filter(|_| name == "handlers");
    handlers.ok_or_else(|| Error::Python("the analysis wrote into Fettle's own socket".into()))
}

/// The tables of an analysis.
pub(super) fn returned(from: &mut impl Read) -> Result<Vec<Returned>> {
    let mut tables = Vec::new();
    while let Some((title, payload)) = receive(from).map_err(Error::PythonEnded)? {
        let reader = StreamReader::try_new(payload.as_slice(), None)?;
        let schema = reader.schema();
        let mut batches: Vec<RecordBatch> = reader.collect::<std::result::Result<_, _>>()?;
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(schema));
        }
        tables.push(Returned { title: title.trim().to_owned(), batches });
    }
    Ok(tables)
}

fn receive(from: &mut impl Read) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length == 0 {
        return Ok(None);
    }
    let name = bytes(from, length.into(), NAME_MAX.into())?;
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let payload = bytes(from, u64::from_le_bytes(length), TABLE_MAX)?;
    Ok(Some((String::from_utf8_lossy(&name).into_owned(), payload)))
}

/// So many bytes; memory grows only as they come.
fn bytes(from: &mut impl Read, length: u64, most: u64) -> io::Result<Vec<u8>> {
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let mut out = Vec::new();
    if from.take(length).read_to_end(&mut out)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(out)
}

/// Sends a batch to a handler.
pub(super) fn send(to: &mut impl Write, name: &str, batch: &RecordBatch) -> Result<()> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    let payload = writer.into_inner()?;
    let send = |to: &mut dyn Write| -> io::Result<()> {
        to.write_all(&(name.len() as u32).to_le_bytes())?;
        to.write_all(name.as_bytes())?;
        to.write_all(&(payload.len() as u64).to_le_bytes())?;
        to.write_all(&payload)
    };
    send(to).map_err(Error::PythonEnded)
}

/// Sends what is left, and says that there is no more.
pub(super) fn end(to: &mut impl Write) -> Result<()> {
    to.write_all(&[0; 4]).and_then(|()| to.flush()).map_err(Error::PythonEnded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_lie_are_refused() {
        let mut frame = 3u32.to_le_bytes().to_vec();
        frame.extend(b"abc");
        frame.extend(u64::MAX.to_le_bytes());
        let error = receive(&mut frame.as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        frame.truncate(7);
        frame.extend(9u64.to_le_bytes());
        frame.extend(b"short");
        let error = receive(&mut frame.as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(handlers(&mut [0u8; 4].as_slice()).is_err());
    }

    #[test]
    fn an_analysis_that_is_gone_is_no_message_of_ours() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(theirs);
        // Whether the buffer or the end of it meets the closed socket is chance.
        let ended = end(&mut io::BufWriter::new(&ours)).unwrap_err();
        assert!(matches!(ended, Error::PythonEnded(_)), "{ended}");
    }
}
