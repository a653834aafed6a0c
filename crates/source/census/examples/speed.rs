//! How fast source text is counted, on one core and without the disk: `speed FOLDER ROUNDS` prints
//! megabytes, sites and the median of megabytes a second, as one line of JSON.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fettle_census::file::census;
use fettle_census::kinds::Kinds;
use fettle_census::names::Names;
use fettle_census::token::Language;

fn files(folder: &Path, found: &mut Vec<(Language, Vec<u8>)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            files(&path, found)?;
        } else if let Some(language) = path.to_str().and_then(Language::of) {
            found.push((language, std::fs::read(&path)?));
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("which folder?")?);
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;
    let mut found = Vec::new();
    files(&folder, &mut found)?;
    let bytes: usize = found.iter().map(|(_, text)| text.len()).sum();
    let (kinds, names) = (Kinds::usual()?, Names::default());
    let mut sites = 0;
    let mut speeds: Vec<f64> = (0..rounds.max(1))
        .map(|_| {
            let start = Instant::now();
            let all = found.iter().map(|(language, text)| census(text, *language, &kinds, &names));
            sites = all.map(|census| census.sites.len()).sum();
            bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
        })
        .collect();
    speeds.sort_by(f64::total_cmp);
    println!(
        "{{\"files\": {}, \"megabytes\": {:.1}, \"sites\": {sites}, \"megabytes_a_second\": {:.1}}}",
        found.len(),
        bytes as f64 / 1e6,
        speeds[speeds.len() / 2]
    );
    Ok(())
}
