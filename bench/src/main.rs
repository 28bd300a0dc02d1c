//! Measures asof and its peers side by side.
//!
//! `asof-bench SUITE [--json] [--case TEXT] [--rounds N]` runs a suite's cases, ours and every peer's interleaved in
//! one process, and prints medians, spread, and the ratio ours/peer.

#[cfg(feature = "align")]
mod align;
#[cfg(feature = "blocks")]
mod blocks;
#[cfg(feature = "decode")]
mod chunks;
#[cfg(feature = "cpp")]
mod cpp;
#[cfg(feature = "decode")]
mod decode;
#[cfg(feature = "export")]
mod export;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "formats")]
mod formats_suite;
#[allow(dead_code, reason = "one suite alone uses a part of it")]
mod harness;
#[cfg(feature = "hot")]
mod hot;
#[cfg(feature = "live")]
mod live;
#[cfg(feature = "mcap")]
mod mcap_suite;
#[cfg(feature = "parallel")]
mod parallel;
#[cfg(feature = "py")]
mod py;
#[cfg(any(feature = "align", feature = "sql"))]
mod python;
#[cfg(feature = "decode")]
mod rerun;
#[cfg(feature = "sql")]
mod sql;
#[cfg(feature = "tf")]
mod tf;
#[cfg(feature = "window")]
mod window;

use harness::Bench;

/// A suite's name, and the function that runs its cases.
type Suite = (&'static str, fn(&mut Bench));

const SUITES: &[Suite] = &[
    #[cfg(feature = "align")]
    ("align", align::run),
    #[cfg(feature = "blocks")]
    ("blocks", blocks::run),
    #[cfg(feature = "cpp")]
    ("cpp", cpp::run),
    #[cfg(feature = "decode")]
    ("decode", decode::run),
    #[cfg(feature = "export")]
    ("export", export::run),
    #[cfg(feature = "fleet")]
    ("fleet", fleet::run),
    #[cfg(feature = "formats")]
    ("formats", formats_suite::run),
    #[cfg(feature = "hot")]
    ("hot", hot::run),
    #[cfg(feature = "live")]
    ("live", live::run),
    #[cfg(feature = "mcap")]
    ("mcap", mcap_suite::run),
    #[cfg(feature = "parallel")]
    ("parallel", parallel::run),
    #[cfg(feature = "py")]
    ("py", py::run),
    #[cfg(feature = "sql")]
    ("sql", sql::run),
    #[cfg(feature = "tf")]
    ("tf", tf::run),
    #[cfg(feature = "window")]
    ("window", window::run),
    #[cfg(feature = "window")]
    ("window_identical", window::identical::run),
];

fn main() -> std::process::ExitCode {
    let mut suite = None;
    let mut bench = Bench::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => bench.json = true,
            "--case" => bench.only = arguments.next(),
            "--rounds" => bench.rounds = arguments.next().and_then(|n| n.parse().ok()),
            name if suite.is_none() && !name.starts_with('-') => suite = Some(name.to_owned()),
            other => return usage(other),
        }
    }
    let Some(suite) = suite else { return usage("") };
    let Some((name, run)) = SUITES.iter().find(|(name, _)| *name == suite) else {
        return usage(&suite);
    };
    bench.suite = name;
    run(&mut bench);
    std::process::ExitCode::SUCCESS
}

fn usage(found: &str) -> std::process::ExitCode {
    let names: Vec<_> = SUITES.iter().map(|(name, _)| *name).collect();
    eprintln!(
        "usage: asof-bench SUITE [--json] [--case TEXT] [--rounds N], where SUITE is one of: {}",
        names.join(", ")
    );
    if !found.is_empty() {
        eprintln!("not understood: {found}");
    }
    std::process::ExitCode::from(2)
}
