//! What lies between two messages, as a row.

use asof_core::Stamp;

use super::Decoder;
use crate::PayloadError;

impl Decoder {
    /// Decodes what a message would have said between two others into a row, as
    /// [`write_json_between`](Self::write_json_between) writes it. `false`, and there is no row, where there is nothing
    /// between them.
    ///
    /// # Errors
    /// When a payload cannot be decoded; there is no row then.
    pub fn append_between(
        &mut self,
        (log_time, publish_time): (Stamp, Stamp),
        (before, after): (&[u8], &[u8]),
        part: f64,
    ) -> Result<bool, PayloadError> {
        if !self.has_between {
            return Ok(false);
        }
        let rows = self.rows();
        for (at, payload) in [before, after].into_iter().enumerate() {
            if let Err(error) = self.push_row(payload, rows + at) {
                self.wire.layout().truncate(&mut self.columns, rows);
                return Err(error);
            }
        }
        let layout = self.wire.layout();
        let is_alike = layout.root.is_alike(&self.columns, rows, rows + 1);
        if is_alike {
            layout.root.blend(&mut self.columns, rows, rows + 1, part);
            self.log_times.push(log_time.nanos() as u64);
            self.publish_times.push(publish_time.nanos() as u64);
        }
        layout.truncate(&mut self.columns, rows + usize::from(is_alike));
        Ok(is_alike)
    }
}
