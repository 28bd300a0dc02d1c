//! Decompression of chunks: all of the data, or as much as is readable.

mod fronts;
mod lz4_front;
mod lz4_whole;

use std::cell::RefCell;
use std::io::Read;
use std::sync::Arc;

use asof_core::ProblemKind;
use bytes::Bytes;

use zstd::stream::raw::{self, DParameter, InBuffer, Operation as _, OutBuffer};

use crate::buffers::BufferPool;
use crate::limits::{DecompressionLimits, LIFT};
use crate::reserve::Reserved;

/// How far data is read beyond the size that it declares.
const UNDECLARED: u64 = 16 << 20;

/// The contents of a chunk, and its fault.
pub(crate) struct Decompressed {
    /// The contents, or the readable first part of them.
    pub bytes: Bytes,
    /// Why they are not the declared contents.
    pub fault: Option<(ProblemKind, String)>,
}

/// Decompresses a chunk's data, which declares `declared` bytes.
///
/// Memory follows what the data really holds, never what it declares: the buffer grows step by step if the declared
/// size is unlikely for the compressed size. A chunk that declares more than `limits` allow is skipped. Damaged data
/// is returned up to the damage, as far as its compression allows.
pub(crate) fn decompress(
    compression: &str,
    data: &Bytes,
    declared: u64,
    limits: &DecompressionLimits,
    pool: &Arc<BufferPool>,
) -> Decompressed {
    match compression {
        "" => {
            let found = data.len() as u64;
            let fault = (found != declared).then(|| wrong_size(found, declared));
            Decompressed {
                bytes: data.clone(),
                fault,
            }
        }
        "zstd" => {
            if let Some(refused) = beyond(limits, data, declared) {
                return refused;
            }
            if declared <= likely_size(data.len() as u64)
                && let Some(bytes) = zstd_at_once(data, declared as usize, pool)
            {
                return Decompressed { bytes, fault: None };
            }
            match zstd::stream::read::Decoder::with_buffer(&data[..]) {
                Ok(decoder) => gradually(decoder, fronts::of_zstd, data, declared, limits, pool),
                Err(error) => failed(format!("cannot start zstd: {error}")),
            }
        }
        "lz4" => {
            if let Some(refused) = beyond(limits, data, declared) {
                return refused;
            }
            if declared <= likely_size(data.len() as u64)
                && let Some(bytes) = lz4_at_once(data, declared as usize, pool)
            {
                return Decompressed { bytes, fault: None };
            }
            let reader = lz4_flex::frame::FrameDecoder::new(&data[..]);
            gradually(reader, lz4_front::of_lz4, data, declared, limits, pool)
        }
        other => Decompressed {
            bytes: Bytes::new(),
            fault: Some((
                ProblemKind::UnknownCompression,
                format!(
                    "compression '{other}' is not supported (zstd, lz4 and none are); the chunk was skipped"
                ),
            )),
        },
    }
}

/// Decompresses the front of a chunk's data until it is enough: only whole data of a likely size. `None` if it never is;
/// [`decompress`] then finds out why.
pub(crate) fn decompress_front(
    compression: &str,
    data: &Bytes,
    declared: u64,
    limits: &DecompressionLimits,
    pool: &Arc<BufferPool>,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Option<Bytes> {
    let compressed = data.len() as u64;
    if declared > likely_size(compressed) || declared > limits.of_chunk(compressed) {
        return None;
    }
    let mut buffer = pool.take(declared as usize);
    let room = &mut buffer[..declared as usize];
    let filled = match compression {
        "lz4" => lz4_whole::fill_front(data, room, &is_enough),
        "zstd" => zstd_front(data, room, &is_enough),
        _ => None,
    };
    if let Some(filled) = filled.filter(|&filled| is_enough(&buffer[..filled])) {
        return Some(pool.seal(buffer, filled));
    }
    pool.give_back(buffer);
    None
}

/// Decompresses bzip2 data, which only bags use.
pub(crate) fn decompress_bz2(
    data: &Bytes,
    declared: u64,
    limits: &DecompressionLimits,
    pool: &Arc<BufferPool>,
) -> Decompressed {
    if let Some(refused) = beyond(limits, data, declared) {
        return refused;
    }
    let reader = bzip2::bufread::MultiBzDecoder::new(&data[..]);
    gradually(reader, fronts::of_bz2, data, declared, limits, pool)
}

/// The error for data that declares more than the limit.
fn beyond(limits: &DecompressionLimits, data: &[u8], declared: u64) -> Option<Decompressed> {
    let allowed = limits.of_chunk(data.len() as u64);
    (declared > allowed).then(|| {
        failed(format!(
            "its {} bytes decompress to {declared}, more than the limit of {allowed}; it was skipped: {LIFT}",
            data.len()
        ))
    })
}

/// Reads as much as there is, within the limits.
fn gradually(
    reader: impl Read,
    front: fn(&[u8], usize) -> Vec<u8>,
    data: &[u8],
    declared: u64,
    limits: &DecompressionLimits,
    pool: &Arc<BufferPool>,
) -> Decompressed {
    match reserve(declared, data, limits, pool) {
        Ok(reserved) => {
            let found = in_steps(reader, data, declared, limits, (pool, reserved));
            with_front(found, data, declared, front)
        }
        Err(refused) => failed(refused),
    }
}

/// Adds what a byte-by-byte reader finds after the offset at which the usual one failed.
fn with_front(
    found: Decompressed,
    data: &[u8],
    declared: u64,
    front: fn(&[u8], usize) -> Vec<u8>,
) -> Decompressed {
    if found.fault.is_none() || found.bytes.len() as u64 >= declared {
        return found;
    }
    let limit = declared.min(likely_size(data.len() as u64)) as usize;
    let contents = front(data, limit.max(found.bytes.len()));
    if contents.len() <= found.bytes.len() {
        return found;
    }
    let fault = found.fault.map(|(kind, _)| {
        let message = format!(
            "its data is damaged after {} readable bytes of {declared}",
            contents.len()
        );
        (kind, message)
    });
    Decompressed {
        bytes: contents.into(),
        fault,
    }
}

/// The fast path: the complete chunk in one call. `None` if that fails for any reason.
fn zstd_at_once(data: &[u8], declared: usize, pool: &Arc<BufferPool>) -> Option<Bytes> {
    thread_local! {
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let mut buffer = pool.take(declared);
    let written = CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            *context = zstd::bulk::Decompressor::new().ok();
        }
        context
            .as_mut()?
            .decompress_to_buffer(data, &mut buffer[..declared])
            .ok()
    });
    if written == Some(declared) {
        return Some(pool.seal(buffer, declared));
    }
    pool.give_back(buffer);
    None
}

/// How far the front of zstd data is decompressed at a time.
const FRONT_STEP: usize = 128 << 10;
/// The largest window of zstd data whose front is decompressed: each thread keeps one.
const FRONT_WINDOW_LOG: u32 = 23;

fn zstd_front(
    data: &[u8],
    contents: &mut [u8],
    is_enough: &impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    thread_local! {
        static DECODER: RefCell<Option<raw::Decoder<'static>>> = const { RefCell::new(None) };
    }
    DECODER.with_borrow_mut(|decoder| {
        if decoder.is_none() {
            let mut new = raw::Decoder::new().ok()?;
            new.set_parameter(DParameter::WindowLogMax(FRONT_WINDOW_LOG))
                .ok()?;
            *decoder = Some(new);
        }
        let decoder = decoder.as_mut()?;
        decoder.reinit().ok()?;
        let mut input = InBuffer::around(data);
        let mut filled = 0;
        while !is_enough(&contents[..filled]) {
            let end = contents.len().min(filled + FRONT_STEP);
            let mut output = OutBuffer::around(&mut contents[filled..end]);
            let taken = input.pos();
            decoder.run(&mut input, &mut output).ok()?;
            let given = output.pos();
            if given == 0 && input.pos() == taken {
                return None;
            }
            filled += given;
        }
        Some(filled)
    })
}

/// The same for LZ4.
fn lz4_at_once(data: &[u8], declared: usize, pool: &Arc<BufferPool>) -> Option<Bytes> {
    let mut buffer = pool.take(declared);
    if lz4_whole::fill(data, &mut buffer[..declared]).is_some() {
        return Some(pool.seal(buffer, declared));
    }
    pool.give_back(buffer);
    None
}

/// Reads to the end, or to the first fault, into a buffer that grows with the data.
fn in_steps(
    mut reader: impl Read,
    data: &[u8],
    declared: u64,
    limits: &DecompressionLimits,
    (pool, reserved): (&Arc<BufferPool>, Option<Reserved>),
) -> Decompressed {
    // One byte more than declared shows whether the data ends there.
    let limit = declared
        .saturating_add(1)
        .max(likely_size(data.len() as u64).min(declared.saturating_add(UNDECLARED)))
        .min(limits.of_chunk(data.len() as u64).saturating_add(1));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let first = declared
        .min(likely_size(data.len() as u64))
        .saturating_add(1) as usize;
    let mut buffer = pool.take(first);
    let mut used = 0;
    let mut was_between_frames = false;
    let fault = loop {
        if used == buffer.len() {
            if used >= limit {
                break Some(format!(
                    "it holds more than the {declared} bytes that it declares"
                ));
            }
            let larger = buffer
                .len()
                .saturating_mul(2)
                .min(limit.max(buffer.len() + 1));
            if buffer.try_reserve_exact(larger - buffer.len()).is_err() {
                break Some(format!(
                    "there is not enough memory for more than its first {used} bytes"
                ));
            }
            buffer.resize(larger, 0);
        }
        match reader.read(&mut buffer[used..]) {
            // Several frames may follow each other; lz4's reader stops between them once.
            Ok(0) if was_between_frames || used as u64 >= declared => break None,
            Ok(0) => was_between_frames = true,
            Ok(read) => {
                used += read;
                was_between_frames = false;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                break Some(format!(
                    "its data is damaged after {used} readable bytes ({error})"
                ));
            }
        }
    };
    let found = used as u64;
    let fault = match fault {
        Some(message) => Some((ProblemKind::BadChunk, message)),
        None if found != declared => Some(wrong_size(found, declared)),
        None => None,
    };
    Decompressed {
        bytes: pool.seal_reserved(buffer, used, reserved),
        fault,
    }
}

/// The share of the reserve that unlikely data takes.
fn reserve(
    declared: u64,
    data: &[u8],
    limits: &DecompressionLimits,
    pool: &BufferPool,
) -> Result<Option<Reserved>, String> {
    if declared <= likely_size(data.len() as u64) {
        return Ok(None);
    }
    let reserved = pool.reserve.take(declared, limits.alive_at_most);
    let reserved = reserved.map_err(|held| no_room(data.len(), declared, held, limits))?;
    Ok(Some(reserved))
}

/// The error for unlikely data that finds no room in the reserve.
pub(crate) fn no_room(
    compressed: usize,
    becomes: u64,
    held: u64,
    limits: &DecompressionLimits,
) -> String {
    format!(
        "its {compressed} bytes decompress to {becomes} while {held} of the {} are in use that such data may take at once; it was skipped: {LIFT}",
        limits.alive_at_most
    )
}

/// The size that valid data of this compressed size may have.
pub(crate) fn likely_size(compressed: u64) -> u64 {
    compressed
        .saturating_mul(DecompressionLimits::UNLIKELY_RATIO)
        .saturating_add(64 << 10)
}

fn wrong_size(found: u64, declared: u64) -> (ProblemKind, String) {
    (
        ProblemKind::BadChunk,
        format!("it holds {found} bytes, not the {declared} that it declares"),
    )
}

fn failed(message: String) -> Decompressed {
    Decompressed {
        bytes: Bytes::new(),
        fault: Some((ProblemKind::BadChunk, message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LIMITS: DecompressionLimits = DecompressionLimits {
        ratio: 256,
        chunk_at_least: 64 << 20,
        chunk_at_most: 1 << 30,
        file_at_least: 1 << 30,
        alive_at_most: u64::MAX,
    };

    fn pool() -> Arc<BufferPool> {
        Arc::new(BufferPool::default())
    }

    fn zstd_of(contents: &[u8]) -> Bytes {
        zstd::bulk::compress(contents, 3)
            .expect("compresses")
            .into()
    }

    fn lz4_of(contents: &[u8]) -> Bytes {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(contents).expect("compresses");
        encoder.finish().expect("compresses").into()
    }

    fn text() -> Vec<u8> {
        (0..200_000u32)
            .flat_map(|n| (n / 7).to_le_bytes())
            .collect()
    }

    #[test]
    fn data_that_compresses_beyond_all_expectation_is_whole() {
        let contents = vec![7; 20 << 20];
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(&contents).expect("compresses");
        let data = Bytes::from(encoder.finish().expect("compresses"));
        assert!(likely_size(data.len() as u64) < contents.len() as u64);
        let found = decompress_bz2(&data, contents.len() as u64, &LIMITS, &pool());
        assert!(found.fault.is_none());
        assert_eq!(found.bytes.len(), contents.len());
    }

    #[test]
    fn every_compression_gives_back_what_went_in() {
        let contents = text();
        for (name, data) in [
            ("zstd", zstd_of(&contents)),
            ("lz4", lz4_of(&contents)),
            ("", contents.clone().into()),
        ] {
            let result = decompress(name, &data, contents.len() as u64, &LIMITS, &pool());
            assert_eq!(result.fault, None, "{name}");
            assert!(result.bytes == contents, "{name}");
        }
    }

    #[test]
    fn the_front_of_data_is_that_of_the_whole_and_little_more() {
        let contents = text();
        for (name, data) in [("zstd", zstd_of(&contents)), ("lz4", lz4_of(&contents))] {
            let front = |len: usize, data: &Bytes| {
                let is_enough = |front: &[u8]| front.len() >= len;
                let declared = contents.len() as u64;
                decompress_front(name, data, declared, &LIMITS, &pool(), is_enough)
            };
            // Here LZ4 has one block of it all.
            let block = if name == "lz4" { contents.len() } else { 0 };
            for len in [0, 1, 1000, contents.len() / 2, contents.len()] {
                let found = front(len, &data).expect("enough");
                assert!(contents.starts_with(&found), "{name} {len}");
                assert!(
                    (len..=len.max(block) + (256 << 10)).contains(&found.len()),
                    "{name} {len}"
                );
            }
            assert!(front(contents.len() + 1, &data).is_none(), "{name}");
            let cut = data.slice(..data.len() / 2);
            assert!(front(contents.len(), &cut).is_none(), "{name}");
            assert_eq!(front(1000, &cut).is_some(), block == 0, "{name}");
        }
    }

    #[test]
    fn frames_that_follow_each_other_are_all_read() {
        let (front, back) = (text(), text().split_off(1000));
        let both = [front.clone(), back.clone()].concat();
        for (name, frames) in [
            ("zstd", [zstd_of(&front), zstd_of(&back)]),
            ("lz4", [lz4_of(&front), lz4_of(&back)]),
        ] {
            let data = Bytes::from(frames.concat());
            let result = decompress(name, &data, both.len() as u64, &LIMITS, &pool());
            assert_eq!(result.fault, None, "{name}");
            assert!(result.bytes == both, "{name}");
        }
    }

    #[test]
    fn a_size_that_lies_is_reported_and_the_contents_are_kept() {
        let contents = text();
        for (name, data) in [
            ("zstd", zstd_of(&contents)),
            ("lz4", lz4_of(&contents)),
            ("", contents.clone().into()),
        ] {
            for declared in [
                0,
                1,
                contents.len() as u64 - 1,
                contents.len() as u64 + 1,
                1 << 40,
                u64::MAX,
            ] {
                let result = decompress(name, &data, declared, &DecompressionLimits::NONE, &pool());
                assert_eq!(
                    result.fault.map(|(kind, _)| kind),
                    Some(ProblemKind::BadChunk),
                    "{name} {declared}"
                );
                assert!(
                    result.bytes.starts_with(&contents[..1]),
                    "{name} {declared}"
                );
                if declared > contents.len() as u64 {
                    assert!(result.bytes == contents, "{name} {declared}");
                }
            }
        }
    }

    #[test]
    fn the_readable_front_of_cut_data_is_kept() {
        let contents: Vec<u8> = (0..2_000_000u64)
            .flat_map(|n| (n * n).to_le_bytes())
            .collect();
        for (name, data) in [("zstd", zstd_of(&contents)), ("lz4", lz4_of(&contents))] {
            let cut = data.slice(..data.len() / 2);
            let result = decompress(name, &cut, contents.len() as u64, &LIMITS, &pool());
            assert!(result.fault.is_some(), "{name}");
            assert!(
                result.bytes.len() > contents.len() / 4,
                "{name}: {}",
                result.bytes.len()
            );
            assert!(contents.starts_with(&result.bytes), "{name}");
        }
    }

    #[test]
    fn damage_in_the_middle_leaves_what_is_before_it() {
        let contents: Vec<u8> = (0..1_000_000u64)
            .flat_map(|n| (n * n).to_le_bytes())
            .collect();
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(&contents).expect("compresses");
        let bz2 = Bytes::from(encoder.finish().expect("compresses"));
        for (name, data) in [
            ("zstd", zstd_of(&contents)),
            ("lz4", lz4_of(&contents)),
            ("bz2", bz2),
        ] {
            let mut damaged = data.to_vec();
            let middle = data.len() / 2;
            damaged[middle..middle + 64].fill(0);
            let (data, declared) = (Bytes::from(damaged), contents.len() as u64);
            let result = match name {
                "bz2" => decompress_bz2(&data, declared, &LIMITS, &pool()),
                _ => decompress(name, &data, declared, &LIMITS, &pool()),
            };
            assert!(result.fault.is_some(), "{name}");
            let pairs = result.bytes.iter().zip(&contents);
            let good = pairs.take_while(|(a, b)| a == b).count();
            assert!(good > contents.len() / 3, "{name}: {good}");
        }
    }

    #[test]
    fn a_bomb_is_left_out_by_name_and_takes_no_memory() {
        let data = zstd_of(&vec![0; 100 << 20]);
        let result = decompress("zstd", &data, 100 << 20, &LIMITS, &pool());
        assert!(result.bytes.is_empty());
        let (kind, message) = result.fault.expect("refused");
        assert_eq!(kind, ProblemKind::BadChunk);
        assert!(message.contains("--no-limits"), "{message}");
        // One that declares less gives no more than it declares, and a little.
        let result = decompress("zstd", &data, 1000, &LIMITS, &pool());
        assert!(result.fault.is_some());
        assert!(result.bytes.len() as u64 <= UNDECLARED + 1001);
        let result = decompress(
            "zstd",
            &data,
            100 << 20,
            &DecompressionLimits::NONE,
            &pool(),
        );
        assert_eq!(result.bytes.len(), 100 << 20);
    }
}
