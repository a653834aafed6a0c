//! Makes the stubs, and weaves events into them. `FETTLE_PROTOS` names folders of descriptions.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let folders = std::env::var("FETTLE_PROTOS")?;
    let folders: Vec<&str> = folders.split(':').collect();
    let descriptions = out.join("services.bin");
    tonic_prost_build::configure()
        .file_descriptor_set_path(&descriptions)
        .compile_protos(&["matrix.proto"], &folders)?;
    let options = std::env::var("FETTLE_OPTIONS").unwrap_or_default();
    println!("cargo::rerun-if-env-changed=FETTLE_OPTIONS");
    if options == "plain" {
        return Ok(());
    }
    fettle_rpc::tonic::weave(&descriptions, &["matrix.proto"], &out, &options)?;
    Ok(())
}
