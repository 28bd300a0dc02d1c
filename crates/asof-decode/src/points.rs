//! Points of laser scans and point clouds.

use arrow_array::Array;
use arrow_array::cast::AsArray;

use crate::numbers::numbers;
use crate::record::Record;

/// A laser scan: distances along beams.
///
/// It is read from the message's [archetype](crate::Decoders::meaning), so that scans of ROS and Foxglove are the
/// same.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The angle of the first beam, in radians.
    pub start: f64,
    /// The angle from one beam to the next, in radians.
    pub step: f64,
    /// The shortest distance that can be measured.
    pub least: f64,
    /// The longest distance that can be measured.
    pub most: f64,
    /// The measured distances, one for each beam.
    pub ranges: Vec<f64>,
    /// The intensities, where the scan has one for every beam.
    pub intensities: Option<Vec<f64>>,
}

/// Why a message is not a valid scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// There are no distances.
    #[error("it has no field 'ranges'")]
    NoRanges,
    /// The first angle is missing.
    #[error("it has no first angle")]
    NoFirstAngle,
    /// Neither the angle step nor the last angle is there.
    #[error("it has no last angle")]
    NoLastAngle,
}

/// A beam with a valid distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beam {
    /// Its index among all beams of the scan.
    pub index: usize,
    /// Its angle, in radians.
    pub angle: f64,
    /// The distance.
    pub range: f64,
    /// The intensity.
    pub intensity: Option<f64>,
}

impl Scan {
    /// Reads the scan of a message.
    ///
    /// # Errors
    /// When a field is missing; the text is half a sentence.
    pub fn of(record: &Record) -> Result<Self, ScanError> {
        let ranges = record.list("ranges").ok_or(ScanError::NoRanges)?;
        let start = record.number("angle_min").ok_or(ScanError::NoFirstAngle)?;
        let step = if let Some(step) = record.number("angle_increment") {
            step
        } else {
            let end = record.number("angle_max").ok_or(ScanError::NoLastAngle)?;
            (end - start) / (ranges.len().max(2) - 1) as f64
        };
        let most = record.number("range_max").filter(|&most| most > 0.0);
        let intensities = record
            .list("intensities")
            .filter(|all| all.len() == ranges.len());
        Ok(Scan {
            start,
            step,
            least: record.number("range_min").unwrap_or(0.0),
            most: most.unwrap_or(f64::INFINITY),
            ranges,
            intensities,
        })
    }

    /// The beams whose distances are within the scanner's range.
    pub fn beams(&self) -> impl Iterator<Item = Beam> {
        let is_echo = |range: f64| range.is_finite() && range >= self.least && range <= self.most;
        let all = self.ranges.iter().copied().enumerate();
        all.filter(move |(_, range)| is_echo(*range))
            .map(|(index, range)| Beam {
                index,
                angle: self.start + self.step * index as f64,
                range,
                intensity: self.intensities.as_ref().map(|all| all[index]),
            })
    }
}

impl Beam {
    /// Its end point, in the plane of the scan.
    pub fn end(&self) -> [f64; 2] {
        [self.angle.cos() * self.range, self.angle.sin() * self.range]
    }
}

/// A number within the points of a cloud, or the cells of a grid: its offset and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedField {
    /// Its name: `x`, `intensity`.
    pub name: String,
    /// Its offset in bytes.
    pub offset: usize,
    /// Its number type.
    pub kind: PackedKind,
}

/// A type of packed numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum PackedKind {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    F32,
    F64,
}

impl PackedKind {
    /// By the number in `sensor_msgs/PointField`.
    fn of_ros(number: i64) -> Option<Self> {
        use PackedKind::{F32, F64, I8, I16, I32, U8, U16, U32};
        const ALL: [PackedKind; 8] = [I8, U8, I16, U16, I32, U32, F32, F64];
        ALL.get(usize::try_from(number - 1).ok()?).copied()
    }

    /// By the number in `PackedElementField` of Foxglove.
    fn of_foxglove(number: i64) -> Option<Self> {
        use PackedKind::{F32, F64, I8, I16, I32, U8, U16, U32};
        const ALL: [PackedKind; 8] = [U8, I8, U16, I16, U32, I32, F32, F64];
        ALL.get(usize::try_from(number - 1).ok()?).copied()
    }

    /// Its size in bytes.
    pub const fn size(self) -> usize {
        match self {
            PackedKind::I8 | PackedKind::U8 => 1,
            PackedKind::I16 | PackedKind::U16 => 2,
            PackedKind::I32 | PackedKind::U32 | PackedKind::F32 => 4,
            PackedKind::F64 => 8,
        }
    }
}

/// Why the packed fields of a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackedFieldError {
    /// It has no list of fields.
    #[error("it has no field 'fields'")]
    NoFields,
    /// The list holds no structs.
    #[error("its fields are not structs")]
    NotStructs,
    /// The fields have no names.
    #[error("its fields have no names")]
    NoNames,
    /// The fields have no offsets.
    #[error("its fields have no offsets")]
    NoOffsets,
    /// The fields have no types.
    #[error("its fields have no types")]
    NoTypes,
}

impl PackedField {
    /// The packed fields of a message's points or cells, for ROS and Foxglove. Fields of unknown types are skipped.
    ///
    /// # Errors
    /// When the message does not describe its fields.
    pub fn all_of(record: &Record) -> Result<Vec<Self>, PackedFieldError> {
        use PackedFieldError as Error;
        let items = record.items("fields").ok_or(Error::NoFields)?;
        let items = items.as_struct_opt().ok_or(Error::NotStructs)?;
        let names = items
            .column_by_name("name")
            .and_then(|names| names.as_string_opt::<i32>())
            .ok_or(Error::NoNames)?;
        let offsets = items.column_by_name("offset").ok_or(Error::NoOffsets)?;
        let (kinds, is_ros) = match (
            items.column_by_name("datatype"),
            items.column_by_name("type"),
        ) {
            (Some(kinds), _) => (kinds, true),
            (None, Some(kinds)) => (kinds, false),
            _ => return Err(Error::NoTypes),
        };
        let (offsets, kinds) = (numbers(&**offsets), numbers(&**kinds));
        let mut found = Vec::new();
        for row in 0..names.len().min(offsets.len()).min(kinds.len()) {
            let number = kinds[row] as i64;
            let kind = if is_ros {
                PackedKind::of_ros(number)
            } else {
                PackedKind::of_foxglove(number)
            };
            found.extend(kind.map(|kind| PackedField {
                name: names.value(row).to_owned(),
                offset: offsets[row] as usize,
                kind,
            }));
        }
        Ok(found)
    }

    /// The value within a point; NaN where the point is too short.
    pub fn value(&self, point: &[u8], is_big_endian: bool) -> f64 {
        let mut bytes = [0; 8];
        let size = self.kind.size();
        let end = self.offset.checked_add(size);
        let Some(found) = end.and_then(|end| point.get(self.offset..end)) else {
            return f64::NAN;
        };
        bytes[..size].copy_from_slice(found);
        if is_big_endian {
            bytes[..size].reverse();
        }
        let word = u64::from_le_bytes(bytes);
        match self.kind {
            PackedKind::U8 | PackedKind::U16 | PackedKind::U32 => word as f64,
            PackedKind::I8 => f64::from(word as u8 as i8),
            PackedKind::I16 => f64::from(word as u16 as i16),
            PackedKind::I32 => f64::from(word as u32 as i32),
            PackedKind::F32 => f64::from(f32::from_bits(word as u32)),
            PackedKind::F64 => f64::from_bits(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_byte_orders() {
        let field = |offset, kind| PackedField {
            name: "x".to_owned(),
            offset,
            kind,
        };
        let point = [0, 0x3f, 0x80, 0, 0, 0xff];
        assert!((field(1, PackedKind::F32).value(&point, true) - 1.0).abs() < 1e-9);
        let word = field(1, PackedKind::U16).value(&point, false);
        assert!((word - f64::from(0x803f)).abs() < 1e-9);
        assert!(field(1, PackedKind::F64).value(&point, false).is_nan());
        assert!((field(5, PackedKind::I8).value(&point, false) + 1.0).abs() < 1e-9);
        let beyond = field(usize::MAX, PackedKind::F64);
        assert!(beyond.value(&point, false).is_nan());
    }

    #[test]
    fn beams_that_did_not_come_back_are_left_out_and_the_others_keep_their_places() {
        let scan = Scan {
            start: 0.0,
            step: 0.5,
            least: 0.1,
            most: 10.0,
            ranges: vec![f64::INFINITY, 2.0, 0.01, f64::NAN, 11.0, 10.0],
            intensities: None,
        };
        let places: Vec<(usize, f64)> = scan.beams().map(|beam| (beam.index, beam.angle)).collect();
        assert_eq!(places, [(1, 0.5), (5, 2.5)]);
    }
}
