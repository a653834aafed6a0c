//! Trees of calls: those that a chain's client planned, and those that were reported.

use std::collections::BTreeMap;

use super::matrix::Report;

/// A tag, and how many calls the call with this tag leads to at each server.
pub(super) type Plan = (String, String);

/// How many trees are as they were made.
pub(super) fn right(plans: &[Plan], reports: &[Report]) -> usize {
    let mut by_tag: BTreeMap<&str, Vec<&Report>> = BTreeMap::new();
    reports.iter().for_each(|report| by_tag.entry(&report.tag).or_default().push(report));
    let of = |tag: &str| by_tag.get(tag).map(Vec::as_slice).unwrap_or_default();
    plans.iter().filter(|(tag, plan)| is_right(plan, of(tag))).count()
}

/// Whether what was reported under a tag is the tree that its plan says.
fn is_right(plan: &str, of: &[&Report]) -> bool {
    let mut children: BTreeMap<u64, Vec<&Report>> = BTreeMap::new();
    of.iter().for_each(|report| children.entry(report.parent).or_default().push(report));
    // Calls of each server, from the first on.
    let mut expected = 1;
    let mut all = 2;
    let Some([root]) = children.get(&0).map(Vec::as_slice) else { return false };
    let mut level = vec![*root];
    for digit in plan.bytes().map(|byte| usize::from(byte - b'0')).chain([0]) {
        let mut below = Vec::new();
        for client in &level {
            // One server for each client, which makes as many calls as the plan says.
            let Some([server]) = children.get(&client.span).map(Vec::as_slice) else {
                return false;
            };
            let made = children.get(&server.span).map(Vec::as_slice).unwrap_or_default();
            let sides = !client.server && server.server && made.iter().all(|made| !made.server);
            if !sides || client.status != 0 || server.status != 0 || made.len() != digit {
                return false;
            }
            below.extend(made);
        }
        expected *= digit;
        all += 2 * expected;
        level = below;
    }
    of.len() == all
}
