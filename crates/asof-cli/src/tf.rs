//! `asof tf`

use std::io::Write;
use std::path::PathBuf;

use asof::tf::{
    EdgeFacts, LatestTransform, Loaded, LookupError, TrajectoryFormat, TransformBuffer, TreeFormat,
    every,
};
use asof::{Problem, Recording, Source, Stamp, TimeRange, Topics, TransformStream, When};
use clap::Args;
use serde::Serialize;

use super::Outcome;
use super::cat::told;
use super::completions;
use super::failure::Usage;
use super::length::parse_nanos;
use super::place::{Opening, Purpose, TopicRequest};
use super::screen::{Screen, output, print_json};
use super::select::{
    Patterns, TopicChoice, meant_relative, no_topic, parse_end, parse_patterns, range_between,
};
use super::tf_follow;

/// The time between two answers of --follow, in nanoseconds.
const FOLLOW_STEP: i64 = 1_000_000_000;
/// How many frames an error about an unknown frame names.
const FRAMES_NAMED: usize = 10;

/// Show the frame tree of a recording, or the transform between two frames
///
/// Transforms are found by their type, tf2_msgs/TFMessage and Foxglove's FrameTransform and FrameTransforms;
/// those on a topic that ends in tf_static are valid at all times. Frames without a transform come from the
/// robot's URDF (std_msgs/String on robot_description) and its sensor_msgs/JointState, where they were recorded.
/// When a frame changes its parent, each parent is valid for its times, as in tf2. Robots in namespaces of their own
/// (/robot1/tf and /robot2/tf) have a tree each, which --tf-topics chooses or --tf-prefix joins. Without --from and --to, the tree
/// is shown; frames deeper than 100 and children beyond the first 1,000 of a frame are only counted.
///
/// The transform takes a point given in --to into --from: tf2's lookupTransform(target=from, source=to).
/// Without --at, it is the latest common time of all frames on the way.
///
/// With --json, one object: from, to, stamp (nanoseconds; null for static transforms), translation
/// [x,y,z], rotation [x,y,z,w]; or error with its kind and message, and exit code 1. Without --from and --to:
/// edges, a list of parent, child, static, samples, oldest and newest.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  asof tf run.mcap
  asof tf run.mcap --from map --to base_link --every 10ms --format tum
  asof tf run.mcap --pose-topic /odom --format kitti
  asof tf zenoh://192.168.1.5:7447 --from map --to base_link --at -3s
  asof tf zenoh://192.168.1.5:7447 --from map --to base_link --follow
  asof tf zenoh://192.168.1.5:7447 --monitor --for 30s")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Tf {
    /// A recording or a running robot (zenoh://host:port), or several, which are merged by time
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<PathBuf>,

    #[command(flatten)]
    opening: Opening,

    #[command(flatten)]
    choice: TopicChoice,

    /// Only transforms of these topics, names or globs: of several robots, those of one ('/robot1/*')
    #[arg(long = "tf-topics", value_name = "A,B", value_parser = parse_patterns, conflicts_with = "topics", add = completions::topics())]
    of_topics: Option<Patterns>,

    /// Name the frames of several robots apart in one tree, by their namespaces: robot1/base_link. Otherwise each
    /// robot has a tree of its own
    #[arg(long = "tf-prefix")]
    is_prefixed: bool,

    /// The target frame, in which the answer is given
    #[arg(long, value_name = "FRAME", requires = "to")]
    from: Option<String>,

    /// The source frame, whose pose is wanted
    #[arg(long, value_name = "FRAME", requires = "from")]
    to: Option<String>,

    /// When: RFC 3339, seconds since the epoch, nanoseconds with ns, or relative to the recording: +12.5s from
    /// its start, -3s from its end; of a running robot, -3s is three seconds ago
    #[arg(long, value_name = "T", allow_hyphen_values = true, requires = "from")]
    at: Option<When>,

    /// A trajectory with one pose per step: 10ms, 1s
    #[arg(long, value_name = "STEP", value_parser = parse_nanos, group = "trajectory", requires = "from", conflicts_with = "at")]
    every: Option<i64>,

    /// The poses of a topic as a trajectory, each at its own stamp, in the frame that they were measured in: Odometry,
    /// PoseStamped, PoseWithCovarianceStamped, PoseInFrame
    #[arg(long, value_name = "TOPIC", group = "trajectory", add = completions::topics(), conflicts_with_all = ["from", "to", "follow", "monitor", "json", "tree", "dot", "mermaid", "yaml", "draw"])]
    pose_topic: Option<String>,

    /// Print the transform again whenever a second, or the step of --every, has passed by its stamps; for a running
    /// robot until Ctrl-C or the end of --for
    #[arg(long, requires = "from", conflicts_with_all = ["at", "start", "end", "format"])]
    follow: bool,

    /// Show rate, delay and gaps of every edge; for a running robot once a second
    #[arg(long, conflicts_with_all = ["from", "follow", "tree", "dot", "mermaid", "yaml", "draw"])]
    monitor: bool,

    /// The format of the trajectory: csv, tum, kitti
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "csv",
        requires = "trajectory"
    )]
    format: TrajectoryFormat,

    /// Only poses at or after this time
    #[arg(
        long,
        value_name = "T",
        allow_hyphen_values = true,
        requires = "trajectory"
    )]
    start: Option<When>,

    /// Only poses at or before this time
    #[arg(
        long,
        value_name = "T",
        value_parser = parse_end,
        allow_hyphen_values = true,
        requires = "trajectory"
    )]
    end: Option<When>,

    #[command(flatten)]
    picture: Picture,

    /// Print JSON: the answer, or the tree
    #[arg(long, conflicts_with_all = ["format", "dot", "mermaid", "yaml", "draw"])]
    json: bool,
}

/// The format of the tree.
#[derive(Debug, Args)]
#[group(multiple = false, conflicts_with = "from")]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line, of which at most one is set.
struct Picture {
    /// The tree for a terminal, as without any flag
    #[arg(long)]
    tree: bool,

    /// The tree for Graphviz
    #[arg(long)]
    dot: bool,

    /// The tree for Mermaid
    #[arg(long)]
    mermaid: bool,

    /// The tree as tf2 writes it in YAML
    #[arg(long)]
    yaml: bool,

    /// The tree drawn into a file that ends in .svg, .pdf or .png; Graphviz must be installed
    #[arg(long, value_name = "FILE")]
    draw: Option<PathBuf>,
}

/// What `tf --json` prints.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Found {
        from: &'a str,
        to: &'a str,
        stamp: Option<i64>,
        translation: [f64; 3],
        rotation: [f64; 4],
    },
    Failed {
        error: Reason,
    },
}

/// What `tf --json` prints without frames.
#[derive(Serialize)]
struct Tree<'a> {
    edges: Vec<TreeEdge<'a>>,
}

#[derive(Serialize)]
struct TreeEdge<'a> {
    parent: &'a str,
    child: &'a str,
    r#static: bool,
    samples: u64,
    oldest: Option<i64>,
    newest: Option<i64>,
}

#[derive(Serialize)]
struct Reason {
    kind: &'static str,
    message: String,
}

impl Tf {
    pub fn run(&self, screen: &Screen) -> anyhow::Result<Outcome> {
        if self.json && self.every.is_some() && !self.follow {
            return Err(Usage::error(
                "--every prints a trajectory, and JSON is not one of its formats; leave out --json, or add --follow",
            ));
        }
        if let Some(topic) = &self.pose_topic {
            return self.poses(topic, screen);
        }
        let choice = self.choice.or(self.of_topics.as_ref());
        let patterns = choice.patterns();
        let wanted = TopicRequest::those(move |channel| {
            let is_chosen = |patterns: &Patterns| patterns.is_match(&channel.topic);
            asof::tf::feeds_transforms(channel) && patterns.as_ref().is_none_or(is_chosen)
        });
        let wanted = wanted.given(choice.patterns());
        if self.follow || self.monitor {
            let file = self
                .opening
                .open(&self.places, &wanted, Purpose::Read, screen)?;
            return self.go_on(&choice, &*file, screen);
        }
        let file = match self.at {
            // For a time before now, listen long enough for it to be known.
            Some(_) => {
                self.opening
                    .open_as_of(&self.places, &wanted, self.at, screen)?
                    .0
            }
            None => self
                .opening
                .open(&self.places, &wanted, Purpose::Look, screen)?,
        };
        let summary = file.summary();
        let topics = choice.topics(&self.places[0], &*file, screen)?;
        let loaded = self.load(file.as_ref(), &topics, screen)?;
        let mut problems: Vec<Problem> = summary.problems.clone();
        problems.extend(loaded.problems);
        for problem in &problems {
            screen.note(format_args!("{}", problem.message));
        }
        for moved in &loaded.moved {
            screen.note(moved);
        }
        let buffer = loaded.buffer;
        let is_empty = loaded.transforms == 0 && buffer.edges().is_empty();
        if is_empty {
            screen.note("there are no transforms in this recording");
        }
        if loaded.joints > 0 {
            screen.note(format_args!(
                "{} joint positions were placed by the robot's description",
                loaded.joints
            ));
        }
        for rivals in buffer.rivals() {
            screen.note(format_args!("{rivals}"));
        }
        let mut range = summary.range;
        let stamps = stamps_of(&buffer);
        if !stamps.is_empty() && stamps.intersect(range).is_empty() {
            // Usually the clock of a simulation.
            range = stamps;
            if self.is_relative() {
                screen.note(format_args!(
                    "transforms use another clock than the recording, from {} to {}: times are relative to theirs",
                    stamps.start, stamps.end
                ));
            }
        }
        for frame in [&self.from, &self.to].into_iter().flatten() {
            if !is_empty && buffer.find(frame).is_none() {
                return self.without_frame(&buffer, frame);
            }
        }
        let outcome = Outcome::of(&problems);
        match (&self.from, &self.to, self.every) {
            (Some(from), Some(to), Some(step)) => {
                self.trajectory(&buffer, range, (from, to), step, screen)?;
            }
            (Some(from), Some(to), None) if self.json => {
                let found = self.lookup(&buffer, range, (from, to));
                let is_found = found.is_ok();
                print_json(&answer((from, to), found))?;
                if !is_found {
                    return Ok(Outcome::Failed);
                }
            }
            (Some(from), Some(to), None) => match self.lookup(&buffer, range, (from, to)) {
                Ok(found) => print(&found)?,
                Err(error) => {
                    if let Some(meant) = meant_relative(self.at, range) {
                        screen.note(format_args!("did you mean --at {meant}?"));
                    }
                    return Err(error.into());
                }
            },
            _ if self.json => print_json(&Tree::of(&buffer.edges()))?,
            _ => {
                if let Some(file) = &self.picture.draw {
                    buffer.draw(file)?;
                } else {
                    let mut out = output();
                    buffer.write_tree(self.picture(), &mut out)?;
                    out.flush()?;
                }
            }
        }
        Ok(outcome)
    }

    /// The transforms of the robot that has the frames; all of them, with prefixes, where no frames are given.
    fn load(
        &self,
        source: &dyn Source,
        topics: &Topics,
        screen: &Screen,
    ) -> anyhow::Result<Loaded> {
        let (Some(from), Some(to), false) = (&self.from, &self.to, self.is_prefixed) else {
            let loaded = TransformBuffer::from_topics(source, topics)?;
            return Ok(loaded);
        };
        let mut all = TransformBuffer::by_namespace(source, topics)?;
        let has_both = |one: &Loaded| {
            let frames = [from, to];
            frames.iter().all(|frame| one.buffer.find(frame).is_some())
        };
        if all.len() == 1 {
            return Ok(all.swap_remove(0));
        }
        let names: Vec<String> = all.iter().map(|one| one.namespace.clone()).collect();
        all.retain(has_both);
        match all.len() {
            1 => {
                let found = all.swap_remove(0);
                screen.note(format_args!("the answer is from {}/tf", found.namespace));
                Ok(found)
            }
            0 => {
                screen.note(format_args!(
                    "no robot has both frames; the namespaces are: {}",
                    names.join(", ")
                ));
                Ok(TransformBuffer::from_topics(source, topics)?)
            }
            _ => {
                let names: Vec<&str> = all.iter().map(|one| one.namespace.as_str()).collect();
                Err(asof::ambiguous_frames((from, to), &names).into())
            }
        }
    }

    /// Ends with a frame that is not there, and those that may have been meant.
    fn without_frame(&self, buffer: &TransformBuffer, frame: &str) -> anyhow::Result<Outcome> {
        let message = format!(
            "frame '{frame}' is unknown; {}",
            frames_there(buffer, frame)
        );
        if !self.json {
            return Err(Usage::error(message));
        }
        let kind = "unknown_frame";
        print_json(&Answer::Failed {
            error: Reason { kind, message },
        })?;
        Ok(Outcome::Misnamed)
    }

    /// Writes the poses of a topic.
    fn poses(&self, topic: &str, screen: &Screen) -> anyhow::Result<Outcome> {
        let wanted = TopicRequest::named([&topic.to_owned()]);
        let file = self
            .opening
            .open(&self.places, &wanted, Purpose::Look, screen)?;
        let summary = file.summary();
        let known = summary.topics();
        if !known.contains(&topic) {
            return Err(no_topic(topic, &self.places[0], &known));
        }
        let times = (self.start, self.end);
        let known = (summary.range, "the recording has nothing");
        let range = range_between(times, summary.range, Some(known), screen);
        let recording = Recording::new(file, &self.places).with_progress(screen.reports(""));
        let mut out = output();
        let poses = recording.topic(topic)?;
        poses.write_poses(range, self.format, &mut out)?;
        out.flush()?;
        Ok(told(&recording.problems(), false, screen))
    }

    /// Follows the source; a robot until it is time to stop.
    fn go_on(
        &self,
        choice: &TopicChoice,
        source: &dyn Source,
        screen: &Screen,
    ) -> anyhow::Result<Outcome> {
        let topics = choice.topics(&self.places[0], source, screen)?;
        let stream = TransformStream {
            source,
            topics: &topics,
            is_joined: self.is_prefixed,
        };
        if self.monitor {
            tf_follow::monitor(stream, self.json, screen)?;
        } else if let (Some(from), Some(to)) = (&self.from, &self.to) {
            let step = self.every.unwrap_or(FOLLOW_STEP);
            stream.follow((from, to), step, &screen.reports(""), |found| {
                if self.json {
                    print_json(&answer((from, to), Ok(*found)))
                } else {
                    print(found)
                }
            })?;
        }
        Ok(told(&source.summary().problems, false, screen))
    }

    /// Whether any time was given relative to the recording.
    fn is_relative(&self) -> bool {
        let times = [self.at, self.start, self.end];
        let is_relative = |when: &When| !matches!(when, When::At(_));
        times.iter().flatten().any(is_relative)
    }

    fn lookup(
        &self,
        buffer: &TransformBuffer,
        range: TimeRange,
        (from, to): (&str, &str),
    ) -> Result<LatestTransform, LookupError> {
        let Some(at) = self.at else {
            return buffer.lookup_latest(from, to);
        };
        let at = at.resolve(range);
        let isometry = buffer.lookup(from, to, at)?;
        Ok(LatestTransform {
            stamp: Some(at),
            isometry,
        })
    }

    fn trajectory(
        &self,
        buffer: &TransformBuffer,
        range: TimeRange,
        (from, to): (&str, &str),
        step: i64,
        screen: &Screen,
    ) -> anyhow::Result<()> {
        let mut covered = buffer.covered(from, to)?;
        if covered == TimeRange::ALL {
            // Only static edges: they are valid for the duration of the recording.
            covered = range;
        }
        let known = (covered, "the transform is not known");
        let wanted = range_between((self.start, self.end), range, Some(known), screen);
        let mut path = buffer.path(from, to)?;
        let mut out = output();
        out.write_all(self.format.header().as_bytes())?;
        let mut missing: Option<(u64, LookupError)> = None;
        for stamp in every(covered.intersect(wanted), step) {
            match path.lookup(stamp) {
                Ok(pose) => out.write_all(self.format.line(stamp, &pose).as_bytes())?,
                // Frames that change their parents need not be connected all the time.
                Err(error) => missing.get_or_insert((0, error)).0 += 1,
            }
        }
        out.flush()?;
        if let Some((count, error)) = missing {
            screen.note(format_args!(
                "{count} poses are missing; the first: {error}"
            ));
        }
        Ok(())
    }

    fn picture(&self) -> TreeFormat {
        let Picture {
            dot, mermaid, yaml, ..
        } = self.picture;
        match (dot, mermaid, yaml) {
            (true, ..) => TreeFormat::Dot,
            (_, true, _) => TreeFormat::Mermaid,
            (_, _, true) => TreeFormat::Yaml,
            _ => TreeFormat::Tree,
        }
    }
}

impl<'a> Tree<'a> {
    fn of(edges: &'a [EdgeFacts]) -> Self {
        let edge = |edge: &'a EdgeFacts| TreeEdge {
            parent: &edge.parent,
            child: &edge.child,
            r#static: edge.is_static,
            samples: edge.samples,
            oldest: edge.range.map(|range| range.start.nanos()),
            newest: edge.range.map(|range| range.end.nanos()),
        };
        Tree {
            edges: edges.iter().map(edge).collect(),
        }
    }
}

/// From the oldest to the newest stamp of any transform.
fn stamps_of(buffer: &TransformBuffer) -> TimeRange {
    let ranges: Vec<TimeRange> = buffer
        .edges()
        .iter()
        .filter_map(|edge| edge.range)
        .collect();
    let start = ranges.iter().map(|range| range.start).min();
    let end = ranges.iter().map(|range| range.end).max();
    match (start, end) {
        (Some(start), Some(end)) => TimeRange::new(start, end),
        _ => TimeRange::EMPTY,
    }
}

/// Suggestions for a frame that does not exist.
fn frames_there(buffer: &TransformBuffer, wanted: &str) -> String {
    let mut names: Vec<String> = buffer.frames().iter().map(ToString::to_string).collect();
    let wanted = wanted.strip_prefix('/').unwrap_or(wanted);
    let known = names.iter().map(String::as_str);
    if let Some(meant) = asof::spelling::nearest(wanted, known) {
        return format!("did you mean '{meant}'?");
    }
    names.sort_by_key(|name| (asof::spelling::distance(wanted, name), name.clone()));
    let more = names.len().saturating_sub(FRAMES_NAMED);
    names.truncate(FRAMES_NAMED);
    let list = names.join(", ");
    match more {
        0 => format!("the frames are: {list}"),
        _ => format!("the frames nearest to '{wanted}': {list}, and {more} more; see --tree"),
    }
}

fn answer<'a>(
    (from, to): (&'a str, &'a str),
    found: Result<LatestTransform, LookupError>,
) -> Answer<'a> {
    match found {
        Ok(found) => Answer::Found {
            from,
            to,
            stamp: found.stamp.map(Stamp::nanos),
            translation: found.isometry.translation.vector.into(),
            rotation: found.isometry.rotation.coords.into(),
        },
        Err(error) => Answer::Failed {
            error: Reason {
                kind: error.kind(),
                message: error.to_string(),
            },
        },
    }
}

fn print(found: &LatestTransform) -> anyhow::Result<()> {
    let (t, q) = (
        found.isometry.translation.vector,
        found.isometry.rotation.coords,
    );
    let (roll, pitch, yaw) = found.isometry.rotation.euler_angles();
    let degrees = |radians: f64| radians.to_degrees();
    let mut out = output();
    let time = found
        .stamp
        .map_or("any time".to_owned(), |stamp| stamp.to_string());
    writeln!(out, "at           {time}")?;
    writeln!(out, "translation  {:.6} {:.6} {:.6}", t.x, t.y, t.z)?;
    writeln!(
        out,
        "rotation     {:.6} {:.6} {:.6} {:.6} (x y z w)",
        q.x, q.y, q.z, q.w
    )?;
    let (roll, pitch, yaw) = (degrees(roll), degrees(pitch), degrees(yaw));
    writeln!(
        out,
        "             {roll:.3} {pitch:.3} {yaw:.3} (roll pitch yaw, degrees)"
    )?;
    Ok(out.flush()?)
}
