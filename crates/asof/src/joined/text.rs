//! Text output of rows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::Error;
use crate::files::NewFile;

/// The output: the screen, or a file that appears when it is complete.
pub(super) enum Text {
    Screen(Box<dyn Write>),
    File(NewFile, BufWriter<File>),
}

impl Text {
    pub(super) fn create(path: &Path, may_replace: bool) -> Result<Self, Error> {
        let new = NewFile::create(path, |_| may_replace)?;
        let out = new.writer()?;
        Ok(Text::File(new, out))
    }

    pub(super) fn close(mut self) -> Result<(), Error> {
        self.flush()?;
        match self {
            Text::Screen(_) => Ok(()),
            Text::File(new, _) => Ok(new.finish()?),
        }
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Text::Screen(out) => out.write(bytes),
            Text::File(_, out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Text::Screen(out) => out.flush(),
            Text::File(_, out) => out.flush(),
        }
    }
}
