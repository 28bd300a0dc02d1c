//! `ffmpeg`, if it is installed: encodes pictures into a video, and decodes a video into pictures.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use asof_decode::Pixels;

use super::LerobotError;

/// Usable encoders, the best first, with their quality settings.
const ENCODERS: [(&str, &str, &[&str]); 3] = [
    ("libx264", "h264", &["-crf", "23", "-bf", "0"]),
    ("libsvtav1", "av1", &["-crf", "30"]),
    ("libopenh264", "h264", &["-b:v", "8M"]),
];

/// The encoder for videos: its name, and that of its codec. `None` without an ffmpeg that has one.
pub(super) fn encoder() -> Option<(&'static str, &'static str)> {
    chosen().map(|(name, codec, _)| (*name, *codec))
}

fn chosen() -> Option<&'static (&'static str, &'static str, &'static [&'static str])> {
    static FOUND: OnceLock<Option<usize>> = OnceLock::new();
    let place = FOUND.get_or_init(|| {
        let asked = command()
            .arg("-encoders")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .output();
        let told = asked.ok().filter(|asked| asked.status.success())?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        ENCODERS
            .iter()
            .position(|(name, ..)| told.split_whitespace().any(|word| word == *name))
    });
    ENCODERS.get((*place)?)
}

/// ffmpeg without prompts, printing only errors.
pub fn command() -> Command {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-nostdin", "-hide_banner", "-loglevel", "error"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// A video in progress.
pub(super) struct Encoder {
    child: Child,
    path: PathBuf,
    pub(super) pictures: usize,
}

impl Encoder {
    /// Starts a video with this many pictures per second.
    pub(super) fn start(
        path: &Path,
        hz: u32,
        width: usize,
        height: usize,
    ) -> Result<Self, LerobotError> {
        let (name, _, options) = chosen().ok_or(LerobotError::NoFfmpeg)?;
        let child = command()
            .args([
                "-f",
                "rawvideo",
                "-pix_fmt",
                "rgb24",
                "-s",
                &format!("{width}x{height}"),
            ])
            .args(["-framerate", &hz.to_string(), "-i", "-", "-c:v", name])
            .args(*options)
            // Frames are read in any order: keyframes must be close.
            .args([
                "-g",
                "2",
                "-pix_fmt",
                pixel_format(width, height),
                "-f",
                "mp4",
                "-n",
            ])
            .arg(path)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(path, &error.to_string()))?;
        Ok(Encoder {
            child,
            path: path.to_owned(),
            pictures: 0,
        })
    }

    /// Adds a picture of red, green and blue.
    pub(super) fn push(&mut self, rgb: &Pixels) -> Result<(), LerobotError> {
        let written = match &mut self.child.stdin {
            Some(input) => input.write_all(&rgb.data),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_err() {
            return Err(self.why());
        }
        self.pictures += 1;
        Ok(())
    }

    /// The current size of the file.
    pub(super) fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |found| found.len())
    }

    pub(super) fn finish(mut self) -> Result<(), LerobotError> {
        drop(self.child.stdin.take());
        let status = self.child.wait();
        if status.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(self.why())
    }

    /// The error output of ffmpeg.
    fn why(&mut self) -> LerobotError {
        drop(self.child.stdin.take());
        let mut said = String::new();
        if let Some(out) = &mut self.child.stderr {
            let _ = out.take(10_000).read_to_string(&mut said);
        }
        failed(&self.path, said.trim())
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // After a failed export nothing waits for the process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pixel format of a video: subsampled colours need even sides.
pub(super) fn pixel_format(width: usize, height: usize) -> &'static str {
    if width.is_multiple_of(2) && height.is_multiple_of(2) {
        "yuv420p"
    } else {
        "yuv444p"
    }
}

/// Calls back with the pictures of a video, one after the other.
pub(super) fn decode(
    path: &Path,
    width: usize,
    height: usize,
    mut each: impl FnMut(usize, Pixels) -> Result<(), LerobotError>,
) -> Result<usize, LerobotError> {
    let mut child = command()
        .arg("-i")
        .arg(path)
        .args([
            "-fps_mode",
            "passthrough",
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(path, &error.to_string()))?;
    let mut out = child.stdout.take();
    let mut count = 0;
    let result = loop {
        let mut data = vec![0; width * height * 3];
        let Some(from) = &mut out else { break Ok(()) };
        match from.read_exact(&mut data) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break Ok(()),
            Err(error) => break Err(failed(path, &error.to_string())),
        }
        let pixels = Pixels {
            width,
            height,
            channels: 3,
            bits: 8,
            data,
        };
        if let Err(error) = each(count, pixels) {
            break Err(error);
        }
        count += 1;
    };
    drop(out);
    let _ = child.kill();
    let _ = child.wait();
    result.map(|()| count)
}

fn failed(path: &Path, said: &str) -> LerobotError {
    LerobotError::Ffmpeg {
        path: path.to_owned(),
        said: if said.is_empty() {
            "it printed no reason".to_owned()
        } else {
            said.to_owned()
        },
    }
}
