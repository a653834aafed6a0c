//! The call tree as a flame graph: width is time, on a processor or all of it, height is depth.
//!
//! One SVG that works by itself: rectangles laid out here, and a little script that zooms on a
//! click, searches, and tells the frame under the pointer. Without scripts it is still a drawing
//! with a tooltip for each frame.

use std::fmt::Write;

use super::units::{count, duration, percent};
use super::{escaped, page};
use crate::report::Analysis;
use crate::tree::{NodeId, ROOT, Weight};

/// Width of the drawing.
const WIDTH: f64 = 1200.0;
/// Height of a frame.
const ROW: u32 = 17;
/// Space above the frames, for the title and the search.
const TOP: u32 = 40;
/// Frames narrower than this are left out: they cannot be seen.
const NARROWEST: f64 = 0.2;
/// Frames at most, widest first would be; deeper ones are left out.
const FRAMES_MAX: usize = 50_000;
/// Frames deeper than this are left out.
const DEPTH_MAX: u32 = 512;

/// Frames laid out.
#[derive(Clone, Debug)]
pub struct FlameGraph {
    title: String,
    weight: Weight,
    total_ns: u64,
    frames: Vec<Frame>,
    left_out: u64,
}

#[derive(Clone, Debug)]
struct Frame {
    name: String,
    start_ns: u64,
    total_ns: u64,
    self_ns: u64,
    calls: u64,
    depth: u32,
}

impl Analysis {
    /// The call tree of all threads, laid out as a flame graph.
    pub fn flame_graph(&self, weight: Weight) -> FlameGraph {
        let nodes = self.profile.tree.nodes();
        let children = self.profile.tree.children_by(weight);
        let total_ns = nodes[ROOT as usize].in_callees(weight);
        let mut graph = FlameGraph {
            title: crate::names::command_line(&self.manifest.command),
            weight,
            total_ns,
            frames: Vec::new(),
            left_out: 0,
        };
        let narrowest = (total_ns as f64 * NARROWEST / WIDTH) as u64;
        let mut to_come: Vec<(NodeId, u64, u32)> = vec![(ROOT, 0, 0)];
        while let Some((parent, mut start_ns, depth)) = to_come.pop() {
            for &id in &children[parent as usize] {
                let node = &nodes[id as usize];
                let full = graph.frames.len() >= FRAMES_MAX || depth >= DEPTH_MAX;
                let node_ns = node.total(weight);
                if node_ns <= narrowest || full {
                    graph.left_out += 1;
                    continue;
                }
                graph.frames.push(Frame {
                    name: self.names.shown(node.function),
                    start_ns,
                    total_ns: node_ns,
                    self_ns: node.own(weight),
                    calls: node.calls,
                    depth,
                });
                to_come.push((id, start_ns, depth + 1));
                start_ns = start_ns.saturating_add(node_ns);
            }
        }
        graph
    }
}

/// The flame graph as an HTML page.
pub fn flame_html(graph: &FlameGraph) -> String {
    let above = "Click a frame to see it in full width, the background to go back. \
                 Ctrl-F searches.";
    page::html(&format!("Flame graph: {}", graph.title), above, &flame_svg(graph))
}

/// The flame graph as an SVG drawing.
pub fn flame_svg(graph: &FlameGraph) -> String {
    let depth = graph.frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0);
    let height = TOP + (depth + 2) * ROW;
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"ui-monospace,monospace\" font-size=\"12\">\n\
         <rect id=\"back\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"16\">{}{} in {}</text>\n\
         <text id=\"find\" x=\"{}\" y=\"16\" text-anchor=\"end\" cursor=\"pointer\">search</text>\n\
         <text id=\"pointed\" x=\"8\" y=\"33\" fill=\"#555\">{}</text>\n<g id=\"frames\">\n",
        duration(graph.total_ns),
        if graph.weight == Weight::Cpu { " CPU" } else { "" },
        escaped(&graph.title),
        WIDTH - 8.0,
        if graph.left_out > 0 {
            format!("{} narrow frames left out", count(graph.left_out))
        } else {
            String::new()
        }
    );
    let scale = WIDTH / (graph.total_ns.max(1)) as f64;
    for frame in &graph.frames {
        let (x, width) = (frame.start_ns as f64 * scale, frame.total_ns as f64 * scale);
        let y = TOP + frame.depth * ROW;
        let name = escaped(&frame.name);
        let _ = write!(
            svg,
            "<g><title>{name}\n{} total ({}), {} self, {} calls</title>\
             <rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\" fill=\"{}\"/>",
            duration(frame.total_ns),
            percent(frame.total_ns as f64 / graph.total_ns as f64),
            duration(frame.self_ns),
            count(frame.calls),
            ROW - 1,
            colour(&frame.name)
        );
        let room = (width / 7.3) as usize;
        let text = if room < 3 { String::new() } else { fitted(&frame.name, room) };
        let _ = writeln!(
            svg,
            "<text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            x + 3.0,
            y + 12,
            escaped(&text)
        );
    }
    svg.push_str("</g>\n<script><![CDATA[\n");
    svg.push_str(SCRIPT);
    svg.push_str("]]></script>\n</svg>\n");
    svg
}

fn fitted(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// A warm colour that the same name always has.
fn colour(name: &str) -> String {
    let hash = name
        .bytes()
        .fold(2_166_136_261u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    let (hue, light) = (10 + hash % 45, 62 + hash / 64 % 14);
    format!("hsl({hue},85%,{light}%)")
}

/// Zoom, search, and the line that tells the frame under the pointer.
const SCRIPT: &str = include_str!("flame.js");
