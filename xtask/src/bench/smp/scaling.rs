//! How Linux itself scales, as figures 2.2 and 2.3 of the porting thesis have it: eight processes that work with small
//! files, and a Fourier transformation by eight threads, on one to eight processors.

use std::fmt::Write as _;

use super::figures::Speeds;

/// The programs by the names that they measure by, with their command lines.
pub const PROGRAMS: [(&str, &str); 2] = [
    ("postmark", "/tests/measured/timed postmark /tests/measured/postmark 8 100 400"),
    ("fft", "/tests/measured/splash fft 8 32768"),
];

/// Commands that measure both on 1 to `most` processors.
pub fn script(most: u32) -> String {
    let mut script = String::new();
    for processors in 1..=most {
        for (_, command) in PROGRAMS {
            let _ = writeln!(script, "linux {processors} {command}");
        }
    }
    script
}

/// Prints how both scale; false if one was not measured.
pub fn print(kernel: &str, speeds: &Speeds) -> bool {
    println!("{kernel}: speed-up against one processor, in virtual time");
    println!("{:<10}{}", "", PROGRAMS.map(|(name, _)| format!("{name:>10}")).concat());
    let mut right = true;
    for processors in 1..=speeds.most() {
        let mut line = format!("{processors:<10}");
        for (name, _) in PROGRAMS {
            match speeds.speed_up("linux", processors, name) {
                Some(speed) => {
                    let _ = write!(line, "{speed:>10.2}");
                }
                None => {
                    line.push_str(&format!("{:>10}", "none"));
                    right = false;
                }
            }
        }
        println!("{line}");
    }
    right
}
