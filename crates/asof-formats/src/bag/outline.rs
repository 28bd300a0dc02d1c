//! Message counts by channel and time, from the indexes alone.

use asof_core::{Portion, SourceError, TimeRange};

use super::{Bag, Contents};
use crate::sections::Tally;

impl Bag {
    /// Counts come from the chunk infos at the bag's end; where a chunk is longer than `grain`, from the index records
    /// after it. `None` where a section has no index.
    pub(super) fn indexed_portions(
        &self,
        range: TimeRange,
        grain: u64,
    ) -> Result<Option<Vec<Portion>>, SourceError> {
        let table = self.table();
        let mut tally = Tally::new(grain);
        let sections = self.sections.iter();
        for section in sections.filter(|section| section.range.overlaps(range)) {
            let Contents::Indexed(counts) = &section.contents else {
                return Ok(None);
            };
            let index = if section.range.duration_nanos().unsigned_abs() > grain {
                let Some(index) = self.chunk_index(section)? else {
                    return Ok(None);
                };
                Some(index)
            } else {
                None
            };
            for &(conn, count) in counts {
                let Some(channel) = table.index_of(conn) else {
                    continue;
                };
                let channel = &table.channels[channel as usize];
                match &index {
                    None => tally.add(channel, section.range, count),
                    Some(index) => {
                        let times = index.of(conn).map(|(time, _)| time);
                        for time in times.filter(|time| range.contains(*time)) {
                            tally.add_one(channel, time);
                        }
                    }
                }
            }
        }
        Ok(Some(tally.finish()))
    }
}
