//! Points: clouds and scans.

use super::{ShowOptions, Shown, floats};
use asof_decode::{PackedField, PackedKind, Record, Scan};

/// The most points: a page cannot draw more at once.
const MOST_POINTS: usize = 500_000;

/// `count` points as `x, y, z` in float32, then their colours: float32 (`value`), or four bytes (`rgba`).
///
/// A cloud is coloured by the chosen field, where there is one; else by its colour, its intensity, or its height.
pub(super) fn show(record: &Record, wish: &ShowOptions) -> Result<Shown, String> {
    if record.items("ranges").is_some() {
        return scan(record);
    }
    cloud(record, wish)
}

fn scan(record: &Record) -> Result<Shown, String> {
    let scan = Scan::of(record).map_err(|error| error.to_string())?;
    let (mut places, mut values) = (Vec::new(), Vec::new());
    for beam in scan.beams().take(MOST_POINTS) {
        let [x, y] = beam.end();
        places.extend([x as f32, y as f32, 0.0]);
        values.push(beam.intensity.unwrap_or(beam.range) as f32);
    }
    let head = serde_json::json!({
        "count": values.len(), "color": "value", "kind": "scan",
        // Foxglove's scans have their own pose within their frame.
        "local_pose": record.pose(), "seen": scan.ranges.len(),
    });
    let mut body = floats(places);
    body.extend(floats(values));
    Ok(Shown {
        head,
        data: None,
        body,
    })
}

fn cloud(record: &Record, wish: &ShowOptions) -> Result<Shown, String> {
    let data = record.bytes("data").ok_or("it has no field 'data'")?;
    let step = record
        .number("point_step")
        .filter(|&step| step >= 1.0)
        .ok_or("it has no point stride")? as usize;
    let fields = PackedField::all_of(record).map_err(|error| error.to_string())?;
    let field = |name: &str| fields.iter().find(|field| field.name == name);
    let axes = [field("x"), field("y"), field("z")];
    let [Some(x), Some(y), Some(z)] = axes else {
        return Err("its points do not have x, y and z".to_owned());
    };
    let chosen = wish.color.as_deref().and_then(field);
    let color = Color::of(&fields).filter(|_| chosen.is_none());
    let strength = field("intensity").or_else(|| field("reflectivity"));
    let strength = chosen.or(strength);
    let is_big = record.number("is_bigendian") == Some(1.0);
    let total = data.len() / step;
    let most = wish.most.unwrap_or(MOST_POINTS).clamp(1, MOST_POINTS);
    let thin = total.div_ceil(most).max(1);
    let (mut places, mut values, mut colors) = (Vec::new(), Vec::new(), Vec::new());
    for point in data.chunks_exact(step).step_by(thin) {
        let place = [x, y, z].map(|axis| axis.value(point, is_big) as f32);
        if !place.iter().all(|part| part.is_finite()) {
            continue;
        }
        places.extend(place);
        match (&color, strength) {
            (Some(color), _) => colors.extend(color.at(point, is_big)),
            (None, Some(strength)) => values.push(strength.value(point, is_big) as f32),
            // Higher points are brighter.
            (None, None) => values.push(place[2]),
        }
    }
    let head = serde_json::json!({
        "count": places.len() / 3, "kind": "cloud", "seen": total,
        "thinned": total - total.div_ceil(thin),
        "color": if color.is_some() { "rgba" } else { "value" },
        "local_pose": record.pose(),
        "fields": fields.iter().map(|field| &field.name).collect::<Vec<_>>(),
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

/// The colour fields of a cloud.
enum Color<'a> {
    /// Red, green and blue in the lower bytes of one number, as in ROS.
    Packed(&'a PackedField),
    /// A field for each, as in Foxglove.
    Apart([&'a PackedField; 3]),
}

impl<'a> Color<'a> {
    fn of(fields: &'a [PackedField]) -> Option<Self> {
        let field = |name: &str| fields.iter().find(|field| field.name == name);
        if let Some(packed) = field("rgb").or_else(|| field("rgba")) {
            return Some(Color::Packed(packed));
        }
        let apart = |[red, green, blue]: [&str; 3]| {
            Some(Color::Apart([field(red)?, field(green)?, field(blue)?]))
        };
        apart(["red", "green", "blue"]).or_else(|| apart(["r", "g", "b"]))
    }

    /// Red, green, blue and alpha.
    fn at(&self, point: &[u8], is_big: bool) -> [u8; 4] {
        match self {
            Color::Packed(packed) => {
                let bytes = point.get(packed.offset..).and_then(|p| p.first_chunk());
                let [b, g, r, _] = bytes.copied().unwrap_or_default();
                [r, g, b, 255]
            }
            Color::Apart(parts) => {
                let [r, g, b] = parts.map(|part| {
                    let value = part.value(point, is_big);
                    // Other types than bytes go from 0 to 1.
                    match part.kind {
                        PackedKind::F32 | PackedKind::F64 => (value * 255.0) as u8,
                        _ => value as u8,
                    }
                });
                [r, g, b, 255]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: usize, kind: PackedKind) -> PackedField {
        let name = name.to_owned();
        PackedField { name, offset, kind }
    }

    #[test]
    fn colours_are_found_in_one_number_or_in_three() {
        let packed = [field("rgb", 0, PackedKind::F32)];
        let color = Color::of(&packed).expect("a colour");
        assert_eq!(color.at(&[3, 2, 1, 0], false), [1, 2, 3, 255]);
        // A point that is cut has none.
        assert_eq!(color.at(&[3, 2], false), [0, 0, 0, 255]);
        let bytes = ["red", "green", "blue"];
        let bytes = [0, 1, 2].map(|at| field(bytes[at], at, PackedKind::U8));
        let color = Color::of(&bytes).expect("a colour");
        assert_eq!(color.at(&[9, 8, 7], false), [9, 8, 7, 255]);
        let floats = ["r", "g", "b"];
        let floats = [0, 1, 2].map(|at| field(floats[at], at * 4, PackedKind::F32));
        let color = Color::of(&floats).expect("a colour");
        let point: Vec<u8> = [1.0_f32, 0.5, 2.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        assert_eq!(color.at(&point, false), [255, 127, 255, 255]);
        assert!(Color::of(&[field("red", 0, PackedKind::U8)]).is_none());
    }
}
