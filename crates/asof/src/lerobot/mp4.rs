//! H.264 and H.265 packets in an MP4 file: at a fixed rate, or each picture until the next.
//!
//! ISO/IEC 14496-12 defines the boxes, 14496-15 the layout of the two codecs in them.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use asof_decode::{VideoCodec, VideoShape};

use crate::files::Appender;

/// Ticks of a picture at a fixed rate: any number that players accept.
const TICKS_PER_PICTURE: u32 = 512;
/// Ticks per second where each picture has its own time.
const TICKS_PER_SECOND: u32 = 90_000;
/// The offset of the contents: after the first box, and the head of the second.
const CONTENTS_OFFSET: u64 = 28 + 16;

/// A file in progress, open only while it is written to.
pub struct Mp4 {
    path: PathBuf,
    out: BufWriter<Appender>,
    pace: Pace,
    parameters: Parameters,
    /// The offset of the next picture.
    end: u64,
    sizes: Vec<u32>,
    /// The numbers of pictures that a decoder can start with, from 1.
    keys: Vec<u32>,
}

/// How long pictures are shown.
enum Pace {
    /// This many per second.
    Fixed(u32),
    /// Each from its own time on, in ticks since the first.
    Timed(Vec<u64>),
}

/// The parameters of all pictures of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    codec: VideoCodec,
    /// Size and coding of the pictures.
    pub shape: VideoShape,
    /// The parameter sets, in the order of their kinds.
    sets: Vec<(u8, Vec<u8>)>,
}

impl Parameters {
    /// Those of a packet that a decoder can start with.
    pub fn of(codec: VideoCodec, packet: &[u8]) -> Option<Self> {
        let shape = codec.shape(packet)?;
        let kinds = set_kinds(codec);
        let mut sets: Vec<(u8, Vec<u8>)> = Vec::new();
        for unit in VideoCodec::units(packet) {
            let kind = kind_of(codec, unit);
            let unit = without_zeros(unit);
            if kinds.contains(&kind) && !sets.iter().any(|(_, known)| known == unit) {
                sets.push((kind, unit.to_vec()));
            }
        }
        sets.sort();
        let is_whole = kinds
            .iter()
            .all(|kind| sets.iter().any(|(own, _)| own == kind));
        let fits = sets.iter().all(|(_, set)| u16::try_from(set.len()).is_ok());
        (is_whole && fits).then_some(Parameters { codec, shape, sets })
    }

    /// The name of the codec in ffmpeg.
    pub fn codec_name(&self) -> &'static str {
        match self.codec {
            VideoCodec::H264 => "h264",
            _ => "hevc",
        }
    }

    /// The name of the pixel format in ffmpeg.
    pub fn pixel_format(&self) -> String {
        let sampling = ["gray", "yuv420p", "yuv422p", "yuv444p"];
        let sampling = sampling[usize::from(self.shape.chroma_format.min(3))];
        match self.shape.luma_bits {
            8 => sampling.to_owned(),
            bits => format!("{sampling}{bits}le"),
        }
    }
}

impl Mp4 {
    /// Starts a file with this many pictures per second.
    pub fn create(path: &Path, hz: u32, parameters: Parameters) -> io::Result<Self> {
        drop(File::create_new(path)?);
        Self::start(path, Pace::Fixed(hz), parameters)
    }

    /// Fills an empty file with pictures that have their own times.
    pub fn timed(path: &Path, parameters: Parameters) -> io::Result<Self> {
        Self::start(path, Pace::Timed(Vec::new()), parameters)
    }

    fn start(path: &Path, pace: Pace, parameters: Parameters) -> io::Result<Self> {
        let mut out = Appender::buffered(path);
        let mut head = Vec::new();
        boxed(&mut head, *b"ftyp", |ftyp| {
            ftyp.extend(b"isom\0\0\x02\0isomiso2mp41");
        });
        // The size of the contents is filled in when it is known.
        head.extend([0, 0, 0, 1]);
        head.extend(b"mdat");
        head.extend([0; 8]);
        out.write_all(&head)?;
        Ok(Mp4 {
            path: path.to_owned(),
            out,
            pace,
            parameters,
            end: CONTENTS_OFFSET,
            sizes: Vec::new(),
            keys: Vec::new(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The parameters of the pictures.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// How many pictures there are.
    pub fn pictures(&self) -> usize {
        self.sizes.len()
    }

    /// The size of the contents.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Adds a picture that is shown from a time on, in nanoseconds since the first; times do not go back.
    pub fn push_at(&mut self, packet: &[u8], nanos: u64) -> io::Result<()> {
        if let Pace::Timed(starts) = &mut self.pace {
            let at =
                u64::try_from(u128::from(nanos) * u128::from(TICKS_PER_SECOND) / 1_000_000_000);
            // Two with the same time are shown one after the other, as briefly as possible.
            let least = starts.last().map_or(0, |last| last + 1);
            starts.push(at.unwrap_or(u64::MAX / 2).max(least));
        }
        self.push(packet)
    }

    /// Adds a picture: its units, each after its length. Parameters are in the head of the file.
    pub fn push(&mut self, packet: &[u8]) -> io::Result<()> {
        let codec = self.parameters.codec;
        let mut size = 0_u32;
        let mut is_key = false;
        for unit in VideoCodec::units(packet) {
            let kind = kind_of(codec, unit);
            if set_kinds(codec).contains(&kind) || kind == delimiter(codec) {
                continue;
            }
            is_key |= is_start(codec, kind);
            let unit = without_zeros(unit);
            if unit.is_empty() {
                continue;
            }
            let length = u32::try_from(unit.len()).map_err(io::Error::other)?;
            self.out.write_all(&length.to_be_bytes())?;
            self.out.write_all(unit)?;
            size = size
                .checked_add(length + 4)
                .ok_or_else(|| io::Error::other("a picture of more than 4 GiB"))?;
        }
        self.end += u64::from(size);
        self.sizes.push(size);
        if is_key {
            self.keys.push(self.sizes.len() as u32);
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<()> {
        let mut tail = Vec::new();
        self.write_movie(&mut tail);
        self.out.write_all(&tail)?;
        let size = self.end - CONTENTS_OFFSET + 16;
        self.out.flush()?;
        let mut file = File::options().write(true).open(&self.path)?;
        file.seek(SeekFrom::Start(CONTENTS_OFFSET - 8))?;
        file.write_all(&size.to_be_bytes())
    }

    fn write_movie(&self, out: &mut Vec<u8>) {
        let scale = match self.pace {
            Pace::Fixed(hz) => hz * TICKS_PER_PICTURE,
            Pace::Timed(_) => TICKS_PER_SECOND,
        };
        let lengths = self.lengths();
        let duration = lengths
            .iter()
            .map(|(count, ticks)| u64::from(*count) * u64::from(*ticks))
            .sum::<u64>();
        let (width, height) = (
            self.parameters.shape.width as u32,
            self.parameters.shape.height as u32,
        );
        boxed(out, *b"moov", |moov| {
            full(moov, *b"mvhd", 1, 0, |mvhd| {
                mvhd.extend([0; 16]);
                mvhd.extend(scale.to_be_bytes());
                mvhd.extend(duration.to_be_bytes());
                mvhd.extend(0x0001_0000_u32.to_be_bytes());
                mvhd.extend([1, 0]);
                mvhd.extend([0; 10]);
                mvhd.extend(MATRIX);
                mvhd.extend([0; 24]);
                mvhd.extend(2_u32.to_be_bytes());
            });
            boxed(moov, *b"trak", |trak| {
                // Enabled, and in the movie.
                full(trak, *b"tkhd", 1, 3, |tkhd| {
                    tkhd.extend([0; 16]);
                    tkhd.extend(1_u32.to_be_bytes());
                    tkhd.extend([0; 4]);
                    tkhd.extend(duration.to_be_bytes());
                    tkhd.extend([0; 16]);
                    tkhd.extend(MATRIX);
                    tkhd.extend((width << 16).to_be_bytes());
                    tkhd.extend((height << 16).to_be_bytes());
                });
                boxed(trak, *b"mdia", |mdia| {
                    full(mdia, *b"mdhd", 1, 0, |mdhd| {
                        mdhd.extend([0; 16]);
                        mdhd.extend(scale.to_be_bytes());
                        mdhd.extend(duration.to_be_bytes());
                        // Undetermined language: "und" in letters of five bits.
                        mdhd.extend([0x55, 0xc4, 0, 0]);
                    });
                    full(mdia, *b"hdlr", 0, 0, |hdlr| {
                        hdlr.extend(b"\0\0\0\0vide\0\0\0\0\0\0\0\0\0\0\0\0video\0");
                    });
                    boxed(mdia, *b"minf", |minf| {
                        full(minf, *b"vmhd", 0, 1, |vmhd| vmhd.extend([0; 8]));
                        boxed(minf, *b"dinf", |dinf| {
                            full(dinf, *b"dref", 0, 0, |dref| {
                                dref.extend(1_u32.to_be_bytes());
                                // In this file.
                                full(dref, *b"url ", 0, 1, |_| {});
                            });
                        });
                        boxed(minf, *b"stbl", |stbl| self.write_tables(stbl));
                    });
                });
            });
        });
    }

    fn write_tables(&self, out: &mut Vec<u8>) {
        let count = self.sizes.len() as u32;
        full(out, *b"stsd", 0, 0, |stsd| {
            stsd.extend(1_u32.to_be_bytes());
            self.write_entry(stsd);
        });
        full(out, *b"stts", 0, 0, |stts| {
            let lengths = self.lengths();
            stts.extend((lengths.len() as u32).to_be_bytes());
            for (count, ticks) in lengths {
                stts.extend(count.to_be_bytes());
                stts.extend(ticks.to_be_bytes());
            }
        });
        full(out, *b"stss", 0, 0, |stss| {
            stss.extend((self.keys.len() as u32).to_be_bytes());
            stss.extend(self.keys.iter().flat_map(|key| key.to_be_bytes()));
        });
        // A chunk is a picture.
        full(out, *b"stsc", 0, 0, |stsc| {
            stsc.extend([1_u32, 1, 1, 1].into_iter().flat_map(u32::to_be_bytes));
        });
        full(out, *b"stsz", 0, 0, |stsz| {
            stsz.extend([0; 4]);
            stsz.extend(count.to_be_bytes());
            stsz.extend(self.sizes.iter().flat_map(|size| size.to_be_bytes()));
        });
        full(out, *b"co64", 0, 0, |co64| {
            co64.extend(count.to_be_bytes());
            let mut at = CONTENTS_OFFSET;
            for size in &self.sizes {
                co64.extend(at.to_be_bytes());
                at += u64::from(*size);
            }
        });
    }

    /// The durations of pictures in ticks, run-length encoded: counts and durations.
    fn lengths(&self) -> Vec<(u32, u32)> {
        let Pace::Timed(starts) = &self.pace else {
            return vec![(self.sizes.len() as u32, TICKS_PER_PICTURE)];
        };
        let until_next = starts.windows(2).map(|pair| pair[1] - pair[0]);
        let mut all: Vec<u32> = until_next
            .map(|ticks| u32::try_from(ticks).unwrap_or(u32::MAX))
            .collect();
        // The duration of the last one is unknown: take that of the one before.
        all.push(all.last().copied().unwrap_or(TICKS_PER_SECOND / 30));
        let mut lengths: Vec<(u32, u32)> = Vec::new();
        for ticks in all {
            match lengths.last_mut() {
                Some((count, known)) if *known == ticks => *count += 1,
                _ => lengths.push((1, ticks)),
            }
        }
        lengths
    }

    fn write_entry(&self, out: &mut Vec<u8>) {
        let Parameters { codec, shape, .. } = &self.parameters;
        let name = if *codec == VideoCodec::H264 {
            *b"avc1"
        } else {
            *b"hvc1"
        };
        boxed(out, name, |entry| {
            entry.extend([0, 0, 0, 0, 0, 0, 0, 1]);
            entry.extend([0; 16]);
            entry.extend((shape.width as u16).to_be_bytes());
            entry.extend((shape.height as u16).to_be_bytes());
            // 72 dots per inch, twice.
            entry.extend([0, 0x48, 0, 0, 0, 0x48, 0, 0, 0, 0, 0, 0]);
            entry.extend([0, 1]);
            entry.extend([0; 32]);
            entry.extend([0, 0x18, 0xff, 0xff]);
            if *codec == VideoCodec::H264 {
                boxed(entry, *b"avcC", |config| self.parameters.write_avc(config));
            } else {
                boxed(entry, *b"hvcC", |config| self.parameters.write_hevc(config));
            }
        });
    }
}

impl Parameters {
    fn sets(&self, kind: u8) -> Vec<&[u8]> {
        let own = self.sets.iter().filter(|(own, _)| *own == kind);
        own.map(|(_, set)| &set[..]).collect()
    }

    /// 14496-15, 5.3.3.1.
    fn write_avc(&self, out: &mut Vec<u8>) {
        let (sequence, picture) = (self.sets(7), self.sets(8));
        let own = sequence[0];
        let profile = own[1];
        out.extend([1, profile, own[2], own[3], 0xff]);
        out.push(0xe0 | sequence.len().min(31) as u8);
        for set in sequence.iter().take(31) {
            write_set(out, set);
        }
        out.push(picture.len().min(255) as u8);
        for set in picture.iter().take(255) {
            write_set(out, set);
        }
        if ![66, 77, 88].contains(&profile) {
            let VideoShape {
                chroma_format,
                luma_bits,
                chroma_bits,
                ..
            } = self.shape;
            out.extend([
                0xfc | chroma_format,
                0xf8 | (luma_bits - 8),
                0xf8 | (chroma_bits - 8),
                0,
            ]);
        }
    }

    /// 14496-15, 8.3.3.1.
    fn write_hevc(&self, out: &mut Vec<u8>) {
        let sequence = VideoCodec::unescaped(self.sets(33)[0]);
        out.push(1);
        // Profile, compatibility, constraints and level from the sequence parameters.
        out.extend(&sequence[3..15]);
        out.extend([0xf0, 0, 0xfc]);
        out.push(0xfc | self.shape.chroma_format);
        out.push(0xf8 | (self.shape.luma_bits - 8));
        out.push(0xf8 | (self.shape.chroma_bits - 8));
        let (layers, is_nested) = (((sequence[2] >> 1) & 7) + 1, sequence[2] & 1);
        // Lengths have four bytes.
        out.extend([0, 0, (layers << 3) | (is_nested << 2) | 3]);
        let kinds = set_kinds(self.codec);
        out.push(kinds.len() as u8);
        for &kind in kinds {
            let sets = self.sets(kind);
            out.push(0x80 | kind);
            out.extend((sets.len() as u16).to_be_bytes());
            for set in sets {
                write_set(out, set);
            }
        }
    }
}

/// The identity matrix.
const MATRIX: [u8; 36] = {
    let mut matrix = [0; 36];
    matrix[1] = 1;
    matrix[17] = 1;
    matrix[32] = 0x40;
    matrix
};

fn write_set(out: &mut Vec<u8>, set: &[u8]) {
    out.extend((set.len() as u16).to_be_bytes());
    out.extend(set);
}

fn kind_of(codec: VideoCodec, unit: &[u8]) -> u8 {
    match codec {
        VideoCodec::H264 => unit[0] & 0x1f,
        _ => (unit[0] >> 1) & 0x3f,
    }
}

/// The unit types of parameter sets.
fn set_kinds(codec: VideoCodec) -> &'static [u8] {
    match codec {
        VideoCodec::H264 => &[7, 8],
        _ => &[32, 33, 34],
    }
}

/// The unit type of the access unit delimiter.
fn delimiter(codec: VideoCodec) -> u8 {
    match codec {
        VideoCodec::H264 => 9,
        _ => 35,
    }
}

/// Whether a unit belongs to a picture that can be decoded without earlier ones.
fn is_start(codec: VideoCodec, kind: u8) -> bool {
    match codec {
        VideoCodec::H264 => kind == 5,
        _ => (16..=21).contains(&kind),
    }
}

/// A unit without trailing zeros.
fn without_zeros(unit: &[u8]) -> &[u8] {
    let end = unit.iter().rposition(|byte| *byte != 0);
    &unit[..end.map_or(0, |last| last + 1)]
}

fn boxed(out: &mut Vec<u8>, name: [u8; 4], fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(name);
    fill(out);
    let size = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

/// A box with a version and flags.
fn full(out: &mut Vec<u8>, name: [u8; 4], version: u8, flags: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    boxed(out, name, |inner| {
        inner.extend([version, 0, 0, flags]);
        fill(inner);
    });
}
