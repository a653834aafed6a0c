//! All findings together: the closing lines and the file of results.

use std::collections::BTreeMap;

use anyhow::Result;

use super::verdict::{Finding, percent};

/// Findings of a run.
#[derive(Default)]
pub struct Tally {
    findings: Vec<Finding>,
}

impl Tally {
    /// Adds one.
    pub fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Whether nothing failed.
    pub fn passed(&self) -> bool {
        self.failed() == 0
    }

    /// Entries that failed.
    pub fn failed(&self) -> usize {
        self.findings.iter().filter(|f| !f.verdict.passed()).count()
    }

    /// Entries that were not run.
    pub fn skipped(&self) -> usize {
        self.count("skipped")
    }

    /// Entries that ran and passed.
    pub fn succeeded(&self) -> usize {
        self.findings.len() - self.failed() - self.skipped()
    }

    fn count(&self, word: &str) -> usize {
        self.findings.iter().filter(|f| f.verdict.word() == word).count()
    }

    /// Prints coverage, failures and the closing line.
    pub fn print(&self) {
        if self.findings.is_empty() {
            return;
        }
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut seen, mut lifted, mut calls, mut lost) = (0, 0, 0, 0);
        for summary in self.findings.iter().filter_map(|f| f.summary.as_ref()) {
            seen += summary.functions_seen;
            lifted += summary.functions_lifted;
            calls += summary.calls;
            lost += summary.lost;
            for (reason, count) in &summary.reasons {
                *reasons.entry(reason).or_default() += count;
            }
        }
        if seen > 0 {
            println!(
                "\nfunctions: {seen} seen, {lifted} lifted ({:.2} %); {calls} calls, {lost} records lost",
                percent(lifted, seen)
            );
            let mut reasons: Vec<_> = reasons.into_iter().collect();
            reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            for (reason, count) in reasons {
                println!("  {count:>9}  {:>5.2} %  {reason}", percent(count, seen));
            }
        }
        let failed: Vec<&Finding> = self.findings.iter().filter(|f| !f.verdict.passed()).collect();
        if !failed.is_empty() {
            println!("\nfailed:");
            for finding in failed {
                println!("  {}", finding.line());
            }
        }
        println!(
            "\ncorpus: {} programs: {} same, {} refused as expected, {} known to fail, {} failed, {} skipped",
            self.findings.len(),
            self.count("same"),
            self.count("refusal"),
            self.count("known"),
            self.failed(),
            self.skipped()
        );
    }

    /// All findings, by name.
    pub fn to_json(&self) -> Result<String> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by(|a, b| a.name.cmp(&b.name));
        let value = serde_json::json!({ "version": 1, "findings": findings });
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }
}
