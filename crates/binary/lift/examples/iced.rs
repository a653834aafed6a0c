//! Decodes all code of a file from its first byte to its last, as a yardstick for lifting: what the
//! decoder alone takes, and with what it knows of the registers that instructions read and write.
//!
//! `cargo run --release -p fettle-lift --example iced -- parse|decode|info FILE`

use std::hint::black_box;

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [step, path] = arguments.as_slice() else { panic!("parse|decode|info FILE") };
    let bytes = std::fs::read(path).expect("a readable file");
    let image = fettle_image::Image::parse(bytes).expect("an image");
    if step == "parse" {
        return;
    }
    let mut info = InstructionInfoFactory::new();
    let mut insn = Instruction::default();
    for section in image.sections().iter().filter(|s| s.is_alloc() && s.is_executable()) {
        let code = image.read(section.start, section.size as usize).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, code, section.start.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            decoder.decode_out(&mut insn);
            if step == "info" {
                black_box(info.info(&insn));
            }
            black_box(&insn);
        }
    }
}
