//! The work that no reader of an MCAP file is spared, and the CPU time that work takes.

use std::hint::black_box;
use std::io::Read;
use std::path::Path;

/// Every chunk decompressed into one buffer; with topics, those that hold messages on one of them.
pub fn decompress(path: &Path, topics: Option<&[&str]>) -> usize {
    let mapped = std::fs::File::open(path).expect("a file");
    // SAFETY: the file is not written while the benchmark runs.
    let map = unsafe { memmap2::Mmap::map(&mapped) }.expect("a map");
    let summary = mcap::Summary::read(&map)
        .expect("an MCAP file")
        .expect("a summary");
    let is_wanted = |id: &u16| {
        let channel = summary.channels.get(id);
        topics.is_none_or(|topics| channel.is_some_and(|one| topics.contains(&&*one.topic)))
    };
    let mut zstd = zstd::bulk::Decompressor::new().expect("zstd");
    let mut buffer = Vec::new();
    let mut total = 0;
    for chunk in &summary.chunk_indexes {
        if topics.is_some() && !chunk.message_index_offsets.keys().any(is_wanted) {
            continue;
        }
        let start = chunk.compressed_data_offset().expect("a chunk") as usize;
        let data = &map[start..start + chunk.compressed_size as usize];
        let size = chunk.uncompressed_size as usize;
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        total += match chunk.compression.as_str() {
            "zstd" => zstd
                .decompress_to_buffer(data, &mut buffer[..size])
                .expect("zstd"),
            "lz4" => {
                let mut reader = lz4::Decoder::new(data).expect("lz4");
                reader.read_exact(&mut buffer[..size]).expect("lz4");
                size
            }
            _ => data.len(),
        };
        black_box(&buffer);
    }
    total
}

/// CPU seconds of this process.
pub fn cpu<T>(work: impl FnOnce() -> T) -> f64 {
    let start = cpu_time();
    black_box(work());
    cpu_time() - start
}

fn cpu_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live value of the type that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
