//! Downloads of complete files, for formats that cannot be read in place.

use std::collections::VecDeque;
use std::io::Write;

use asof_core::SourceError;
use bytes::Bytes;

use super::{Pending, RemoteFile, finish};
use crate::storage::REQUESTS_IN_FLIGHT;
use crate::unpacked::TemporaryFile;

/// Bytes of a request.
const REQUEST_BYTES: u64 = 4 << 20;

impl RemoteFile {
    /// Downloads the complete file into a temporary one.
    pub(crate) fn fetch_whole(&self) -> Result<TemporaryFile, SourceError> {
        let (mut file, temporary) = TemporaryFile::create(&self.name)?;
        let mut coming: VecDeque<(u64, Pending<Bytes>)> = VecDeque::new();
        let mut asked = 0;
        loop {
            while asked < self.remote.size && coming.len() < REQUESTS_IN_FLIGHT {
                let end = self.remote.size.min(asked + REQUEST_BYTES);
                coming.push_back((asked, self.remote.ask(asked..end)));
                asked = end;
            }
            let Some((offset, piece)) = coming.pop_front() else {
                return Ok(temporary);
            };
            let piece = finish(piece).map_err(|cause| SourceError::Io {
                place: self.name.clone(),
                offset,
                cause,
            })?;
            let written = file.write_all(&piece);
            written.map_err(|cause| temporary.cannot_hold(&self.name, &cause))?;
        }
    }
}
