//! The tree as text, Graphviz, Mermaid, and tf2's YAML.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use asof_core::{Stamp, TimeRange};

use crate::buffer::TransformBuffer;
use crate::error::LookupError;
use crate::frame_ref::FrameRef;
use crate::graph::{Edge, Frame};
use crate::name::FrameName;

/// Facts about an edge, for drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeFacts {
    /// The parent frame.
    pub parent: FrameName,
    /// The child frame.
    pub child: FrameName,
    /// Whether it holds for all times.
    pub is_static: bool,
    /// Samples in its history.
    pub samples: u64,
    /// The times of its samples; `None` without any.
    pub range: Option<TimeRange>,
    /// The writer that wrote it last, if known: see [`TransformBuffer::writer`].
    pub authority: Option<String>,
}

/// The format of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TreeFormat {
    /// For a terminal: one frame per line, indented below its parent. Frames deeper than 100 and children
    /// beyond the first 1,000 of a frame are only counted.
    #[default]
    Tree,
    /// For Graphviz.
    Dot,
    /// For Mermaid, which many sites render.
    Mermaid,
    /// In the shape of tf2's `allFramesAsYAML`.
    Yaml,
}

/// The deepest level and the most children of a frame that the text of a tree shows.
const MAX_DEPTH: usize = 100;
const MAX_CHILDREN: usize = 1_000;

impl EdgeFacts {
    /// Samples per second, computed as in tf2; 10,000 for a static edge, as in tf2.
    pub fn rate(&self) -> f64 {
        match self.range {
            _ if self.is_static => 10_000.0,
            Some(range) => self.samples as f64 / (range.duration_nanos() as f64 * 1e-9).max(1e-4),
            None => 0.0,
        }
    }
}

/// Why the tree could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The file's extension is not supported.
    #[error("'{0}' must end in .svg, .pdf or .png")]
    UnknownFormat(String),
    /// Graphviz is not installed.
    #[error("cannot run `dot`: {0}; install Graphviz, or write the text of to_dot() to a file")]
    NoDot(#[source] io::Error),
    /// Graphviz failed.
    #[error("`dot` failed: {0}")]
    Failed(String),
}

impl TransformBuffer {
    /// All edges, in the order in which their children were first named.
    pub fn edges(&self) -> Vec<EdgeFacts> {
        let graph = self.graph();
        let facts = |frame: &Frame| graph.edge_of(frame).map(|edge| self.facts(edge));
        graph.all().filter_map(facts).collect()
    }

    /// The facts of the edge above a frame; `None` for a root.
    ///
    /// # Errors
    /// If the frame is unknown.
    pub fn edge_facts(&self, frame: impl FrameRef) -> Result<Option<EdgeFacts>, LookupError> {
        let edge = self.graph().edge_of(frame.find(self.graph())?);
        Ok(edge.map(|edge| self.facts(edge)))
    }

    fn facts(&self, edge: &Edge) -> EdgeFacts {
        let graph = self.graph();
        EdgeFacts {
            parent: graph.frames.at(edge.parent()).name.clone(),
            child: graph.frames.at(edge.child()).name.clone(),
            is_static: edge.is_static(),
            samples: edge.history.len(),
            range: edge
                .range(&graph.pool)
                .map(|(first, last)| TimeRange::new(first.into(), last.into())),
            authority: self.authority_name(edge.authority.load(Ordering::Relaxed)),
        }
    }

    /// The tree as text for a terminal: see [`TreeFormat::Tree`].
    ///
    /// ```
    /// # use asof_core::Stamp;
    /// # use asof_tf::TransformBuffer;
    /// # use nalgebra::Isometry3;
    /// # let at = |seconds: i64| Stamp::from_nanos(seconds * 1_000_000_000);
    /// # let buffer = TransformBuffer::new();
    /// # buffer.update_static("base_link", "lidar", Isometry3::translation(0.0, 0.0, 0.3))?;
    /// # // One metre a second, forward.
    /// # buffer.update("odom", "base_link", at(0), Isometry3::identity())?;
    /// # buffer.update("odom", "base_link", at(2), Isometry3::translation(2.0, 0.0, 0.0))?;
    /// println!("{}", buffer.to_tree());
    /// # assert!(buffer.to_tree().contains("lidar"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_tree(&self) -> String {
        self.text(TreeFormat::Tree)
    }

    /// The tree for Graphviz.
    pub fn to_dot(&self) -> String {
        self.text(TreeFormat::Dot)
    }

    /// The tree for Mermaid, which many sites render.
    pub fn to_mermaid(&self) -> String {
        self.text(TreeFormat::Mermaid)
    }

    /// The edges in the shape of tf2's `allFramesAsYAML`. If the writer of an edge is unknown, the
    /// broadcaster is tf2's default.
    pub fn to_yaml(&self) -> String {
        self.text(TreeFormat::Yaml)
    }

    fn text(&self, format: TreeFormat) -> String {
        let mut text = Vec::new();
        // Writing into memory does not fail.
        let _ = self.write_tree(format, &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Writes the tree, piece by piece.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_tree(&self, format: TreeFormat, out: &mut dyn io::Write) -> io::Result<()> {
        let edges = self.edges();
        match format {
            TreeFormat::Tree => write_text(&self.frames(), &edges, out),
            TreeFormat::Dot => write_dot(&self.frames(), &edges, out),
            TreeFormat::Mermaid => write_mermaid(&self.frames(), &edges, out),
            TreeFormat::Yaml => write_yaml(&edges, out),
        }
    }

    /// Draws the tree with Graphviz' `dot` into a file that ends in `.svg`, `.pdf` or `.png`.
    ///
    /// # Errors
    /// If `dot` is not installed or fails, or the extension is not supported.
    pub fn draw(&self, file: &Path) -> Result<(), DrawError> {
        let ending = file
            .extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or_default();
        if !matches!(ending, "svg" | "pdf" | "png") {
            return Err(DrawError::UnknownFormat(file.display().to_string()));
        }
        let mut dot = Command::new("dot")
            .arg(format!("-T{ending}"))
            .arg("-o")
            .arg(file)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(DrawError::NoDot)?;
        if let Some(mut input) = dot.stdin.take() {
            // If `dot` exits early, its own message below is more useful than the broken pipe.
            let _ = self.write_tree(TreeFormat::Dot, &mut input);
        }
        let output = dot.wait_with_output().map_err(DrawError::NoDot)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(DrawError::Failed(said))
    }
}

/// Frames with their children.
type Children<'a> = HashMap<&'a FrameName, Vec<&'a EdgeFacts>>;

fn write_text(
    frames: &[FrameName],
    edges: &[EdgeFacts],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut children: Children<'_> = HashMap::new();
    for edge in edges {
        children.entry(&edge.parent).or_default().push(edge);
    }
    let hanging: HashSet<&FrameName> = edges.iter().map(|edge| &edge.child).collect();
    let mut shown = 0;
    for root in frames.iter().filter(|frame| !hanging.contains(frame)) {
        writeln!(out, "{root}")?;
        shown += 1 + branches(&children, root, out)?;
    }
    if shown < frames.len() {
        let rest = frames.len() - shown;
        writeln!(out, "({rest} more, whose parents form a cycle)")?;
    }
    Ok(())
}

/// The children of a frame, each with its own below it; returns how many. A loop over a list of open
/// branches instead of recursion, since a chain in a recording can be arbitrarily deep.
fn branches(
    children: &Children<'_>,
    root: &FrameName,
    out: &mut dyn io::Write,
) -> io::Result<usize> {
    let below = |name: &FrameName| children.get(name).map_or(&[][..], |list| &list[..]);
    // What is still to be written: an edge or a count, with its depth and whether it is the last of its
    // parent's.
    let mut open: Vec<(Result<&EdgeFacts, usize>, usize, bool)> = Vec::new();
    let enter =
        |open: &mut Vec<(Result<_, usize>, usize, bool)>, name: &FrameName, depth: usize| {
            let list = below(name);
            let shown = if depth > MAX_DEPTH {
                0
            } else {
                list.len().min(MAX_CHILDREN)
            };
            let left = count_below(children, &list[shown..]);
            if left > 0 {
                open.push((Err(left), depth, true));
            }
            for (place, edge) in list[..shown].iter().enumerate().rev() {
                open.push((Ok(*edge), depth, left == 0 && place + 1 == list.len()));
            }
        };
    let mut count = 0;
    // Whether the branch at each depth was the last one.
    let mut lasts: Vec<bool> = Vec::new();
    enter(&mut open, root, 1);
    while let Some((what, depth, is_last)) = open.pop() {
        lasts.truncate(depth - 1);
        for last in &lasts {
            write!(out, "{}", if *last { "    " } else { "│   " })?;
        }
        let fork = if is_last { "└── " } else { "├── " };
        match what {
            Ok(edge) => {
                count += 1;
                let facts = facts_of(edge).join(", ");
                writeln!(out, "{fork}{}  ({facts})", edge.child)?;
                lasts.push(is_last);
                enter(&mut open, &edge.child, depth + 1);
            }
            Err(left) => {
                count += left;
                writeln!(out, "{fork}... and {left} more")?;
            }
        }
    }
    Ok(count)
}

/// The number of frames in these branches.
fn count_below(children: &Children<'_>, edges: &[&EdgeFacts]) -> usize {
    let mut open: Vec<&EdgeFacts> = edges.to_vec();
    let mut count = 0;
    while let Some(edge) = open.pop() {
        count += 1;
        open.extend(children.get(&edge.child).into_iter().flatten());
    }
    count
}

fn write_dot(frames: &[FrameName], edges: &[EdgeFacts], out: &mut dyn io::Write) -> io::Result<()> {
    let quoted = |name: &str| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    writeln!(out, "digraph frames {{")?;
    for frame in frames {
        writeln!(out, "  {};", quoted(frame))?;
    }
    for edge in edges {
        let label = facts_of(edge).join("\\n");
        let style = if edge.is_static { ", style=dashed" } else { "" };
        let (parent, child) = (quoted(&edge.parent), quoted(&edge.child));
        writeln!(out, "  {parent} -> {child} [label=\"{label}\"{style}];")?;
    }
    writeln!(out, "}}")
}

fn write_mermaid(
    frames: &[FrameName],
    edges: &[EdgeFacts],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    writeln!(out, "graph TD")?;
    let numbers: HashMap<&FrameName, usize> = frames
        .iter()
        .enumerate()
        .map(|(n, frame)| (frame, n))
        .collect();
    for (number, frame) in frames.iter().enumerate() {
        let name = frame.replace('"', "#quot;");
        writeln!(out, "  f{number}[\"{name}\"]")?;
    }
    for edge in edges {
        let (Some(parent), Some(child)) = (numbers.get(&edge.parent), numbers.get(&edge.child))
        else {
            continue;
        };
        let arrow = if edge.is_static { "-.->" } else { "-->" };
        let label = facts_of(edge).join("<br>");
        writeln!(out, "  f{parent} {arrow}|\"{label}\"| f{child}")?;
    }
    Ok(())
}

fn write_yaml(edges: &[EdgeFacts], out: &mut dyn io::Write) -> io::Result<()> {
    if edges.is_empty() {
        return write!(out, "[]");
    }
    for edge in edges {
        let range = edge
            .range
            .unwrap_or(TimeRange::new(Stamp::EPOCH, Stamp::EPOCH));
        let seconds = |nanos: i64| nanos as f64 * 1e-9;
        let authority = edge.authority.as_deref().unwrap_or("no recorded authority");
        write!(
            out,
            "{}: \n  parent: {}\n  broadcaster: {}\n  rate: {:.3}\n  \
             most_recent_transform: {:.3}\n  oldest_transform: {:.3}\n  buffer_length: {:.3}\n",
            yaml_key(&edge.child),
            yaml_quoted(&edge.parent),
            yaml_quoted(authority),
            edge.rate(),
            seconds(range.end.nanos()),
            seconds(range.start.nanos()),
            seconds(range.duration_nanos()),
        )?;
    }
    Ok(())
}

fn facts_of(edge: &EdgeFacts) -> Vec<String> {
    match edge.range {
        _ if edge.is_static => vec!["static".to_owned()],
        None => vec!["no samples".to_owned()],
        // A single sample has no meaningful rate.
        Some(_) if edge.samples == 1 => vec!["1 sample".to_owned()],
        Some(range) => vec![
            format!("{} samples", edge.samples),
            format!("{:.1} Hz", edge.rate()),
            format!("{:.3} s", range.duration_nanos() as f64 * 1e-9),
        ],
    }
}

fn yaml_quoted(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}

/// tf2 writes keys unquoted; those that YAML does not allow unquoted are quoted.
fn yaml_key(name: &str) -> String {
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_/.-".contains(c))
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if is_plain {
        name.to_owned()
    } else {
        yaml_quoted(name)
    }
}
