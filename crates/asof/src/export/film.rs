//! One topic's pictures as a video file: video packets are copied, pictures are encoded by `ffmpeg` if it is installed.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use asof_core::Stamp;
use asof_decode::VideoCodec;

use super::seen::{PictureContents, Placement};
use crate::files::{Appender, NewFile};
use crate::lerobot::{Mp4, Parameters, ffmpeg_command};
use crate::{Error, Progress};

/// A video file in progress.
pub struct Film {
    /// Its path, without an extension.
    path: PathBuf,
    rate: f64,
    way: Way,
}

enum Way {
    /// Packets of H.264 or H.265 in a container, each shown at its log time.
    Muxed(Box<Muxed>),
    /// Packets, one after the other, without a container.
    Packets(Packets),
    /// Pictures of one kind, encoded by ffmpeg as they arrive.
    Pictures {
        encoder: Child,
        extension: &'static str,
        new: NewFile,
    },
}

struct Muxed {
    codec: VideoCodec,
    new: NewFile,
    film: Mp4,
    start: Option<Stamp>,
    /// Whether the following packets have other parameters than the file.
    is_other: bool,
}

struct Packets {
    codec: VideoCodec,
    new: NewFile,
    out: BufWriter<Appender>,
    start: Stamp,
    count: u64,
}

impl Film {
    /// Starts a file with its first picture or packet.
    pub fn start(
        path: &Path,
        first: &PictureContents,
        rate: f64,
        force: bool,
    ) -> Result<Self, Error> {
        let way = match first {
            PictureContents::Packet(data, codec) if Parameters::of(*codec, data).is_some() => {
                Way::muxed(path, *codec, data, force)?
            }
            PictureContents::Packet(_, codec) => {
                let new = NewFile::create(&with(path, stream_extension(*codec)), |_| force)?;
                let mut out = new.appender();
                if let Some(sign) = ivf_sign(*codec) {
                    out.write_all(&ivf_head(sign)).map_err(unwritten(path))?;
                }
                Way::Packets(Packets {
                    codec: *codec,
                    new,
                    out,
                    start: Stamp::MIN,
                    count: 0,
                })
            }
            PictureContents::Picture(_, extension) => Way::encoder(path, extension, rate, force)?,
            PictureContents::Scaled(_) => Way::encoder(path, "png", rate, force)?,
        };
        Ok(Film {
            path: path.to_owned(),
            rate,
            way,
        })
    }

    /// Adds the next picture or packet.
    pub fn take(&mut self, seen: &PictureContents, at: Stamp) -> Result<Placement, Error> {
        let cannot = unwritten(&self.path);
        match (&mut self.way, seen) {
            (Way::Muxed(muxed), PictureContents::Packet(data, codec)) if *codec == muxed.codec => {
                return muxed.take(data, at).map_err(cannot);
            }
            (Way::Packets(packets), PictureContents::Packet(data, codec))
                if *codec == packets.codec =>
            {
                packets.take(data, at).map_err(cannot)?;
            }
            (
                Way::Pictures {
                    extension, encoder, ..
                },
                PictureContents::Picture(bytes, own),
            ) if own == extension => {
                feed(encoder, bytes, &self.path)?;
            }
            (
                Way::Pictures {
                    extension: "png",
                    encoder,
                    ..
                },
                PictureContents::Scaled(bytes),
            ) => {
                feed(encoder, bytes, &self.path)?;
            }
            _ => {
                let reason = "it is not encoded as the first one is";
                return Ok(Placement::Failed(reason.to_owned()));
            }
        }
        Ok(Placement::Written)
    }

    /// Moves the file to its target; returns the path.
    pub fn finish(self, force: bool, progress: &Progress) -> Result<PathBuf, Error> {
        match self.way {
            Way::Muxed(muxed) => {
                muxed.film.finish().map_err(unwritten(&self.path))?;
                muxed.new.finish()?;
                Ok(with(&self.path, "mp4"))
            }
            Way::Packets(packets) => {
                let stream = with(&self.path, stream_extension(packets.codec));
                packets.finish(&self.path)?;
                if !has_ffmpeg() {
                    progress.note(format_args!(
                        "ffmpeg is not installed: {} is the bare stream, without times; with ffmpeg it becomes an .mp4",
                        stream.display()
                    ));
                    return Ok(stream);
                }
                let film = with(&self.path, "mp4");
                remux(&stream, &film, self.rate, force)?;
                std::fs::remove_file(&stream).map_err(|error| {
                    Error::file(format!("cannot remove {}", stream.display()), error)
                })?;
                Ok(film)
            }
            Way::Pictures { encoder, new, .. } => {
                end(encoder, &self.path)?;
                new.finish()?;
                Ok(with(&self.path, "mp4"))
            }
        }
    }
}

impl Way {
    fn muxed(path: &Path, codec: VideoCodec, first: &[u8], force: bool) -> Result<Self, Error> {
        let parameters = Parameters::of(codec, first)
            .ok_or_else(|| Error::Invalid("there are no parameters".to_owned()))?;
        let new = NewFile::create(&with(path, "mp4"), |_| force)?;
        let film = Mp4::timed(new.path(), parameters).map_err(unwritten(path))?;
        Ok(Way::Muxed(Box::new(Muxed {
            codec,
            new,
            film,
            start: None,
            is_other: false,
        })))
    }

    fn encoder(
        path: &Path,
        extension: &'static str,
        rate: f64,
        force: bool,
    ) -> Result<Self, Error> {
        if !has_ffmpeg() {
            return Err(Error::Invalid("encoding pictures as video needs ffmpeg, which is not installed; install it, or write them one by one: --format images".to_owned()));
        }
        let codec = match extension {
            "jpg" => "mjpeg",
            other => other,
        };
        let new = NewFile::create(&with(path, "mp4"), |_| force)?;
        let encoder = ffmpeg_command()
            .args(["-f", "image2pipe", "-framerate", &rate.to_string()])
            .args(["-c:v", codec, "-i", "-"])
            // H.264 needs an even number of rows and columns.
            .args([
                "-vf",
                "pad=ceil(iw/2)*2:ceil(ih/2)*2",
                "-pix_fmt",
                "yuv420p",
            ])
            .args(["-f", "mp4", "-y"])
            .arg(new.path())
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| Error::file("cannot start ffmpeg", error))?;
        Ok(Way::Pictures {
            encoder,
            extension,
            new,
        })
    }
}

impl Muxed {
    fn take(&mut self, data: &[u8], at: Stamp) -> io::Result<Placement> {
        if let Some(parameters) = Parameters::of(self.codec, data) {
            self.is_other = parameters != *self.film.parameters();
        }
        if self.is_other {
            let reason = "its size or its parameters differ from those of the video";
            return Ok(Placement::Failed(reason.to_owned()));
        }
        if !self.codec.has_picture(data) {
            return Ok(Placement::Nothing);
        }
        let start = *self.start.get_or_insert(at);
        let nanos = u64::try_from(at.since(start)).unwrap_or(0);
        self.film.push_at(data, nanos)?;
        Ok(Placement::Written)
    }
}

impl Packets {
    fn take(&mut self, data: &[u8], at: Stamp) -> io::Result<()> {
        if self.count == 0 {
            self.start = at;
        }
        self.count += 1;
        if ivf_sign(self.codec).is_some() {
            let micros = at.since(self.start).max(0) as u64 / 1000;
            self.out.write_all(&(data.len() as u32).to_le_bytes())?;
            self.out.write_all(&micros.to_le_bytes())?;
        }
        self.out.write_all(data)
    }

    fn finish(mut self, path: &Path) -> Result<(), Error> {
        self.out.flush().map_err(unwritten(path))?;
        drop(self.out);
        self.new.finish()
    }
}

/// The error when a video cannot be written.
fn unwritten(path: &Path) -> impl Fn(io::Error) -> Error {
    |error| Error::file(format!("cannot write the video {}", path.display()), error)
}

fn with(path: &Path, extension: &str) -> PathBuf {
    // A topic's name may contain a dot, which does not start an extension.
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

fn stream_extension(codec: VideoCodec) -> &'static str {
    match codec {
        VideoCodec::H264 => "h264",
        VideoCodec::H265 => "h265",
        VideoCodec::Vp9 | VideoCodec::Av1 => "ivf",
    }
}

fn ivf_sign(codec: VideoCodec) -> Option<[u8; 4]> {
    match codec {
        VideoCodec::Vp9 => Some(*b"VP90"),
        VideoCodec::Av1 => Some(*b"AV01"),
        VideoCodec::H264 | VideoCodec::H265 => None,
    }
}

/// The head of an IVF file with times in microseconds. Sizes are in the stream itself.
fn ivf_head(sign: [u8; 4]) -> Vec<u8> {
    let mut head = b"DKIF\0\0\x20\0".to_vec();
    head.extend(sign);
    head.extend([0; 4]);
    head.extend(1_000_000_u32.to_le_bytes());
    head.extend(1_u32.to_le_bytes());
    head.extend([0; 8]);
    head
}

fn has_ffmpeg() -> bool {
    let asked = Command::new("ffmpeg")
        .arg("-version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Puts a stream into a container, its pictures evenly spaced at the average rate.
fn remux(stream: &Path, film: &Path, rate: f64, force: bool) -> Result<(), Error> {
    let new = NewFile::create(film, |_| force)?;
    let mut command = ffmpeg_command();
    if stream
        .extension()
        .is_none_or(|extension| extension != "ivf")
    {
        command.args(["-framerate", &rate.to_string()]);
    }
    let status = command
        .arg("-i")
        .arg(stream)
        .args(["-c", "copy", "-f", "mp4", "-y"])
        .arg(new.path())
        .status()
        .map_err(|error| Error::file("cannot start ffmpeg", error))?;
    if !status.success() {
        return Err(Error::Invalid(format!(
            "ffmpeg could not put {} into a container; the stream was kept",
            stream.display()
        )));
    }
    new.finish()
}

fn feed(encoder: &mut Child, bytes: &[u8], path: &Path) -> Result<(), Error> {
    let written = match &mut encoder.stdin {
        Some(input) => input.write_all(bytes),
        None => Ok(()),
    };
    written.map_err(|_| {
        Error::Invalid(format!(
            "ffmpeg ended before the last picture of the video {}; its output is above",
            path.display()
        ))
    })
}

fn end(mut encoder: Child, path: &Path) -> Result<(), Error> {
    drop(encoder.stdin.take());
    let status = encoder
        .wait()
        .map_err(|error| Error::file("cannot wait for ffmpeg", error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Invalid(format!(
            "ffmpeg could not encode the video {} ({status}); its output is above",
            path.display()
        )))
    }
}
