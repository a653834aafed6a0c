//! The industrial SMP port (2008), and the thesis' chapters 2 to 4.

use super::paper::Paper;

pub const PAPER: Paper = Paper {
    name: "smp-port",
    title: "Porting a kernel to multiprocessors (2008)",
    tables: |_| Vec::new(),
    missing: &[
        (
            "Tables 2.2 and 2.3",
            "locks and lines of Linux 2.0 to 2.6: `fettle census REVISION…` counts them in a clone of the kernel's history, which is not in a package",
        ),
        (
            "Table 3.1, figures 2.2, 2.3, 4.6 and 4.7",
            "`make lab` measures what four ways to lock cost a small kernel, in virtual time; no table is made of it yet",
        ),
    ],
};
