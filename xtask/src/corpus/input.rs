//! Generated inputs: the same bytes on every machine, from the file's name as the seed.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Writes the file that `KIND:NAME:SIZE` asks for. The size is in KiB, for trees in files.
pub fn generate(request: &str, folder: &Path) -> Result<()> {
    let parts: Vec<&str> = request.split(':').collect();
    let [kind, name, size] = parts[..] else { bail!("input is KIND:NAME:SIZE, not {request}") };
    let size: usize = size.parse().with_context(|| format!("size in {request}"))?;
    let mut random = Random::new(name);
    let bytes = size << 10;
    let path = folder.join(name);
    match kind {
        "text" => std::fs::write(path, text(&mut random, bytes))?,
        "noise" => std::fs::write(path, random.bytes(bytes))?,
        "mixed" => std::fs::write(path, mixed(&mut random, bytes))?,
        "numbers" => std::fs::write(path, numbers(&mut random, bytes))?,
        "csv" => std::fs::write(path, csv(&mut random, bytes))?,
        "json" => std::fs::write(path, json(&mut random, bytes))?,
        "xml" => std::fs::write(path, xml(&mut random, bytes))?,
        "html" => std::fs::write(path, html(&mut random, bytes))?,
        "c" => std::fs::write(path, c_source(&mut random, bytes))?,
        "wav" => std::fs::write(path, wav(&mut random, bytes))?,
        "ppm" => std::fs::write(path, ppm(&mut random, bytes))?,
        "tree" => tree(&mut random, &path, size)?,
        _ => bail!("no generator for {kind}"),
    }
    Ok(())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn new(name: &str) -> Random {
        Random(name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        }))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

const SYLLABLES: [&str; 24] = [
    "ka", "lo", "mi", "ter", "an", "be", "sor", "in", "ul", "de", "ra", "st", "on", "vi", "gre",
    "po", "qua", "ne", "fal", "wy", "zo", "hem", "ri", "e",
];

/// A word; short ones and early syllables are common, as in real text.
fn word(random: &mut Random) -> String {
    let length = 1 + random.below(2) + random.below(3);
    (0..length)
        .map(|_| {
            let a = random.below(SYLLABLES.len());
            SYLLABLES[a.min(random.below(SYLLABLES.len()))]
        })
        .collect()
}

fn text(random: &mut Random, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 100);
    while text.len() < bytes {
        for _ in 0..4 + random.below(9) {
            text.push_str(&word(random));
            text.push(if random.below(12) == 0 { ',' } else { ' ' });
        }
        text.push_str(&word(random));
        text.push_str(if random.below(6) == 0 { ".\n\n" } else { ".\n" });
    }
    text
}

/// Stretches that compress well, badly and not at all.
fn mixed(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 4096);
    while out.len() < bytes {
        match random.below(3) {
            0 => out.extend(text(random, 3000).into_bytes()),
            1 => {
                let byte = random.next() as u8;
                out.extend(std::iter::repeat_n(byte, 2000));
            }
            _ => {
                let noise = random.bytes(1500);
                out.extend(noise);
            }
        }
    }
    out
}

fn numbers(random: &mut Random, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        let _ = writeln!(text, "{}", random.next() >> (16 + random.below(40)));
    }
    text
}

fn csv(random: &mut Random, bytes: usize) -> String {
    let mut text = String::from("id,name,group,amount,note\n");
    let mut id = 0;
    while text.len() < bytes {
        id += 1;
        let (name, note) = (word(random), word(random));
        let (group, amount) = (random.below(17), random.below(1_000_000));
        let _ = writeln!(text, "{id},{name},g{group},{}.{:02},{note}", amount / 100, amount % 100);
    }
    text
}

fn json(random: &mut Random, bytes: usize) -> String {
    let mut text = String::from("[");
    while text.len() < bytes {
        let tags: Vec<String> =
            (0..random.below(5)).map(|_| format!("\"{}\"", word(random))).collect();
        let _ = writeln!(
            text,
            "{{\"id\": {}, \"name\": \"{} {}\", \"score\": {}.{}, \"on\": {}, \"tags\": [{}], \
             \"in\": {{\"a\": null, \"b\": \"\\u00e9{}\"}}}},",
            random.below(1 << 20),
            word(random),
            word(random),
            random.below(1000),
            random.below(1000),
            random.below(2) == 0,
            tags.join(", "),
            word(random)
        );
    }
    text.push_str("{\"id\": -1, \"name\": \"last\", \"score\": 0, \"on\": false, \"tags\": [], \"in\": {}}]\n");
    text
}

fn xml(random: &mut Random, bytes: usize) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n<library xmlns:k=\"urn:k\">\n");
    while text.len() < bytes {
        let _ = writeln!(
            text,
            " <book id=\"b{}\" k:shelf=\"{}\"><title>{} &amp; {}</title><price>{}.{:02}</price>\
             <!-- {} --><note><![CDATA[<{}>]]></note></book>",
            random.below(1 << 20),
            random.below(40),
            word(random),
            word(random),
            random.below(90),
            random.below(100),
            word(random),
            word(random)
        );
    }
    text.push_str("</library>\n");
    text
}

fn html(random: &mut Random, bytes: usize) -> String {
    let mut text = String::from("<!doctype html><html><head><title>t</title></head><body>\n");
    while text.len() < bytes {
        let _ = writeln!(text, "<h2>{}</h2><p class='{}'>{}</p>", word(random), word(random), {
            let length = 200 + random.below(300);
            self::text(random, length)
        });
    }
    text.push_str("</body></html>\n");
    text
}

/// A C file with loops, switches, structures and calls, which prints one number.
fn c_source(random: &mut Random, bytes: usize) -> String {
    let mut text =
        String::from("#include <stdio.h>\nstruct pair { long a; double b; char c[9]; };\n");
    let mut count = 0;
    while text.len() < bytes {
        let (a, b, c) = (random.below(97) + 3, random.below(11) + 2, random.below(6) + 3);
        let callee =
            if count > 0 { format!("f{}(x - 1, p)", random.below(count)) } else { "x".into() };
        let _ = write!(
            text,
            "static long f{count}(long x, struct pair *p) {{\n  long s = {a};\n  if (x <= 0) return s;\n  \
             for (long i = 0; i < {b}; i++) {{\n    switch ((i + x) % {c}) {{\n"
        );
        for case in 0..c {
            let (k, m) = (random.below(1000), random.below(30) + 1);
            let _ = writeln!(
                text,
                "    case {case}: s += p->a * {k} + i; p->b *= 1.0 + 1.0 / {m}; p->c[{}] ^= (char)s; break;",
                case % 8
            );
        }
        let _ = writeln!(
            text,
            "    default: s ^= x << {}; }}\n  }}\n  if (p->b > 1e9) p->b = 1;\n  p->a = s & 0xffff;\n  return s + {callee};\n}}",
            random.below(9)
        );
        count += 1;
    }
    let _ =
        writeln!(text, "int main(void) {{\n  struct pair p = {{1, 1.5, \"abc\"}};\n  long t = 0;");
    for n in 0..count {
        let _ = writeln!(text, "  t = t * 31 + f{n}(3, &p);");
    }
    text.push_str("  printf(\"%ld %.6g %d\\n\", t, p.b, p.c[3]);\n  return 0;\n}\n");
    text
}

/// Two channels of 16 bits: two drifting square waves and a little noise.
fn wav(random: &mut Random, bytes: usize) -> Vec<u8> {
    let frames = bytes / 4;
    let data = (frames * 4) as u32;
    let mut out = Vec::with_capacity(bytes + 44);
    out.extend(b"RIFF");
    out.extend((36 + data).to_le_bytes());
    out.extend(b"WAVEfmt \x10\0\0\0\x01\0\x02\0");
    out.extend(44100u32.to_le_bytes());
    out.extend((44100u32 * 4).to_le_bytes());
    out.extend(b"\x04\0\x10\0data");
    out.extend(data.to_le_bytes());
    for n in 0..frames {
        let period = 100 + n / 2000 % 150;
        let wave = if n % period < period / 2 { 6000i16 } else { -6000 };
        let other = ((n * 37 % 8000) as i16) - 4000;
        let noise = (random.next() & 255) as i16;
        out.extend((wave + noise).to_le_bytes());
        out.extend((other - noise).to_le_bytes());
    }
    out
}

/// A picture with gradients, edges and noise.
fn ppm(random: &mut Random, bytes: usize) -> Vec<u8> {
    let side = ((bytes / 3) as f64).sqrt() as usize;
    let mut out = format!("P6\n{side} {side}\n255\n").into_bytes();
    for y in 0..side {
        for x in 0..side {
            let checks = if (x / 16 + y / 16) % 2 == 0 { 40 } else { 0 };
            out.push((x * 200 / side + checks) as u8);
            out.push((y * 200 / side + checks) as u8);
            out.push((random.next() & 31) as u8 + checks as u8);
        }
    }
    out
}

fn tree(random: &mut Random, path: &Path, count: usize) -> Result<()> {
    for n in 0..count {
        let folder = path.join(word(random)).join(format!("d{}", random.below(5)));
        std::fs::create_dir_all(&folder)?;
        let length = random.below(6000);
        std::fs::write(folder.join(format!("{}{n}.txt", word(random))), text(random, length))?;
    }
    Ok(())
}
