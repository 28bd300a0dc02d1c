//! Points in space: clouds and scans.

use super::{Shown, floats};
use asof_decode::{PackedField, Record, Scan};

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
    let scan = Scan::of(record).map_err(|error| error.to_string())?;
    let (mut places, mut values) = (Vec::new(), Vec::new());
    for beam in scan.beams().take(MOST_POINTS) {
        let [x, y] = beam.end();
        places.extend([x as f32, y as f32, 0.0]);
        values.push(beam.intensity.unwrap_or(beam.range) as f32);
    }
    let head = serde_json::json!({
        "count": values.len(), "color": "value", "kind": "scan",
        // Foxglove's scans have a pose of their own within their frame.
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

fn cloud(record: &Record, chosen: Option<&str>) -> Result<Shown, String> {
    let data = record.bytes("data").ok_or("it has no field 'data'")?;
    let step = record
        .number("point_step")
        .filter(|&step| step >= 1.0)
        .ok_or("it does not say how long a point is")? as usize;
    let fields = PackedField::all_of(record)?;
    let field = |name: &str| fields.iter().find(|field| field.name == name);
    let axes = [field("x"), field("y"), field("z")];
    let [Some(x), Some(y), Some(z)] = axes else {
        return Err("its points have no x, y and z".to_owned());
    };
    let chosen = chosen.and_then(field);
    let color = field("rgb").or_else(|| field("rgba"));
    let color = color.filter(|_| chosen.is_none());
    let strength = field("intensity").or_else(|| field("reflectivity"));
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
                let [b, g, r, _] = point
                    .get(color.offset..)
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
