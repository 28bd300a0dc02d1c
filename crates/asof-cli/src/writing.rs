//! Writes recordings into new MCAP files, for the verbs that do so.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use asof_core::Problem;
use asof_formats::{
    Compression, ConvertError, ConvertOptions, Converted, McapWriter, McapWriterOptions, Recording,
    convert, profile_of,
};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Outcome;
use super::failure::Usage;
use super::newfile::{NewFile, refuse_same};
use super::numbers::shown;
use super::place::{is_address, quoted};
use super::screen::{Palette, Screen, output};

/// How chunks are written.
#[derive(Debug, Args)]
pub struct Chunks {
    /// Compression of chunks
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    pub compression: CompressionChoice,

    /// Compression level: for zstd from 1 to 22; 0 is the default of the compression
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=22))]
    pub level: u32,

    /// Approximate size of a chunk before compression: bytes, or with k or M
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_chunk_size)]
    pub chunk_size: u64,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum CompressionChoice {
    /// Small, quick to read
    #[default]
    Zstd,
    /// Larger, quicker to write and to read
    Lz4,
    /// Uncompressed
    None,
}

impl From<CompressionChoice> for Compression {
    fn from(choice: CompressionChoice) -> Self {
        match choice {
            CompressionChoice::Zstd => Compression::Zstd,
            CompressionChoice::Lz4 => Compression::Lz4,
            CompressionChoice::None => Compression::None,
        }
    }
}

impl Chunks {
    /// Notes a choice that has no effect.
    pub fn check(&self, screen: &Screen) {
        if self.level > 0 && !matches!(self.compression, CompressionChoice::Zstd) {
            screen.note("--level is for zstd, and has no effect on the chosen compression");
        }
    }

    pub fn options(&self) -> McapWriterOptions {
        McapWriterOptions {
            compression: self.compression.into(),
            level: self.level,
            chunk_size: self.chunk_size,
            chunk_age: None,
            profile: String::new(),
        }
    }
}

/// What was written: the size in bytes, and the counts.
pub struct Written {
    pub size: u64,
    pub converted: Converted,
}

/// Writes a recording to a file that appears when it is complete, with a progress bar.
pub fn write(
    recording: &dyn Recording,
    path: &Path,
    force: bool,
    writing: (McapWriterOptions, &ConvertOptions),
    (screen, bar): (&Screen, &str),
) -> anyhow::Result<Written> {
    let summary = recording.summary();
    let failed = |error: anyhow::Error| {
        let line = format!("{}: {error}", path.display());
        error.context(line)
    };
    let (mut writer_options, options) = writing;
    writer_options.profile = profile_of(&summary, options);
    let new = NewFile::create(path, |_| force)?;
    let mut writer =
        McapWriter::new(new.writer()?, writer_options).map_err(|error| failed(error.into()))?;
    let bar = screen.progress(summary.messages.unwrap_or(0), bar);
    let converted = convert(recording, &mut writer, options, &mut |done| {
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let converted = converted.map_err(|error| match error {
        ConvertError::Write(_) | ConvertError::Sort(_) => failed(error.into()),
        other => other.into(),
    })?;
    writer.finish().map_err(|error| failed(error.into()))?;
    new.finish()?;
    let found = std::fs::metadata(path);
    let found = found.with_context(|| format!("cannot find {} any more", path.display()))?;
    Ok(Written {
        size: found.len(),
        converted,
    })
}

/// Prints the result, for programs or for people; returns the outcome, by the problems.
pub fn tell<T: Serialize>(
    done: &T,
    problems: &[Problem],
    json: bool,
    screen: &Screen,
    print: impl FnOnce(&mut dyn Write, &T, Palette) -> io::Result<()>,
) -> anyhow::Result<Outcome> {
    let mut out = output();
    if json {
        serde_json::to_writer(&mut out, done).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print_problems(&mut out, problems)?;
        print(&mut out, done, screen.palette())?;
    }
    out.flush()?;
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

/// Refuses to overwrite the input, also where that is a file in a folder, or described by one.
pub fn refuse_input(place: &Path, output: &Path, word: &str) -> anyhow::Result<()> {
    // A file that does not exist yet cannot be an input.
    if std::fs::metadata(output).is_err() {
        return Ok(());
    }
    refuse_same(place, output, word)?;
    let is_description = place
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.ends_with("metadata.yaml"));
    let folder = if is_description {
        folder_of(place)
    } else {
        place.to_owned()
    };
    refuse_any_in(&folder, output, word, &mut HashSet::new())
}

/// Refuses names with the extension of another format than MCAP.
pub fn refuse_other_format(output: &Path) -> anyhow::Result<()> {
    if output == Path::new("-") {
        return Err(Usage::error(
            "an MCAP file cannot be written to a pipe; name a file with -o",
        ));
    }
    if is_address(output) {
        return Err(Usage::error(format!(
            "cannot write to {}: name a file on this machine with -o, and upload it",
            output.display()
        )));
    }
    let extension = output.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("bag" | "active" | "db3" | "ulg" | "zst" | "zstd") => Err(Usage::error(format!(
            "the output is MCAP, but {} is named like another format; name it {}",
            output.display(),
            quoted(&output.with_extension("mcap"))
        ))),
        _ => Ok(()),
    }
}

/// Links may form cycles, so each folder is visited once.
fn refuse_any_in(
    folder: &Path,
    output: &Path,
    word: &str,
    known: &mut HashSet<PathBuf>,
) -> anyhow::Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if !known.insert(real) {
        return Ok(());
    }
    entries.flatten().try_for_each(|entry| {
        refuse_same(&entry.path(), output, word)?;
        refuse_any_in(&entry.path(), output, word, known)
    })
}

/// The folder of a file that exists or will exist.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
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
