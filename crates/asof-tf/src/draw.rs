//! Pictures of the tree: for the terminal, Graphviz, Mermaid, and tf2's YAML.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use asof_core::{Stamp, TimeRange};

use crate::buffer::TransformBuffer;
use crate::graph::{Edge, Frame};
use crate::name::FrameName;

/// What is known of an edge, for pictures.
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
}

impl EdgeFacts {
    /// Samples per second, as tf2 counts them; 10,000 for a static edge, also as tf2.
    pub fn rate(&self) -> f64 {
        match self.range {
            _ if self.is_static => 10_000.0,
            Some(range) => self.samples as f64 / (range.duration_nanos() as f64 * 1e-9).max(1e-4),
            None => 0.0,
        }
    }
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// The file's name ends in nothing that `dot` could draw.
    #[error("'{0}' must end in .svg, .pdf or .png")]
    UnknownFormat(String),
    /// Graphviz is not there.
    #[error("cannot run `dot`: {0}; install Graphviz, or write the text of to_dot() to a file")]
    NoDot(#[source] std::io::Error),
    /// Graphviz did not draw it.
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

    fn facts(&self, edge: &Edge) -> EdgeFacts {
        let graph = self.graph();
        EdgeFacts {
            parent: graph.frames.at(edge.parent()).name.clone(),
            child: graph.frames.at(edge.child).name.clone(),
            is_static: edge.is_static(),
            samples: edge.history.len(),
            range: edge
                .range(&graph.pool)
                .map(|(first, last)| TimeRange::new(first.into(), last.into())),
        }
    }

    /// The tree as text for a terminal: one frame a line, below and to the right of its parent.
    pub fn to_tree(&self) -> String {
        let edges = self.edges();
        let mut text = String::new();
        for root in self.frames() {
            if !edges.iter().any(|edge| edge.child == root) {
                let _ = writeln!(text, "{root}");
                branches(&edges, &root, "", &mut text);
            }
        }
        text
    }

    /// The tree for Graphviz.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph frames {\n");
        let quoted =
            |name: &str| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        for frame in self.frames() {
            let _ = writeln!(text, "  {};", quoted(&frame));
        }
        for edge in self.edges() {
            let label = facts_of(&edge).join("\\n");
            let style = if edge.is_static { ", style=dashed" } else { "" };
            let (parent, child) = (quoted(&edge.parent), quoted(&edge.child));
            let _ = writeln!(text, "  {parent} -> {child} [label=\"{label}\"{style}];");
        }
        text.push_str("}\n");
        text
    }

    /// The tree for Mermaid, which many pages show as a picture.
    pub fn to_mermaid(&self) -> String {
        let mut text = String::from("graph TD\n");
        let frames = self.frames();
        let number = |name: &FrameName| frames.iter().position(|frame| frame == name);
        for (number, frame) in frames.iter().enumerate() {
            let name = frame.replace('"', "#quot;");
            let _ = writeln!(text, "  f{number}[\"{name}\"]");
        }
        for edge in self.edges() {
            let (Some(parent), Some(child)) = (number(&edge.parent), number(&edge.child)) else {
                continue;
            };
            let arrow = if edge.is_static { "-.->" } else { "-->" };
            let label = facts_of(&edge).join("<br>");
            let _ = writeln!(text, "  f{parent} {arrow}|\"{label}\"| f{child}");
        }
        text
    }

    /// The edges in the shape of tf2's `allFramesAsYAML`. Nobody records who sent an edge, so the
    /// broadcaster is tf2's word for that.
    pub fn to_yaml(&self) -> String {
        let edges = self.edges();
        if edges.is_empty() {
            return "[]".to_owned();
        }
        let mut text = String::new();
        for edge in edges {
            let range = edge
                .range
                .unwrap_or(TimeRange::new(Stamp::EPOCH, Stamp::EPOCH));
            let seconds = |nanos: i64| nanos as f64 * 1e-9;
            let _ = write!(
                text,
                "{}: \n  parent: {}\n  broadcaster: 'no recorded authority'\n  rate: {:.3}\n  \
                 most_recent_transform: {:.3}\n  oldest_transform: {:.3}\n  buffer_length: {:.3}\n",
                yaml_key(&edge.child),
                yaml_quoted(&edge.parent),
                edge.rate(),
                seconds(range.end.nanos()),
                seconds(range.start.nanos()),
                seconds(range.duration_nanos()),
            );
        }
        text
    }

    /// Draws the tree with Graphviz' `dot` into a file that ends in `.svg`, `.pdf` or `.png`.
    ///
    /// # Errors
    /// When `dot` is not installed or fails, or the ending is another.
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
            // If `dot` ends early, what it says below tells more than the broken pipe.
            let _ = input.write_all(self.to_dot().as_bytes());
        }
        let output = dot.wait_with_output().map_err(DrawError::NoDot)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(DrawError::Failed(said))
    }
}

/// The children of a frame, each with its own below it. A loop over a list of open branches, since a
/// chain can be as deep as a recording likes.
fn branches(edges: &[EdgeFacts], root: &FrameName, indent: &str, text: &mut String) {
    let mut children: std::collections::HashMap<&FrameName, Vec<&EdgeFacts>> =
        std::collections::HashMap::new();
    for edge in edges {
        children.entry(&edge.parent).or_default().push(edge);
    }
    let below = |name: &FrameName| children.get(name).map_or(&[][..], |list| &list[..]);
    let mut open: Vec<(&EdgeFacts, String, bool)> = Vec::new();
    let enter = |open: &mut Vec<_>, name: &FrameName, indent: &str| {
        let list = below(name);
        for (place, edge) in list.iter().enumerate().rev() {
            open.push((*edge, indent.to_owned(), place + 1 == list.len()));
        }
    };
    enter(&mut open, root, indent);
    while let Some((edge, indent, is_last)) = open.pop() {
        let fork = if is_last { "└── " } else { "├── " };
        let facts = facts_of(edge).join(", ");
        let _ = writeln!(text, "{indent}{fork}{}  ({facts})", edge.child);
        let indent = format!("{indent}{}", if is_last { "    " } else { "│   " });
        enter(&mut open, &edge.child, &indent);
    }
}

fn facts_of(edge: &EdgeFacts) -> Vec<String> {
    match edge.range {
        _ if edge.is_static => vec!["static".to_owned()],
        None => vec!["no samples".to_owned()],
        // One has no rate that would mean anything to a reader.
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

/// tf2 writes keys as they are; those that YAML would not take so are quoted.
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
