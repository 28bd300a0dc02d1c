//! Writes recordings into new MCAP files, for the verbs that do so.

use std::io::{self, Write};

use asof::Problem;
use asof::formats::{Compression, McapWriterOptions};
use clap::Args;
use serde::Serialize;

use super::Outcome;
use super::choices::{Choice, one_of};
use super::screen::{Palette, Screen, output, print_json};
use asof::text::shown;

/// How chunks are written.
#[derive(Debug, Args)]
pub struct Chunks {
    /// Compression of chunks
    #[arg(long, value_parser = one_of(COMPRESSIONS), value_name = "NAME", default_value = "zstd")]
    pub compression: Compression,

    /// Compression level: for zstd from 1 to 22; 0 is the default of the compression
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=22))]
    pub level: u32,

    /// Approximate size of a chunk before compression: bytes, or with k or M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_chunk_size)]
    pub chunk_size: u64,
}

/// The words of compressions.
pub const COMPRESSIONS: &[Choice<Compression>] = &[
    ("zstd", "Small, quick to read", Compression::Zstd),
    (
        "lz4",
        "Larger, quicker to write and to read",
        Compression::Lz4,
    ),
    ("none", "Uncompressed", Compression::None),
];

impl Chunks {
    /// Notes a choice that has no effect.
    pub fn check(&self, screen: &Screen) {
        if self.level > 0 && self.compression != Compression::Zstd {
            screen.note("--level is for zstd, and has no effect on the chosen compression");
        }
    }

    pub fn options(&self) -> McapWriterOptions {
        McapWriterOptions {
            compression: self.compression,
            level: self.level,
            chunk_size: self.chunk_size,
            chunk_age: None,
            profile: String::new(),
        }
    }
}

/// Prints the result, for programs or for people; returns the outcome, by the problems.
pub fn tell<T: Serialize>(
    done: &T,
    problems: &[Problem],
    json: bool,
    screen: &Screen,
    print: impl FnOnce(&mut dyn Write, &T, Palette) -> io::Result<()>,
) -> anyhow::Result<Outcome> {
    if json {
        print_json(done)?;
    } else {
        let mut out = output();
        print_problems(&mut out, problems)?;
        print(&mut out, done, screen.palette())?;
        out.flush()?;
    }
    Ok(Outcome::of(problems))
}

/// How many problems are listed for people; JSON and `asof doctor` list all.
const PROBLEMS_SHOWN: usize = 20;

/// Lists problems for people.
pub fn print_problems(out: &mut dyn Write, problems: &[Problem]) -> io::Result<()> {
    for problem in problems.iter().take(PROBLEMS_SHOWN) {
        writeln!(out, "  {}", shown(&problem.to_string()))?;
    }
    if problems.len() > PROBLEMS_SHOWN {
        writeln!(out, "  and {} more", problems.len() - PROBLEMS_SHOWN)?;
    }
    Ok(())
}

/// Bytes, also with binary thousands and millions.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let explained = || "give a number of bytes, such as 500k or 4M".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(explained()),
    };
    let count: u64 = digits.parse().map_err(|_| explained())?;
    count
        .checked_mul(unit)
        .filter(|&size| size > 0)
        .ok_or_else(explained)
}

/// A chunk size within the limits of message indexes and the reader's memory.
fn parse_chunk_size(text: &str) -> Result<u64, String> {
    parse_size(text).and_then(|size| {
        let is_good = size <= 1 << 30;
        is_good
            .then_some(size)
            .ok_or_else(|| "a chunk has at most 1G".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_thousands_and_millions() {
        assert_eq!(parse_size("786432"), Ok(786_432));
        assert_eq!(parse_size("4M"), Ok(4 << 20));
        assert_eq!(parse_size("500k"), Ok(500 << 10));
        for odd in ["", "M", "4X", "-1", "0", "99999999999G"] {
            assert!(parse_size(odd).is_err(), "{odd}");
        }
        assert!(parse_chunk_size("2G").is_err());
    }
}
