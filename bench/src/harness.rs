//! Runs contenders in turns, so that other load on the machine affects all of them alike.

use std::collections::BTreeMap;
use std::time::Instant;

/// One run of a suite: what was asked for on the command line.
#[derive(Default)]
pub struct Bench {
    /// The suite's name, as it is printed.
    pub suite: &'static str,
    /// Print one JSON object a line instead of a table.
    pub json: bool,
    /// Run only the cases whose name contains this.
    pub only: Option<String>,
    /// Rounds for every case, instead of the case's own number.
    pub rounds: Option<usize>,
}

/// A contender: each call does the work once and returns the figure, in the case's unit.
pub struct Contender<'a> {
    name: &'a str,
    measure: Box<dyn FnMut() -> f64 + 'a>,
}

/// A contender that measures itself; `measure` returns a figure in the case's unit.
pub fn contender<'a>(name: &'a str, measure: impl FnMut() -> f64 + 'a) -> Contender<'a> {
    Contender {
        name,
        measure: Box::new(measure),
    }
}

/// A contender whose figure is the wall time of `work` in nanoseconds, divided by `operations`.
pub fn timed<'a>(name: &'a str, operations: u64, mut work: impl FnMut() + 'a) -> Contender<'a> {
    contender(name, move || {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / operations as f64
    })
}

impl Bench {
    /// Whether a case is to be run at all; ask before costly preparation.
    pub fn wants(&self, case: &str) -> bool {
        self.only.as_deref().is_none_or(|part| case.contains(part))
    }

    /// Runs a case: one warm-up each, then `rounds` rounds in which everyone has one turn, in an order that
    /// rotates. The first contender is asof. Prints the result.
    pub fn case(&self, case: &str, unit: &str, rounds: usize, mut contenders: Vec<Contender<'_>>) {
        if !self.wants(case) || contenders.is_empty() {
            return;
        }
        let count = contenders.len();
        let mut figures = vec![Vec::new(); count];
        for contender in &mut contenders {
            (contender.measure)();
        }
        for round in 0..self.rounds.unwrap_or(rounds).max(1) {
            for turn in 0..count {
                let index = (round + turn) % count;
                figures[index].push((contenders[index].measure)());
            }
        }
        let results: Vec<Spread> = figures.into_iter().map(Spread::of).collect();
        let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
        self.print(case, unit, &names, &results);
    }

    fn print(&self, case: &str, unit: &str, names: &[&str], results: &[Spread]) {
        let ours = results[0].median;
        if self.json {
            let peers: BTreeMap<_, _> = names
                .iter()
                .zip(results)
                .skip(1)
                .map(|(name, r)| (*name, r.median))
                .collect();
            let ratio: BTreeMap<_, _> = peers
                .iter()
                .map(|(name, value)| (*name, ours / value))
                .collect();
            let row = serde_json::json!({
                "suite": self.suite, "case": case, "unit": unit, "asof": ours, "peers": peers, "ratio": ratio,
            });
            println!("{row}");
            return;
        }
        println!("{case} ({unit})");
        for (index, (name, result)) in names.iter().zip(results).enumerate() {
            let ratio = if index == 0 {
                String::new()
            } else {
                format!("  asof/{name} {:.3}", ours / result.median)
            };
            println!(
                "  {name:<24} {:>12.1}  [{:.1} to {:.1}]{ratio}",
                result.median, result.low, result.high
            );
        }
    }
}

/// The middle of some figures, and the quarter marks on both sides.
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |part: f64| figures[((figures.len() - 1) as f64 * part).round() as usize];
        Spread {
            median: at(0.5),
            low: at(0.25),
            high: at(0.75),
        }
    }
}
