//! Points in space: clouds and scans.

use super::{Shown, floats};
use crate::record::pose_of;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use asof_decode::{Record, numbers};

/// More points than this are thinned out: a page draws no more at once.
const MOST_POINTS: usize = 500_000;

/// `count` points as `x, y, z` in float32, then what colours them: float32 (`value`), or four bytes (`rgba`).
///
/// What colours a cloud is its field of that name, where one is chosen and there; else its colour, its intensity, or its height.
pub(super) fn show(record: &Record, chosen: Option<&str>) -> Result<Shown, String> {
    if record.items("ranges").is_some() {
        return scan(record);
    }
    cloud(record, chosen)
}

fn scan(record: &Record) -> Result<Shown, String> {
    let ranges = record.list("ranges").ok_or("it has no field 'ranges'")?;
    let start = record.number("angle_min").ok_or("it has no first angle")?;
    let step = if let Some(step) = record.number("angle_increment") {
        step
    } else {
        let end = record.number("angle_max").ok_or("it has no last angle")?;
        (end - start) / (ranges.len().max(2) - 1) as f64
    };
    let least = record.number("range_min").unwrap_or(0.0);
    let most = record
        .number("range_max")
        .filter(|&most| most > 0.0)
        .unwrap_or(f64::INFINITY);
    // Foxglove's scans have a pose of their own within their frame.
    let pose = pose_of(record);
    let strengths = record
        .list("intensities")
        .filter(|all| all.len() == ranges.len());
    let (mut places, mut values) = (Vec::new(), Vec::new());
    for (index, &range) in ranges.iter().enumerate().take(MOST_POINTS) {
        if !range.is_finite() || range < least || range > most {
            continue;
        }
        let angle = start + step * index as f64;
        places.extend([
            (angle.cos() * range) as f32,
            (angle.sin() * range) as f32,
            0.0,
        ]);
        values.push(strengths.as_ref().map_or(range, |all| all[index]) as f32);
    }
    let head = serde_json::json!({
        "count": values.len(), "color": "value", "kind": "scan",
        "local_pose": pose, "seen": ranges.len(),
    });
    let mut body = floats(places);
    body.extend(floats(values));
    Ok(Shown {
        head,
        data: None,
        body,
    })
}

/// A field of a cloud's points: where it is and how it is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channel {
    offset: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    F32,
    F64,
}

impl Kind {
    /// By ROS's number in `sensor_msgs/PointField`.
    fn of_ros(number: i64) -> Option<Self> {
        const ALL: [Kind; 8] = [
            Kind::I8,
            Kind::U8,
            Kind::I16,
            Kind::U16,
            Kind::I32,
            Kind::U32,
            Kind::F32,
            Kind::F64,
        ];
        ALL.get(usize::try_from(number - 1).ok()?).copied()
    }

    /// By Foxglove's number in `PackedElementField`.
    fn of_foxglove(number: i64) -> Option<Self> {
        const ALL: [Kind; 8] = [
            Kind::U8,
            Kind::I8,
            Kind::U16,
            Kind::I16,
            Kind::U32,
            Kind::I32,
            Kind::F32,
            Kind::F64,
        ];
        ALL.get(usize::try_from(number - 1).ok()?).copied()
    }

    fn size(self) -> usize {
        match self {
            Kind::I8 | Kind::U8 => 1,
            Kind::I16 | Kind::U16 => 2,
            Kind::I32 | Kind::U32 | Kind::F32 => 4,
            Kind::F64 => 8,
        }
    }
}

impl Channel {
    /// The value within a point; the point is known to hold it.
    pub(super) fn value(self, point: &[u8], is_big: bool) -> f64 {
        let mut bytes = [0; 8];
        let size = self.kind.size();
        let Some(found) = point.get(self.offset..self.offset + size) else {
            return f64::NAN;
        };
        bytes[..size].copy_from_slice(found);
        if is_big {
            bytes[..size].reverse();
        }
        let word = u64::from_le_bytes(bytes);
        match self.kind {
            Kind::U8 | Kind::U16 | Kind::U32 => word as f64,
            Kind::I8 => f64::from(word as u8 as i8),
            Kind::I16 => f64::from(word as u16 as i16),
            Kind::I32 => f64::from(word as u32 as i32),
            Kind::F32 => f64::from(f32::from_bits(word as u32)),
            Kind::F64 => f64::from_bits(word),
        }
    }
}

fn cloud(record: &Record, chosen: Option<&str>) -> Result<Shown, String> {
    let data = record.bytes("data").ok_or("it has no field 'data'")?;
    let step = record
        .number("point_step")
        .filter(|&step| step >= 1.0)
        .ok_or("it does not say how long a point is")? as usize;
    let channels = channels(record)?;
    let channel = |name: &str| {
        let found = channels.iter().find(|(known, _)| known == name);
        found.map(|(_, channel)| *channel)
    };
    let axes = [channel("x"), channel("y"), channel("z")];
    let [Some(x), Some(y), Some(z)] = axes else {
        return Err("its points have no x, y and z".to_owned());
    };
    let chosen = chosen.and_then(channel);
    let color = channel("rgb").or_else(|| channel("rgba"));
    let color = color.filter(|_| chosen.is_none());
    let strength = channel("intensity").or_else(|| channel("reflectivity"));
    let strength = chosen.or(strength);
    let is_big = record.number("is_bigendian") == Some(1.0);
    let total = data.len() / step;
    let thin = total.div_ceil(MOST_POINTS).max(1);
    let (mut places, mut values, mut colors) = (Vec::new(), Vec::new(), Vec::new());
    for point in data.chunks_exact(step).step_by(thin) {
        let place = [x, y, z].map(|axis| axis.value(point, is_big) as f32);
        if !place.iter().all(|part| part.is_finite()) {
            continue;
        }
        places.extend(place);
        match (color, strength) {
            (Some(color), _) => {
                let packed = point.get(color.offset..color.offset + 4);
                let [b, g, r, _] = packed
                    .and_then(|p| p.first_chunk())
                    .copied()
                    .unwrap_or_default();
                colors.extend([r, g, b, 255]);
            }
            (None, Some(strength)) => values.push(strength.value(point, is_big) as f32),
            // What is higher is brighter.
            (None, None) => values.push(place[2]),
        }
    }
    let head = serde_json::json!({
        "count": places.len() / 3, "kind": "cloud", "seen": total,
        "thinned": total - total.div_ceil(thin),
        "color": if color.is_some() { "rgba" } else { "value" },
        "local_pose": pose_of(record),
        "fields": channels.iter().map(|(name, _)| name).collect::<Vec<_>>(),
    });
    let mut body = floats(places);
    if color.is_some() {
        body.extend(colors);
    } else {
        body.extend(floats(values));
    }
    Ok(Shown {
        head,
        data: None,
        body,
    })
}

/// The packed fields of points or cells, in the words of ROS or of Foxglove.
pub(super) fn channels(record: &Record) -> Result<Vec<(String, Channel)>, String> {
    let items = record.items("fields").ok_or("it has no field 'fields'")?;
    let items = items.as_struct_opt().ok_or("its fields are no structs")?;
    let names = items
        .column_by_name("name")
        .ok_or("its fields have no names")?;
    let names = names
        .as_string_opt::<i32>()
        .ok_or("its fields have no names")?;
    let offsets = items
        .column_by_name("offset")
        .ok_or("its fields have no offsets")?;
    let (kinds, is_ros) = match (
        items.column_by_name("datatype"),
        items.column_by_name("type"),
    ) {
        (Some(kinds), _) => (kinds, true),
        (None, Some(kinds)) => (kinds, false),
        _ => return Err("its fields have no types".to_owned()),
    };
    let offsets = numbers(&**offsets);
    let kinds = numbers(&**kinds);
    let mut found = Vec::new();
    for row in 0..names.len().min(offsets.len()).min(kinds.len()) {
        let number = kinds[row] as i64;
        let kind = if is_ros {
            Kind::of_ros(number)
        } else {
            Kind::of_foxglove(number)
        };
        if let Some(kind) = kind {
            let offset = offsets[row] as usize;
            found.push((names.value(row).to_owned(), Channel { offset, kind }));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_byte_orders() {
        let channel = |kind| Channel { offset: 1, kind };
        let point = [0, 0x3f, 0x80, 0, 0, 0xff];
        assert!((channel(Kind::F32).value(&point, true) - 1.0).abs() < 1e-9);
        assert!((channel(Kind::U16).value(&point, false) - f64::from(0x803f)).abs() < 1e-9);
        assert!(channel(Kind::F64).value(&point, false).is_nan());
        let last = Channel {
            offset: 5,
            kind: Kind::I8,
        };
        assert!((last.value(&point, false) + 1.0).abs() < 1e-9);
    }
}
