//! The command line: one file per verb, and what they share.
//!
//! `select` has the flags that select messages, `report` the output of `info`; `place` opens files and robots,
//! `failure` prints errors, and `escaped` keeps names from controlling the terminal. `tests/cli.rs`
//! holds the output in snapshots; after an intended change, `INSTA_UPDATE=always cargo test -p asof-cli` updates them.

mod at;
mod cat;
mod check;
mod choices;
#[cfg_attr(
    not(feature = "cluster"),
    allow(
        dead_code,
        reason = "without the engine nothing is done with the flags"
    )
)]
mod cluster;
mod compare;
mod completions;
mod convert;
mod demo;
mod disk;
mod doctor;
mod dropped;
mod export;
mod failure;
mod fields;
mod find;
mod fleet;
mod info;
mod join;
mod layers;
mod length;
mod lerobot;
#[cfg_attr(
    not(feature = "live"),
    allow(dead_code, reason = "without robots only the address is reported")
)]
mod live;
mod manual;
mod memory;
mod place;
mod recover;
mod screen;
mod select;
mod serve;
mod signals;
mod split;
mod sql;
mod tf;
mod tf_follow;
mod writing;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{ArgAction, Parser, Subcommand};

use failure::Failure;
use screen::{ColorChoice, Screen};

/// What did the robot know, as of time t?
#[derive(Debug, Parser)]
#[command(
    name = "asof",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,

    /// When to use colours
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_possible_values = false
    )]
    color: ColorChoice,

    /// Print more: causes of errors, what reading cost
    #[arg(short, long, global = true, display_order = 901, action = ArgAction::Count)]
    verbose: u8,

    /// Print less: no notes, no progress; errors are still printed
    #[arg(short, long, global = true, display_order = 902)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Demo(demo::DemoVerb),
    Info(info::Info),
    Cat(cat::Cat),
    Convert(convert::Convert),
    Split(split::Split),
    Tf(tf::Tf),
    At(at::At),
    Join(join::Join),
    Export(export::Export),
    Index(fleet::Index),
    Find(find::Find),
    Tag(fleet::Tag),
    Doctor(doctor::Doctor),
    Check(check::Check),
    Diff(check::Diff),
    Recover(recover::Recover),
    Live(live::Live),
    Record(live::Record),
    Play(live::Play),
    Sql(sql::Sql),
    Cluster(cluster::Cluster),
    Lerobot(lerobot::Lerobot),
    Serve(serve::Serve),
    Completions(completions::Completions),
    Manual(manual::Manual),
}

/// How a verb ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Damaged input was skipped.
    Damaged,
    /// There is no answer, and the reason was printed instead.
    Failed,
    /// Something was named that is not there, and that was printed.
    Misnamed,
    /// The user interrupted it: Ctrl-C.
    #[cfg(feature = "sql")]
    Interrupted,
}

impl Outcome {
    fn of(problems: &[asof::Problem]) -> Self {
        if problems.is_empty() {
            Outcome::Done
        } else {
            Outcome::Damaged
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Damaged => ExitCode::from(3),
            Outcome::Failed => ExitCode::FAILURE,
            Outcome::Misnamed => ExitCode::from(2),
            #[cfg(feature = "sql")]
            Outcome::Interrupted => ExitCode::from(130),
        }
    }
}

/// The command line, when it does not come from the system.
static GIVEN: Mutex<Option<Vec<OsString>>> = Mutex::new(None);

/// The arguments, the program's own name first.
fn words() -> Vec<OsString> {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    given.unwrap_or_else(|| std::env::args_os().collect())
}

/// Runs the command with these arguments, the program's own name first. For programs that embed the command. Calls must
/// not overlap: verbs share the process's output and its signals.
pub fn main_with(words: Vec<OsString>) -> ExitCode {
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
    main()
}

/// Runs the command line of the process.
pub fn main() -> ExitCode {
    if completions::answer() {
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse_from(words()) {
        Ok(cli) => cli,
        Err(error) => return failure::of_usage(&error),
    };
    let screen = Screen::new(cli.color, cli.verbose, cli.quiet);
    asof::files::before_temporary_files(signals::clean_up_on_interrupt);
    let result = match &cli.verb {
        Verb::Demo(demo) => demo.run(&screen),
        Verb::Info(info) => info.run(&screen),
        Verb::Cat(cat) => cat.run(&screen),
        Verb::Convert(convert) => convert.run(&screen),
        Verb::Split(split) => split.run(&screen),
        Verb::Tf(tf) => tf.run(&screen),
        Verb::At(at) => at.run(&screen),
        Verb::Join(join) => join.run(&screen),
        Verb::Export(export) => export.run(&screen),
        Verb::Index(index) => index.run(&screen),
        Verb::Find(find) => find.run(&screen),
        Verb::Tag(tag) => tag.run(&screen),
        Verb::Doctor(doctor) => doctor.run(&screen),
        Verb::Check(check) => check.run(&screen),
        Verb::Diff(diff) => diff.run(&screen),
        Verb::Recover(recover) => recover.run(&screen),
        Verb::Live(live) => live.run(&screen),
        Verb::Record(record) => record.run(&screen),
        Verb::Play(play) => play.run(&screen),
        Verb::Sql(sql) => sql.run(&screen),
        Verb::Cluster(cluster) => cluster.run(&screen),
        Verb::Lerobot(lerobot) => lerobot.run(&screen),
        Verb::Serve(serve) => serve.run(&screen),
        Verb::Completions(completions) => completions.run(),
        Verb::Manual(manual) => manual.run(),
    };
    match (screen.take_verdict(), result) {
        (None, Ok(outcome)) => outcome.into(),
        (Some(error), _) | (None, Err(error)) => Failure::from(error).tell(&screen),
    }
}
