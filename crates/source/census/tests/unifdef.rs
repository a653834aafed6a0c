//! Where all names of a condition are known, and where some are not, the same lines stay as with `unifdef`.

use std::io::Write;
use std::process::{Command, Stdio};

use fettle_census::conditional::kept_lines;
use fettle_census::names::Names;
use fettle_census::token::Language;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    fn expression(&mut self, depth: u64, names: &[&str]) -> String {
        let name = self.pick(names);
        match self.below(if depth == 0 { 4 } else { 9 }) {
            0 => format!("defined({name})"),
            1 => format!("defined {name}"),
            2 => name.to_string(),
            3 => self.below(3).to_string(),
            4 => format!("!({})", self.expression(depth - 1, names)),
            _ => {
                let operator = self.pick(&["&&", "||", "==", "!=", "<", ">=", "&&", "||"]);
                let (a, b) = (self.expression(depth - 1, names), self.expression(depth - 1, names));
                format!("({a}) {operator} ({b})")
            }
        }
    }

    fn text(&mut self, names: &[&str], depth: u64, line: &mut u64, out: &mut String) {
        for _ in 0..=self.below(4) {
            if depth == 0 || self.below(3) == 0 {
                *line += 1;
                out.push_str(&format!("line {line};\n"));
                continue;
            }
            let name = self.pick(names);
            let head = match self.below(4) {
                0 => format!("#ifdef {name}\n"),
                1 => format!("# ifndef {name} /* why */\n"),
                _ => format!("#if {}\n", self.expression(2, names)),
            };
            out.push_str(&head);
            self.text(names, depth - 1, line, out);
            for _ in 0..self.below(3) {
                out.push_str(&format!("#elif {}\n", self.expression(1, names)));
                self.text(names, depth - 1, line, out);
            }
            if self.below(2) == 0 {
                out.push_str("#else\n");
                self.text(names, depth - 1, line, out);
            }
            out.push_str("#endif\n");
        }
    }
}

/// What `unifdef` leaves, or nothing if it is not there.
fn unifdef(text: &str, options: &[&str]) -> Option<String> {
    let mut child = Command::new("unifdef")
        .arg("-k")
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let text = text.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let out = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn kept(text: &str, names: &Names) -> String {
    let kept = kept_lines(text.as_bytes(), Language::C, names);
    text.split_inclusive('\n').zip(kept).filter(|(_, kept)| *kept).map(|(line, _)| line).collect()
}

/// A text without what stands in conditionals, which `unifdef` writes anew where a part was known.
fn without_directives(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn the_same_lines_stay() {
    let options = ["-DA", "-DB=2", "-UC", "-DD=0"];
    if unifdef("", &options).is_none() {
        eprintln!("skipped 1 test: no unifdef (apt-get install unifdef)");
        return;
    }
    let mut names = Names::default();
    names.define("A");
    names.define("B=2");
    names.undefine("C");
    names.define("D=0");
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    for round in 0..300 {
        let all_known = round % 2 == 0;
        let known = ["A", "B", "C", "D"];
        let names_in_text = if all_known { &known[..] } else { &["A", "B", "C", "D", "U", "V"] };
        let mut text = String::new();
        random.text(names_in_text, 3, &mut 0, &mut text);
        let theirs = unifdef(&text, &options).unwrap();
        let ours = kept(&text, &names);
        if all_known {
            assert_eq!(ours, theirs, "of\n{text}");
        } else {
            assert_eq!(without_directives(&ours), without_directives(&theirs), "of\n{text}");
        }
    }
}
